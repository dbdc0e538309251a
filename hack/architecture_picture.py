# SPDX-License-Identifier: Apache-2.0
"""Draw the picture of the architecture, docs/images/architecture.svg.

It shows the processes of an installation and the connections between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 900, 610
INK, ARROW = "#263238", "#546e7a"
OURS, OTHERS, GROUP = "#b2dfdb", "#eceff1", "#fafafa"
LINE_HEIGHT = 17
Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with lines of text in its middle; the text of a group stands in its upper left corner."""

    left: int
    top: int
    width: int
    height: int
    colour: str
    lines: tuple[str, ...]

    def render(self) -> str:
        """Return the rectangle and its text."""
        shape = (
            f'<rect x="{self.left}" y="{self.top}" width="{self.width}" height="{self.height}" rx="6"'
            f' fill="{self.colour}" stroke="{ARROW}"/>'
        )
        return shape + "".join(self._line(number, line) for number, line in enumerate(self.lines))

    def _line(self, number: int, line: str) -> str:
        if self.colour == GROUP:
            return _text((self.left + 12, self.top + 20 + number * LINE_HEIGHT), line, anchor="start", bold=number == 0)
        first = self.top + self.height // 2 + 5 - (len(self.lines) - 1) * LINE_HEIGHT // 2
        where = (self.left + self.width // 2, first + number * LINE_HEIGHT)
        return _text(where, line, anchor="middle", bold=number == 0)


@dataclass(frozen=True, slots=True)
class Arrow:
    """A line from point to point with a head at its end; ``both`` adds a head at its beginning."""

    points: tuple[Point, ...]
    label: str = ""
    label_at: Point = (0, 0)
    both: bool = False
    anchor: str = "start"

    def render(self) -> str:
        """Return the line and its label."""
        path = " L".join(f"{x} {y}" for x, y in self.points)
        start = ' marker-start="url(#head)"' if self.both else ""
        line = f'<path d="M{path}" fill="none" stroke="{ARROW}" stroke-width="1.6" marker-end="url(#head)"{start}/>'
        return line + (_text(self.label_at, self.label, anchor=self.anchor, size=12) if self.label else "")


BOXES = (
    Box(40, 232, 820, 190, GROUP, ("simyard-system",)),
    Box(40, 480, 820, 118, GROUP, ("CloudSite", "pods, KubeVirt,", "OpenNebula, ...")),
    Box(60, 16, 380, 46, OTHERS, ("users, vendors", "kubectl, curl, Python")),
    Box(560, 16, 280, 46, OTHERS, ("OCCI clients",)),
    Box(60, 124, 440, 46, OTHERS, ("kube-apiserver", "all state: sites, services, pools, workers, actions")),
    Box(60, 268, 170, 136, OURS, ("operator", "decides, starts,", "writes status")),
    Box(280, 268, 220, 46, OURS, ("apiserver (aggregated)",)),
    Box(560, 268, 280, 46, OURS, ("OCCI frontends", "of each service")),
    Box(280, 358, 560, 46, OTHERS, ("RabbitMQ", "requests, results, attributes, liveness")),
    *(Box(left, 512, 170, 64, OURS, ("worker", "adapter + program")) for left in (280, 475, 670)),
)
ARROWS = (
    Arrow(((250, 62), (250, 122)), "apply, scale, call", (260, 97)),
    Arrow(((700, 62), (700, 266)), "HTTPS, AMQP", (710, 97)),
    Arrow(((205, 266), (205, 172)), "watch, write", (215, 206), both=True),
    Arrow(((390, 170), (390, 266)), "actions, attributes, logs", (400, 206)),
    Arrow(((610, 268), (610, 147), (502, 147)), "objects, rights", (602, 138), anchor="end"),
    Arrow(((390, 314), (390, 356)), both=True),
    Arrow(((700, 314), (700, 356)), both=True),
    Arrow(((230, 381), (278, 381)), both=True),
    Arrow(((145, 404), (145, 478)), "create, delete; events", (155, 456), both=True),
    *(Arrow(((x, 512), (x, 406))) for x in (365, 560, 755)),
)
LABEL = (765, 456, "dial out, TLS")


def draw() -> str:
    """Return the picture as SVG."""
    parts = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        ' font-family="sans-serif">',
        "<title>How the parts of Simyard work together</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        f' orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{ARROW}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *(box.render() for box in BOXES),
        *(arrow.render() for arrow in ARROWS),
        _text((LABEL[0], LABEL[1]), LABEL[2], anchor="start", size=12),
        "</svg>",
    )
    return "\n".join(parts) + "\n"


def _text(where: Point, text: str, *, anchor: str, bold: bool = False, size: int = 14) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{where[0]}" y="{where[1]}" text-anchor="{anchor}" font-size="{size}"{weight} fill="{INK}">'
        f"{escape(text)}</text>"
    )
