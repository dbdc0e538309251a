"""CalculiX as a service: solves any input deck, or a cantilever beam given by its measures.

The program is Debian's ``calculix-ccx`` (2.20): it reads ``job.inp`` in the working directory, tells on its standard
output what it does, and writes displacements and stresses to ``job.frd`` (what ``*NODE FILE`` and ``*EL FILE`` ask
for) and ``job.dat`` (``*NODE PRINT``).

Units are mm, N and MPa. A deck may use any consistent set; its results come back in the deck's own units.
"""

from __future__ import annotations

import itertools
import math
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from simyard_adapter import ActionError, Connector, Context, action, attribute, parameter


@dataclass(frozen=True)
class Material:
    """An isotropic linear elastic material: Young's modulus in MPa, and Poisson's ratio."""

    young_modulus: float
    poisson_ratio: float


MATERIALS: Mapping[str, Material] = {
    "steel": Material(210_000, 0.30),
    "stainless_steel": Material(193_000, 0.29),
    "cast_iron": Material(110_000, 0.28),
    "titanium": Material(114_000, 0.34),
    "brass": Material(105_000, 0.34),
    "aluminium": Material(70_000, 0.33),
    "magnesium": Material(45_000, 0.29),
    "acrylic": Material(3_200, 0.37),
}
"""Usual values at room temperature."""

MAX_SLENDERNESS = 1000
"""Length over the smaller side of the section. Beyond it the stiffness matrix of a solid model is too badly
conditioned for double precision: at 1000 ccx is 0.2 % off the theory, at 2000 it is 2 %, at 10,000 it is 90 %."""

MAX_LINE_BYTES = 1318
"""ccx reads lines into a buffer of 1,320 bytes; what is longer goes on as a line of its own."""


@dataclass(frozen=True)
class Cantilever:
    """A beam along x, clamped at x = 0, with a force in -z spread over the free end.

    ``length``, ``width`` (y) and ``height`` (z) in mm, ``load`` in N, ``elements`` along the length.
    """

    length: float
    width: float
    height: float
    load: float
    elements: int
    material: Material

    def deflection(self) -> float:
        """The deflection of the free end after Euler and Bernoulli, F L^3 / (3 E I), in mm.

        It leaves out shear: the true deflection of a rectangular beam is larger by about 0.8 (height / length)^2.
        """
        inertia = self.width * self.height**3 / 12
        return self.load * self.length**3 / (3 * self.material.young_modulus * inertia)

    def deck(self) -> str:
        """The input deck: 20-node bricks with reduced integration (C3D20R), 2 by 2 in the section.

        The clamp is the one of beam theory: the section at the wall stays plane and in place but may contract
        sideways (Poisson), so only its x displacements are held; the shear force of the wall is spread over it as the
        load is over the free end, and its middle node holds what then is left of y, z and the rotation about x.
        Results are asked for on the beam's axis (displacements) and at all nodes (stresses).
        """
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        end, middle = 2 * self.elements, _SECTION
        numbers: dict[tuple[int, int, int], int] = {}
        yield f"*HEADING\nCantilever {self.length:g} x {self.width:g} x {self.height:g} mm, {self.load:g} N"
        yield "*NODE, NSET=ALL"
        for i, j, k in itertools.product(range(end + 1), range(2 * _SECTION + 1), range(2 * _SECTION + 1)):
            if i % 2 + j % 2 + k % 2 > 1:
                continue  # a 20-node brick has nodes at its corners and the middles of its edges only
            number = numbers[i, j, k] = len(numbers) + 1
            x, y, z = self.length * i / end, self.width * (j / middle - 1) / 2, self.height * (k / middle - 1) / 2
            yield f"{number}, {_text(x)}, {_text(y)}, {_text(z)}"
        yield "*ELEMENT, TYPE=C3D20R, ELSET=BEAM"
        bricks = itertools.product(range(self.elements), range(_SECTION), range(_SECTION))
        for element, (i, j, k) in enumerate(bricks, 1):
            nodes = [str(numbers[2 * i + x, 2 * j + y, 2 * k + z]) for x, y, z in _BRICK]
            yield f"{element}, {', '.join(nodes[:10])},\n{', '.join(nodes[10:])}"
        yield "*NSET, NSET=AXIS"
        yield from (f"{numbers[i, middle, middle]}," for i in range(end + 1))
        yield "*MATERIAL, NAME=SOLID\n*ELASTIC"
        yield f"{_text(self.material.young_modulus)}, {_text(self.material.poisson_ratio)}"
        yield "*SOLID SECTION, ELSET=BEAM, MATERIAL=SOLID\n*BOUNDARY"
        yield from (f"{number}, 1" for (i, _, _), number in numbers.items() if i == 0)
        yield f"{numbers[0, middle, middle]}, 2, 3\n{numbers[0, middle, 2 * middle]}, 2"
        yield "*STEP\n*STATIC\n*CLOAD"
        for (j, k), share in _shares().items():
            yield f"{numbers[end, j, k]}, 3, {_text(-self.load * share)}"
            yield f"{numbers[0, j, k]}, 3, {_text(self.load * share)}"
        yield "*NODE FILE, NSET=AXIS\nU\n*EL FILE\nS\n*END STEP"


_SECTION = 2
"""Bricks along the width and along the height."""

_CORNERS = ((0, 0), (2, 0), (2, 2), (0, 2))
_EDGES = ((1, 0), (2, 1), (1, 2), (0, 1))
_BRICK = (
    *((x, y, 0) for x, y in _CORNERS),
    *((x, y, 2) for x, y in _CORNERS),
    *((x, y, 0) for x, y in _EDGES),
    *((x, y, 2) for x, y in _EDGES),
    *((x, y, 1) for x, y in _CORNERS),
)
"""The nodes of a 20-node brick in the order of CalculiX, in half edges from its first corner."""


def _shares() -> dict[tuple[int, int], float]:
    """What each node (j, k) of an end takes of a force spread evenly over it, by the shape functions of an
    8-node face: 1/3 for the middle of an edge, -1/12 for a corner."""
    shares: dict[tuple[int, int], float] = {}
    for j, k in itertools.product(range(_SECTION), repeat=2):
        for nodes, share in ((_CORNERS, -1 / 12), (_EDGES, 1 / 3)):
            for y, z in nodes:
                node = (2 * j + y, 2 * k + z)
                shares[node] = shares.get(node, 0.0) + share / _SECTION**2
    return shares


def _text(value: float) -> str:
    """A number for a deck, where ccx takes 20 characters at most."""
    return f"{value:.12g}"


_OTHER_FILE = re.compile(rb"^\*INCLUDE|(?:INPUT|FILE|FILENAME)=|OUTPUT=(?![23]D)")


def check_deck(deck: bytes) -> None:
    """Refuse a deck that would read or write other files than its job's, or that has no step.

    Raises:
        ActionError: names the line.
    """
    steps = False
    for number, line in enumerate(deck.split(b"\n"), 1):
        if len(line) > MAX_LINE_BYTES:
            raise ActionError(f"deck, line {number}: has {len(line)} bytes, at most {MAX_LINE_BYTES} are accepted")
        card = line.translate(None, b" \t\r").upper()
        if card.startswith(b"**"):
            continue
        if _OTHER_FILE.search(card):
            raise ActionError(
                f"deck, line {number}: refers to another file; a deck must be complete in itself"
                " (*INCLUDE, INPUT=, FILE= and OUTPUT= are not accepted)"
            )
        steps = steps or card.startswith(b"*STEP")
    if not steps:
        raise ActionError("deck: has no *STEP card, so there is nothing to solve")


@dataclass(frozen=True)
class Results:
    """What a job wrote: the size of its mesh, and the largest values of its last increment where it has them."""

    nodes: int = 0
    elements: int = 0
    max_displacement: float | None = None
    max_stress: float | None = None


_FRD_NUMBER = re.compile(r"[-+]?\d\.\d+E[-+]\d{2,3}|[-+]?(?:nan|inf)", re.IGNORECASE)


def read_frd(lines: Iterable[str]) -> Results:
    """Read a ``.frd`` file (CalculiX GraphiX manual, "Result Format"): each block of results replaces the last one.

    Raises:
        ActionError: the file is a binary one.
    """
    nodes = elements = 0
    largest: dict[str, float] = {}
    block = ""
    for line in lines:
        key = line[:3]
        if key == " -1" and block in _NORMS:
            values = [float(text) for text in _FRD_NUMBER.findall(line[13:])]
            largest[block] = _larger(largest[block], _NORMS[block](values))
        elif key == " -4":
            block = line.split()[1]
            largest[block] = 0.0
        elif key == " -3":
            block = ""
        elif line.startswith("    2C"):
            nodes = int(line.split()[1])
            if line.split()[-1] != "1":
                raise ActionError(
                    "the deck asks for binary results: use *NODE FILE and *EL FILE in place of ... OUTPUT"
                )
        elif line.startswith("    3C"):
            elements = int(line.split()[1])
    return Results(nodes, elements, largest.get("DISP"), largest.get("STRESS"))


_DAT_TITLE = re.compile(r"\s*displacements .* and time\s+(\S+)")
_SHORT_EXPONENT = re.compile(r"(?<=\d)(?=[-+]\d)")


def read_dat(lines: Iterable[str]) -> float | None:
    """The largest displacement that a ``.dat`` file has for the last time in it, or None if it has none."""
    largest: float | None = None
    at = ""
    inside = False
    for line in lines:
        title = _DAT_TITLE.match(line)
        words = line.split()
        if title:
            inside = True
            if title[1] != at:
                at, largest = title[1], 0.0
        elif inside and len(words) == 4 and largest is not None:
            # Fortran writes 1E-100 as 1.000000-100.
            values = [float(_SHORT_EXPONENT.sub("E", word) if "E" not in word.upper() else word) for word in words[1:]]
            largest = _larger(largest, math.hypot(*values))
        elif words:
            inside = False
    return largest


def _von_mises(stress: list[float]) -> float:
    xx, yy, zz, xy, yz, zx = stress
    return math.sqrt(((xx - yy) ** 2 + (yy - zz) ** 2 + (zz - xx) ** 2) / 2 + 3 * (xy**2 + yz**2 + zx**2))


def _larger(left: float, right: float) -> float:
    """The larger one; not a number if either is not."""
    return left if left > right or math.isnan(left) else right


_NORMS: Mapping[str, Callable[[list[float]], float]] = {
    "DISP": lambda values: math.hypot(*values),
    "STRESS": _von_mises,
}


_MESSAGE = re.compile(r"^ *\*(?:ERROR|WARNING|INFO)\b", re.MULTILINE)
_EMPTY_LINE = re.compile(r"\n\s*\n")


def messages(output: str, kind: str, most: int = 5) -> str:
    """The messages of one kind (``ERROR`` or ``WARNING``) in ccx's output, each on one line, without repetitions."""
    found: dict[str, None] = {}
    starts = [match.start() for match in _MESSAGE.finditer(output)]
    for start, end in zip(starts, [*starts[1:], len(output)]):
        text = " ".join(_EMPTY_LINE.split(output[start:end], maxsplit=1)[0].split())
        if text.startswith(f"*{kind}"):
            found[text[:400]] = None
    more = [f"and {len(found) - most} more"] if len(found) > most else []
    return "\n".join([*itertools.islice(found, most), *more])


_STEP = re.compile(r"^\s*\*\s*STEP\b.*$", re.IGNORECASE | re.MULTILINE)
_PROCEDURE = re.compile(
    r"^\*(?:STATIC|VISCO|DYNAMIC|HEAT|COUPLED|UNCOUPLED).*\n[^*,\n]+,([^,\n]+)", re.I | re.MULTILINE
)
_PREVIOUS = re.compile(r"\s*sum of previous increments=(.+)")
_MILESTONES = {"Determining the structure": 0.05, "stiffness/mass contributions": 0.15, "Factoring": 0.35}


class Meter:
    """Turns ccx's output into the percentage done: each step of the deck counts the same, and within a step either
    the time that its increments have reached or, as a linear one has none, how far its solution is."""

    def __init__(self, deck: str) -> None:
        steps = _STEP.split(deck)[1:]
        self._periods = [_period(match[1]) if match else 1.0 for match in map(_PROCEDURE.search, steps)]
        self._step = 0
        self._share = 0.0

    def read(self, line: str) -> int:
        """Take in one line of output; return the percentage."""
        words = line.split()
        previous = _PREVIOUS.match(line)
        if words[:1] == ["STEP"] and words[1].isdigit():
            self._step = min(int(words[1]), len(self._periods))
            self._share = 0.0
        elif previous and self._step:
            self._share = max(self._share, min(1.0, float(previous[1]) / self._periods[self._step - 1]))
        elif self._step:
            self._share = max(self._share, *(share for text, share in _MILESTONES.items() if text in line), 0.0)
        return int(100 * (max(0, self._step - 1) + self._share) / max(1, len(self._periods)))


def _period(text: str) -> float:
    try:
        return max(float(text), 1e-30)
    except ValueError:
        return 1.0


def failure(returncode: int, output: str) -> str:
    """Why ccx ended with that code (negative: by that signal), in its own words where it has any."""
    own = messages(output, "ERROR") or messages(output, "WARNING")
    if returncode < 0:
        return f"ccx crashed with {signal.Signals(-returncode).name}" + (f"\n{own}" if own else "")
    return own or f"ccx ended with code {returncode} and no message"


def read_results(directory: Path, output: str) -> dict[str, float]:
    """Read what the job wrote to its directory: the fields of :class:`Results` that it has.

    Raises:
        ActionError: it has no displacements, or they are not finite.
    """
    with (directory / "job.frd").open(encoding="latin-1") as lines:
        results = read_frd(lines)
    if results.max_displacement is None:
        with (directory / "job.dat").open(encoding="latin-1") as lines:
            results = replace(results, max_displacement=read_dat(lines))
    if results.max_displacement is None:
        hint = "ccx wrote no displacements: ask for them in the step, by *NODE FILE or *NODE PRINT and a line with U"
        raise ActionError(f"{hint}\n{messages(output, 'WARNING')}".strip())
    if not math.isfinite(results.max_displacement):
        raise ActionError("the displacements are not finite: the model is unstable, or a number in the deck is not one")
    return {name: value for name, value in asdict(results).items() if value is not None}


_HEIGHT = "Along z, the direction of the force."
_LOAD = "The force at the free end."
_ELEMENTS = "Along the length; there are 2 by 2 in the section."
_INSTEAD = "In place of the material's."
_DECK = (
    "In place of a beam: a CalculiX input deck, complete in itself, that asks for U by *NODE FILE or *NODE PRINT."
    " All other parameters are then ignored."
)
_DISPLACEMENT = (
    "Largest displacement at the end: of the beam's axis, or of the nodes for which the deck asks for U. A deck's"
    " results are in its own units."
)


class CalculixBeam(Connector):
    """The service: ``solve`` and ``cancel``."""

    state = attribute("string", default="idle", enum=("idle", "running"), description="What the worker does.")
    progress = attribute("integer", unit="%", minimum=0, maximum=100, default=0, description="Of the newest solution.")
    max_displacement = attribute("number", unit="mm", description="Largest displacement of the newest solution.")
    solve_seconds = attribute("number", unit="s", description="What the newest solution took.")
    solved = attribute("integer", minimum=0, default=0, description="Models solved since the worker started.")

    def start(self) -> None:
        """See the base class."""
        if shutil.which("ccx") is None:
            raise FileNotFoundError("the program ccx is not installed (Debian's package calculix-ccx)")

    @action(
        description="Solve a cantilever beam that carries a force at its free end, or any CalculiX deck.",
        timeout_seconds=300,
        idempotent=True,
        parameters=[
            parameter("length", "number", unit="mm", minimum=1, maximum=100_000, default=1000),
            parameter("width", "number", unit="mm", minimum=0.1, maximum=100_000, default=50, description="Along y."),
            parameter("height", "number", unit="mm", minimum=0.1, maximum=100_000, default=50, description=_HEIGHT),
            parameter("load", "number", unit="N", minimum=0.001, maximum=1e9, default=1000, description=_LOAD),
            parameter("elements", "integer", minimum=1, maximum=1000, default=20, description=_ELEMENTS),
            parameter("material", "string", enum=MATERIALS, default="steel"),
            parameter("young_modulus", "number", unit="MPa", minimum=0.001, maximum=1e7, description=_INSTEAD),
            parameter("poisson_ratio", "number", minimum=0, maximum=0.49, description=_INSTEAD),
            parameter("deck", "string", max_length=1_048_576, description=_DECK),
        ],
        result=[
            parameter("max_displacement", "number", unit="mm", required=True, description=_DISPLACEMENT),
            parameter("theory", "number", unit="mm", description="Beams: Euler and Bernoulli's F L^3 / (3 E I)."),
            parameter("error_percent", "number", unit="%", description="Beams: max_displacement against theory."),
            parameter("max_stress", "number", unit="MPa", description="Largest von Mises stress, if S was asked for."),
            parameter("nodes", "integer", description="Of the mesh that was solved."),
            parameter("elements", "integer", description="Of the mesh that was solved."),
            parameter("solve_seconds", "number", unit="s", required=True, description="What ccx took."),
        ],
    )
    def solve(
        self,
        context: Context,
        *,
        length: float,
        width: float,
        height: float,
        load: float,
        elements: int,
        material: str,
        young_modulus: float | None = None,
        poisson_ratio: float | None = None,
        deck: str | None = None,
    ) -> dict[str, float]:
        """See the description of the action."""
        if deck is not None:
            return self._run(context, deck)
        side = min(width, height)
        if length > MAX_SLENDERNESS * side:
            raise ActionError(
                f"length: {length:g} mm is more than {MAX_SLENDERNESS} times the section's smaller side, {side:g} mm;"
                " solid elements do not resolve that"
            )
        usual = MATERIALS[material]
        chosen = Material(
            usual.young_modulus if young_modulus is None else young_modulus,
            usual.poisson_ratio if poisson_ratio is None else poisson_ratio,
        )
        beam = Cantilever(length, width, height, load, elements, chosen)
        result = self._run(context, beam.deck())
        theory = beam.deflection()
        return {**result, "theory": theory, "error_percent": round(100 * (result["max_displacement"] / theory - 1), 4)}

    @action(
        description="Cancel what is being solved.",
        concurrent=True,
        result=[parameter("cancelled", "boolean", required=True, description="Whether there was something to cancel.")],
    )
    def cancel(self, context: Context) -> dict[str, bool]:
        """See the description of the action."""
        running = [other for other in self.invocations if other.action == "solve"]
        for other in running:
            other.cancel()
        return {"cancelled": bool(running)}

    def _run(self, context: Context, deck: str) -> dict[str, float]:
        """Solve the deck in the invocation's directory, and keep the attributes true."""
        data = deck.encode("utf-8", "replace")
        check_deck(data)
        (context.directory / "job.inp").write_bytes(data)
        meter = Meter(deck)

        def follow(line: str) -> None:
            percent = meter.read(line)
            if percent > self.progress:
                self.progress = percent
                context.progress(percent)

        self.state, self.progress = "running", 0
        started = time.monotonic()
        try:
            done = context.run(["ccx", "-i", "job"], env={"OMP_NUM_THREADS": "1"}, on_line=follow)
            if done.returncode != 0:
                raise ActionError(failure(done.returncode, done.stdout))
            result = {**read_results(context.directory, done.stdout), "solve_seconds": time.monotonic() - started}
        finally:
            self.state = "idle"
        self.max_displacement, self.solve_seconds = result["max_displacement"], result["solve_seconds"]
        self.progress, self.solved = 100, self.solved + 1
        return result
