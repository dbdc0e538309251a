# SPDX-License-Identifier: Apache-2.0
"""Draw the displacement in a result of the action `solve_mesh`; needs matplotlib.

python3 draw_field.py job.frd field.png
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

MAX_POINTS = 60_000


def read_rows(frd: Path, header: str) -> Iterator[tuple[float, ...]]:
    """Yield the values of each node in the block of a result file of CalculiX that a header begins.

    The format is fixed: the mark ``-1``, the number of the node in 10 characters, then values of 12 characters.
    """
    inside = False
    with frd.open() as file:
        for line in file:
            if line.startswith(header):
                inside = True
            elif inside and line.startswith(" -3"):
                return
            elif inside and line.startswith(" -1"):
                text = line[13:].rstrip("\n")
                yield tuple(float(text[at : at + 12]) for at in range(0, 36, 12))


def main() -> None:
    """Draw the file that the command line names."""
    frd, picture = Path(sys.argv[1]), Path(sys.argv[2])
    nodes = list(read_rows(frd, "    2C"))
    shifts = list(read_rows(frd, " -4  DISP"))
    step = max(1, len(nodes) // MAX_POINTS)
    points = [
        (*(place + shift for place, shift in zip(node, moved, strict=True)), sum(shift**2 for shift in moved) ** 0.5)
        for node, moved in zip(nodes[::step], shifts[::step], strict=True)
    ]
    figure = plt.figure(figsize=(7, 5))
    axes = figure.add_subplot(projection="3d")
    x, y, z, lengths = zip(*points, strict=True)
    drawn = axes.scatter(x, y, z, c=lengths, s=1, cmap="viridis", linewidths=0)
    axes.set_aspect("equal")
    axes.set_xlabel("x (mm)")
    axes.set_ylabel("y (mm)")
    axes.set_zlabel("z (mm)")
    axes.view_init(elev=18, azim=-60)
    figure.colorbar(drawn, label="displacement (mm)", shrink=0.7, pad=0.12)
    axes.set_title(f"A coil spring under load: {len(nodes):,} nodes")
    figure.savefig(picture, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
