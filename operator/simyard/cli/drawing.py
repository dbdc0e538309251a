"""What every picture of ours shares: colours, fonts, and how it becomes SVG or PNG.

matplotlib is an extra of the package (``simyard[plot]``), and is imported when something is drawn.
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
"""Of the five stages of a worker's start, each by the name of its end."""
FIGURE_COLOURS = {"T_boot": "#17496b", "T_r": "#1d6b2a", "T_m": "#b3261e"}
"""Of the three figures of a pool's start."""
SERIES_COLOURS = ("#7b5ea7", "#c2571a", "#1b8a8a", "#c8508f", "#8c6d31", "#5a5a5a")
"""Of anything else that is told apart by colour: sites, runs."""
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # it comes with matplotlib
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


def drawn(paint: Callable[[Figure], None], kind: Format, *, inches: tuple[float, float]) -> bytes:
    """A picture: ``paint`` gets an empty figure of that width and height, in our style.

    Raises:
        Failure: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Failure(f"pictures need matplotlib ({error}): pip install 'simyard[plot]'") from None
    out = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=inches, dpi=PIXELS_PER_INCH, layout="constrained", facecolor="white")
        paint(figure)
        figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)
    # Text stays text in an SVG: where its font is missing, the one from which it descends has the same widths.
    data = out.getvalue()
    return data.replace(b"'DejaVu Sans'", b"'DejaVu Sans', Verdana, sans-serif") if kind == "svg" else data
