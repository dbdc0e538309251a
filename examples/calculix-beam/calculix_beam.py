# SPDX-License-Identifier: Apache-2.0
"""CalculiX as a service: it solves any input deck, or a cantilever beam given by its dimensions.

The program is Debian's ``calculix-ccx`` (2.20). It reads ``job.inp`` in the working directory, reports its progress on
the standard output, and writes the requested displacements and stresses to ``job.frd`` (``*NODE FILE``, ``*EL FILE``)
and ``job.dat`` (``*NODE PRINT``).

The units are mm, N and MPa; the results of a deck are in its own units.
"""

from __future__ import annotations

import itertools
import math
import re
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simyard_adapter import ActionError, Connector, Context, action, attribute, parameter
from simyard_adapter.errors import ParameterError

MATERIALS: Mapping[str, tuple[float, float]] = {
    "steel": (210_000, 0.30),
    "cast_iron": (110_000, 0.28),
    "titanium": (114_000, 0.34),
    "aluminium": (70_000, 0.33),
}
"""Young's modulus in MPa and Poisson's ratio: usual values at room temperature."""

MAX_SLENDERNESS = 1000
"""Limit of length / smaller side of the section: the error of ccx (double precision) is 0.2 % here, 2 % at 2000."""

MAX_LINE_BYTES = 1318
"""Limit of a line: ccx has a buffer of 1,320 bytes, and reads the rest of a longer line as another line."""


@dataclass(frozen=True)
class Cantilever:
    """A beam along x, clamped at x = 0, with a force in -z spread over its free end, in mm, N and MPa.

    The width is along y, the height along z; ``elements`` is the number of elements along x.
    """

    length: float
    width: float
    height: float
    load: float
    elements: int
    young_modulus: float
    poisson_ratio: float

    def deflection(self) -> float:
        """Return the deflection of the free end after Euler and Bernoulli, F L^3 / (3 E I), in mm.

        The theory omits shear: the true deflection of a rectangular beam is larger by about 0.8 (height / length)^2.
        """
        inertia = self.width * self.height**3 / 12
        return self.load * self.length**3 / (3 * self.young_modulus * inertia)

    def deck(self) -> str:
        """Return the input deck: 20-node bricks with reduced integration (C3D20R), 2 by 2 in the section.

        The clamp is that of beam theory: the section at the wall stays plane and in place, but may contract sideways
        (Poisson). Only its x displacements are therefore fixed. The shear force of the wall is spread over it, like the
        load over the free end. Its middle node fixes y and z, and another node the rotation about x. The deck requests
        displacements on the beam's axis and stresses at all nodes.
        """
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        end, middle = 2 * self.elements, _SECTION
        numbers: dict[tuple[int, int, int], int] = {}
        yield f"*HEADING\nCantilever {self.length:g} x {self.width:g} x {self.height:g} mm, {self.load:g} N"
        yield "*NODE, NSET=ALL"
        for i, j, k in itertools.product(range(end + 1), range(2 * _SECTION + 1), range(2 * _SECTION + 1)):
            if i % 2 + j % 2 + k % 2 > 1:
                continue  # A 20-node brick has nodes only at its corners and the middles of its edges.
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
        yield f"*MATERIAL, NAME=SOLID\n*ELASTIC\n{_text(self.young_modulus)}, {_text(self.poisson_ratio)}"
        yield "*SOLID SECTION, ELSET=BEAM, MATERIAL=SOLID\n*BOUNDARY"
        yield from (f"{number}, 1" for (i, _, _), number in numbers.items() if i == 0)
        yield f"{numbers[0, middle, middle]}, 2, 3\n{numbers[0, middle, 2 * middle]}, 2"
        yield "*STEP\n*STATIC\n*CLOAD"
        for (j, k), share in _shares().items():
            yield f"{numbers[end, j, k]}, 3, {_text(-self.load * share)}"
            yield f"{numbers[0, j, k]}, 3, {_text(self.load * share)}"
        yield "*NODE FILE, NSET=AXIS\nU\n*EL FILE\nS\n*END STEP"


_SECTION = 2
"""The number of bricks along the width and along the height."""

_CORNERS = ((0, 0), (2, 0), (2, 2), (0, 2))
_EDGES = ((1, 0), (2, 1), (1, 2), (0, 1))
_LAYERS = ((_CORNERS, 0), (_CORNERS, 2), (_EDGES, 0), (_EDGES, 2), (_CORNERS, 1))
_BRICK = tuple((x, y, z) for layer, z in _LAYERS for x, y in layer)
"""The nodes of a 20-node brick in the order of CalculiX, in half edges from its first corner."""


def _shares() -> dict[tuple[int, int], float]:
    """Return the share of each node (j, k) of an end in an even force: 1/3 for mid-edges, -1/12 for corners."""
    shares: dict[tuple[int, int], float] = defaultdict(float)
    face = [*((node, -1 / 12) for node in _CORNERS), *((node, 1 / 3) for node in _EDGES)]
    for j, k, ((y, z), share) in itertools.product(range(_SECTION), range(_SECTION), face):
        shares[2 * j + y, 2 * k + z] += share / _SECTION**2
    return shares


def _text(value: float) -> str:
    """Return a number as text for a deck; ccx reads at most 20 characters of it."""
    return f"{value:.12g}"


_OTHER_FILE = re.compile(rb"(?!\*\*)(?:\*INCLUDE|.*(?:INPUT|FILE|FILENAME)=|.*OUTPUT=(?![23]D))")


def check_deck(deck: bytes) -> None:
    """Raise a ParameterError if a deck has no step, or reads or writes files other than its job's."""
    steps = False
    for number, line in enumerate(deck.split(b"\n"), 1):
        card = line.translate(None, b" \t\r").upper()
        problem = ""
        if len(line) > MAX_LINE_BYTES:
            problem = f"has {len(line)} bytes, at most {MAX_LINE_BYTES} are accepted"
        elif _OTHER_FILE.match(card):
            problem = "refers to another file; *INCLUDE, INPUT=, FILE= and OUTPUT= are not accepted"
        if problem:
            raise ParameterError("parameters.deck", f"line {number} {problem}")
        steps = steps or card.startswith(b"*STEP")
    if not steps:
        raise ParameterError("parameters.deck", "has no *STEP card, so there is nothing to solve")


def _von_mises(stress: Sequence[float]) -> float:
    xx, yy, zz, xy, yz, zx = stress
    return math.sqrt(((xx - yy) ** 2 + (yy - zz) ** 2 + (zz - xx) ** 2) / 2 + 3 * (xy**2 + yz**2 + zx**2))


def _keep_largest(found: dict[str, float], name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ActionError("the results are not finite: check that the model is held and its numbers are valid")
    found[name] = max(found.get(name, 0.0), value)


_FIELDS: Mapping[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "DISP": ("max_displacement", lambda values: math.hypot(*values)),
    "STRESS": ("max_stress", _von_mises),
}
"""The results of each block of a ``.frd`` file: the name, and the function of a node's values."""

_FRD_NUMBER = re.compile(r"[-+]?\d\.\d+E[-+]\d{2,3}|[-+]?(?:nan|inf)", re.IGNORECASE)
"""A number in a ``.frd`` file: 12 columns, with nothing between two numbers."""


def read_frd(lines: Iterable[str]) -> dict[str, float]:
    """Read a ``.frd`` file (CalculiX GraphiX manual, "Result Format"); raise an ActionError if it is binary.

    Return ``nodes`` and ``elements`` of the mesh and, if the file has them, ``max_displacement`` and ``max_stress``
    (von Mises) of the last increment.
    """
    found: dict[str, float] = {}
    block = ""
    for line in lines:
        key = line[:3]
        if key == " -1" and block in _FIELDS:
            name, norm = _FIELDS[block]
            _keep_largest(found, name, norm([float(text) for text in _FRD_NUMBER.findall(line[13:])]))
        elif key == " -4":
            block = line.split()[1]
            if block in _FIELDS:
                found.pop(_FIELDS[block][0], None)  # the value of an earlier increment
        elif key == " -3":
            block = ""
        elif line[:6] == "    2C":
            found["nodes"] = int(line.split()[1])
            if line.split()[-1] != "1":
                raise ActionError("the results are binary: ask for them by *NODE FILE and *EL FILE, not ... OUTPUT")
        elif line[:6] == "    3C":
            found["elements"] = int(line.split()[1])
    return found


_DAT_TITLE = re.compile(r"\s*displacements .* and time\s+(\S+)")
_SHORT_EXPONENT = re.compile(r"(?<=\d)(?=[-+])")
"""A number with a three-digit exponent, which Fortran writes without E: 1E-100 is 1.000000-100."""


def read_dat(lines: Iterable[str]) -> dict[str, float]:
    """Read a ``.dat`` file: return ``max_displacement`` for the last time with displacements."""
    found: dict[str, float] = {}
    time_read = ""
    inside = False
    for line in lines:
        title = _DAT_TITLE.match(line)
        words = line.split()
        if title:
            if title[1] != time_read:
                found.clear()
            time_read, inside = title[1], True
        elif inside and len(words) == 4 and words[0].isdigit():
            values = [float(_SHORT_EXPONENT.sub("E", word)) for word in words[1:]]
            _keep_largest(found, "max_displacement", math.hypot(*values))
        elif words:
            inside = False
    return found


_MESSAGE = re.compile(r"^(?= *\*(?:ERROR|WARNING|INFO)\b)", re.MULTILINE)
_EMPTY_LINE = re.compile(r"\n\s*\n")


def messages(output: str, kind: str) -> str:
    """Return the messages of one kind (``ERROR`` or ``WARNING``) in ccx's output, each once and on one line."""
    texts = (" ".join(_EMPTY_LINE.split(part, maxsplit=1)[0].split())[:400] for part in _MESSAGE.split(output))
    found = list(dict.fromkeys(text for text in texts if text.startswith(f"*{kind}")))
    return "\n".join(found[:5] + ([f"and {len(found) - 5} more"] if len(found) > 5 else []))


_STEP = re.compile(r"^\s*\*\s*STEP\b.*$", re.IGNORECASE | re.MULTILINE)
_PROCEDURE = re.compile(
    r"^\*(?:STATIC|VISCO|DYNAMIC|HEAT|COUPLED|UNCOUPLED).*\n[^*,\n]+,\s*(\d+\.?\d*(?:E[-+]?\d+)?|\.\d+)",
    re.IGNORECASE | re.MULTILINE,
)
"""The procedure of a step and its second number: the period, if it is not 1."""
_PREVIOUS = re.compile(r"\s*sum of previous increments=(\S+)")
_BEGUN = re.compile(r"\s*STEP\s+(\d+)\s*$")
_MILESTONES = {"Determining the structure": 0.05, "stiffness/mass contributions": 0.15, "Factoring": 0.35}


class Meter:
    """The progress of ccx in percent, computed from its output; all steps of the deck have the same weight.

    Within a step it is the time that the increments have reached, or in a linear step the phase of the solution.
    """

    def __init__(self, deck: str) -> None:
        procedures = map(_PROCEDURE.search, _STEP.split(deck)[1:])
        self._periods = [float(match[1]) or 1.0 if match else 1.0 for match in procedures] or [1.0]
        self._step = 0
        self._share = 0.0

    def read(self, line: str) -> int:
        """Read one line of output; return the percentage."""
        begun, previous = _BEGUN.match(line), _PREVIOUS.match(line)
        if begun:
            self._step, self._share = min(int(begun[1]), len(self._periods)) - 1, 0.0
        elif previous:
            self._share = max(self._share, min(1.0, float(previous[1]) / self._periods[self._step]))
        else:
            self._share = max([self._share, *(share for text, share in _MILESTONES.items() if text in line)])
        return int(100 * (self._step + self._share) / len(self._periods))


def failure(returncode: int, output: str) -> str:
    """Return the reason why ccx ended with this code (negative: this signal), in ccx's own words if possible."""
    crash = f"ccx crashed with {signal.Signals(-returncode).name}" if returncode < 0 else ""
    own = messages(output, "ERROR") or messages(output, "WARNING")
    return "\n".join(filter(None, (crash, own))) or f"ccx ended with exit code {returncode} without a message"


def read_results(directory: Path, output: str) -> dict[str, float]:
    """Read the results in the job's directory (see :func:`read_frd`); raise an ActionError without displacements."""
    found: dict[str, float] = {}
    for name, read in (("job.frd", read_frd), ("job.dat", read_dat)):
        path = directory / name
        if "max_displacement" not in found and path.exists():
            with path.open(encoding="latin-1") as lines:
                found.update(read(lines))
    if "max_displacement" not in found:
        hint = "ccx wrote no displacements: request them in the step, by *NODE FILE or *NODE PRINT and a line with U"
        raise ActionError(f"{hint}\n{messages(output, 'WARNING')}".strip())
    return found


_INSTEAD = "Instead of the material's."
_DECK = "An input deck to solve instead of a beam. It must request U by *NODE FILE or *NODE PRINT."
_DISPLACEMENT = "Largest displacement at the end: of the beam's axis, or of a deck's nodes in its unit."


class CalculixBeam(Connector):
    """The service with the actions ``solve`` and ``cancel``."""

    state = attribute("string", default="idle", enum=("idle", "running"), description="The worker's activity.")
    progress = attribute("integer", unit="%", minimum=0, maximum=100, default=0, description="Of the newest solution.")
    max_displacement = attribute("number", unit="mm", description="Largest displacement of the newest solution.")
    solve_seconds = attribute("number", unit="s", description="Duration of the solution.")
    solved = attribute("integer", minimum=0, default=0, description="Models solved since the worker started.")

    def start(self) -> None:
        """Check that ccx is installed."""
        if shutil.which("ccx") is None:
            raise FileNotFoundError("the program ccx is not installed (Debian's package calculix-ccx)")

    @action(
        description="Solve a cantilever beam that carries a force at its free end, or any CalculiX deck.",
        timeout_seconds=300,
        idempotent=True,
        parameters=[
            parameter("length", "number", unit="mm", minimum=1, maximum=1e5, default=1000),
            parameter("width", "number", unit="mm", minimum=0.1, maximum=1e5, default=50, description="Along y."),
            parameter("height", "number", unit="mm", minimum=0.1, maximum=1e5, default=50, description="Along z."),
            parameter("load", "number", unit="N", minimum=0.001, maximum=1e9, default=1000, description="Along -z."),
            parameter("elements", "integer", minimum=1, maximum=1000, default=20, description="Along the length."),
            parameter("material", "string", enum=MATERIALS, default="steel"),
            parameter("young_modulus", "number", unit="MPa", minimum=1, maximum=1e7, description=_INSTEAD),
            parameter("poisson_ratio", "number", minimum=0, maximum=0.49, description=_INSTEAD),
            parameter("deck", "string", max_length=1_048_576, description=_DECK),
        ],
        result=[
            parameter("max_displacement", "number", unit="mm", required=True, description=_DISPLACEMENT),
            parameter("theory", "number", unit="mm", description="Of beams: Euler and Bernoulli's F L^3 / (3 E I)."),
            parameter("error_percent", "number", unit="%", description="Of beams: error of max_displacement."),
            parameter("volume", "number", unit="mm^3", description="Of beams."),
            parameter("height_to_width", "number", description="Of beams: height divided by width."),
            parameter("max_stress", "number", unit="MPa", description="Largest von Mises stress, if S was requested."),
            parameter("nodes", "integer", description="Number of nodes of the mesh."),
            parameter("elements", "integer", description="Number of elements of the mesh."),
            parameter("solve_seconds", "number", unit="s", required=True, description="Duration of the run of ccx."),
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
        """Solve a beam or a deck (see the description of the action)."""
        if deck is not None:
            return self._run(context, deck)
        side = min(width, height)
        if length > MAX_SLENDERNESS * side:
            problem = f"is more than {MAX_SLENDERNESS} times the section's smaller side of {side:g} mm"
            raise ParameterError("parameters.length", f"{problem}: solid elements are not accurate for it")
        modulus, ratio = MATERIALS[material]
        modulus = modulus if young_modulus is None else young_modulus
        ratio = ratio if poisson_ratio is None else poisson_ratio
        beam = Cantilever(length, width, height, load, elements, modulus, ratio)
        result = self._run(context, beam.deck())
        sizes = {"volume": length * width * height, "height_to_width": height / width, "theory": beam.deflection()}
        return {**result, **sizes, "error_percent": round(100 * (result["max_displacement"] / sizes["theory"] - 1), 4)}

    @action(
        description="Cancel the solution that is running.",
        concurrent=True,
        result=[parameter("cancelled", "integer", required=True, description="Number of cancelled solutions: 0 or 1.")],
    )
    def cancel(self, context: Context) -> dict[str, int]:
        """Cancel the running solution."""
        running = [other for other in self.invocations if other.action == "solve"]
        for other in running:
            other.cancel()
        return {"cancelled": len(running)}

    def _run(self, context: Context, deck: str) -> dict[str, float]:
        """Solve the deck in the invocation's directory, and update the attributes."""
        data = deck.encode("utf-8", "replace")
        check_deck(data)
        (context.directory / "job.inp").write_bytes(data)
        meter = Meter(deck)

        def follow(line: str) -> None:
            percent = meter.read(line)
            if percent > self.progress:
                self.progress = percent
                context.progress(percent, line.strip())

        self.state, self.progress = "running", 0
        started = time.monotonic()
        try:
            done = context.run(["stdbuf", "-oL", "ccx", "-i", "job"], env={"OMP_NUM_THREADS": "1"}, on_line=follow)
            if done.returncode != 0:
                raise ActionError(failure(done.returncode, done.stdout))
            seconds = round(time.monotonic() - started, 3)
            result = {**read_results(context.directory, done.stdout), "solve_seconds": seconds}
        finally:
            self.state = "idle"
        self.max_displacement, self.solve_seconds = result["max_displacement"], result["solve_seconds"]
        self.progress, self.solved = 100, self.solved + 1
        return result
