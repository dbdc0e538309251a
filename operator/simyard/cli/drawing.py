# SPDX-License-Identifier: Apache-2.0
"""Colours, fonts and output formats of all pictures that Simyard draws.

matplotlib is an extra of the package (``simyard[plot]``). It is imported when a picture is drawn, so all other commands
work without it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from simyard.cli.output import Failure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Format = Literal["svg", "png"]

STAGE_COLOURS = {
    "pending": "#c9c9c9",
    "prolog": "#fdc675",
    "boot": "#a6cde6",
    "running": "#3a87bd",
    "registered": "#4daf5a",
}
"""The colours of the five stages of a worker's start, by the state in which the stage ends."""
FIGURE_COLOURS = {"T_boot": "#17496b", "T_r": "#1d6b2a", "T_m": "#b3261e"}
"""The colours of the three figures of a pool's start."""
SERIES_COLOURS = ("#7b5ea7", "#c2571a", "#1b8a8a", "#c8508f", "#8c6d31", "#5a5a5a")
"""The colours of other series, such as sites and runs."""
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # a font that matplotlib contains
    "font.size": 9,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",
    "svg.hashsalt": "simyard",
}
PIXELS_PER_INCH = 150


def draw_picture(paint: Callable[[Figure], None], kind: Format, *, inches: tuple[float, float]) -> bytes:
    """Return a picture as SVG or PNG.

    Args:
        paint: draws the picture into the empty figure that it receives.
        kind: the format.
        inches: the width and the height.

    Raises:
        Failure: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Failure(
            f"matplotlib, which draws the pictures, is not installed ({error}): pip install 'simyard[plot]'"
        ) from None
    out = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=inches, dpi=PIXELS_PER_INCH, layout="constrained", facecolor="white")
        paint(figure)
        figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)
    # An SVG contains text, not shapes. Verdana is a good substitute for DejaVu Sans, because it has the same widths.
    data = out.getvalue()
    return data.replace(b"'DejaVu Sans'", b"'DejaVu Sans', Verdana, sans-serif") if kind == "svg" else data
