# SPDX-License-Identifier: Apache-2.0
"""Write the mesh of a coil spring with a square wire, for the action `solve_mesh`.

python3 make_spring.py spring.inp [LAYERS]

The mesh has the node sets FIXED and LOADED (the two ends of the wire) and the element set ALL. LAYERS cross-sections of
5 x 5 nodes make the wire; 20,000 make a file of about 57 MB. The wire has few nodes in each cross-section, so the
equations have a small bandwidth, and the solver needs little memory for a file of this size.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

TURNS = 4
DIAMETER = 20.0
"""Mean diameter of the coil, in mm."""
WIRE = 2.0
"""Side of the square wire, in mm."""
PITCH = 4.0
"""Rise of one turn, in mm."""
SIDE = 5
"""Nodes along each side of a cross-section."""


def make_lines(layers: int) -> Iterator[str]:
    """Yield the lines of the mesh."""
    yield "*NODE, NSET=NALL\n"
    for layer in range(layers):
        angle = 2 * math.pi * TURNS * layer / (layers - 1)
        slope = math.atan2(PITCH, math.pi * DIAMETER)
        for place in range(SIDE * SIDE):
            u = (place % SIDE / (SIDE - 1) - 0.5) * WIRE
            v = (place // SIDE / (SIDE - 1) - 0.5) * WIRE
            radius = DIAMETER / 2 + u
            # The cross-section is normal to the wire, which rises by the angle of the slope.
            turned = angle - v * math.sin(slope) / radius
            x, y = radius * math.cos(turned), radius * math.sin(turned)
            z = PITCH * TURNS * layer / (layers - 1) + v * math.cos(slope)
            yield f"{layer * SIDE * SIDE + place + 1}, {x:.13e}, {y:.13e}, {z:.13e}\n"
    yield "*ELEMENT, TYPE=C3D8I, ELSET=ALL\n"
    number = 0
    for layer in range(layers - 1):
        for i in range(SIDE - 1):
            for j in range(SIDE - 1):
                corner = layer * SIDE * SIDE + i * SIDE + j + 1
                face = (corner, corner + SIDE, corner + SIDE + 1, corner + 1)
                number += 1
                yield ", ".join(map(str, (number, *face, *(node + SIDE * SIDE for node in face)))) + "\n"
    for name, layer in (("FIXED", 0), ("LOADED", layers - 1)):
        yield f"*NSET, NSET={name}, GENERATE\n{layer * SIDE * SIDE + 1}, {(layer + 1) * SIDE * SIDE}\n"


def main() -> None:
    """Write the file that the command line names."""
    layers = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    with Path(sys.argv[1]).open("w") as file:
        file.writelines(make_lines(layers))


if __name__ == "__main__":
    main()
