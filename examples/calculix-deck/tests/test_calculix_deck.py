# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from simyard_adapter.declarations import InvalidValuesError
from simyard_adapter.errors import ActionError

HERE = Path(__file__).resolve().parent.parent
DECK = (HERE.parent / "calculix-beam" / "deck.inp").read_text()


@pytest.fixture
async def worker(start_worker: Callable[[Path], Awaitable[Any]]) -> Any:
    return await start_worker(HERE / "service.yaml")


async def test_deck_gives_the_displacement_of_the_first_printed_node(worker: Any) -> None:
    result = await worker.call("solve", deck=DECK)
    assert result["node"] == 1
    assert result["ux"] == pytest.approx(0.093651, rel=1e-3)  # Lame; see the deck
    assert (result["uy"], result["uz"]) == (0, 0)
    assert result["solve_seconds"] > 0


async def test_results_are_those_of_the_last_step(worker: Any) -> None:
    once = await worker.call("solve", deck=DECK)
    step = DECK[DECK.index("*STEP") :]
    twice = await worker.call("solve", deck=DECK + step.replace("P4, 100", "P4, 200"))
    assert twice["ux"] == pytest.approx(2 * once["ux"], rel=1e-5)


async def test_broken_deck_gives_the_words_of_ccx(worker: Any) -> None:
    with pytest.raises(
        ActionError, match=r"^\*ERROR reading \*ELASTIC: Poisson\s+coefficient should be less than 0.5$"
    ):
        await worker.call("solve", deck=DECK.replace("210000, 0.3", "210000, 0.5"))


async def test_deck_that_prints_nothing_fails(worker: Any) -> None:
    with pytest.raises(ActionError, match=r"^result node: job\.dat has no match for the pattern "):
        await worker.call("solve", deck=DECK.replace("*NODE PRINT, NSET=BORE\nU\n", ""))


@pytest.mark.parametrize("card", ["*INCLUDE, INPUT=/etc/hosts", "*include,i n p u t = x", "*VIEWFACTOR, OUTPUT=/x"])
async def test_deck_that_names_a_file_is_refused(worker: Any, card: str) -> None:
    with pytest.raises(InvalidValuesError, match=r"parameters\.deck: .* does not match the pattern"):
        await worker.call("solve", deck=f"{card}\n{DECK}")


async def test_attribute_is_read_from_a_command(worker: Any) -> None:
    assert worker.attributes["package"].startswith("2.")


def make_mesh(path: Path, layers: int) -> Path:
    subprocess.run([sys.executable, HERE / "make_spring.py", path, str(layers)], check=True)
    return path


async def test_mesh_of_a_file_gives_files_with_the_displacement_of_the_closed_form(worker: Any, tmp_path: Path) -> None:
    result = await worker.call("solve_mesh", mesh=make_mesh(tmp_path / "spring.inp", 400), force=-0.4)
    rows = [line.split() for line in result["table"].read_text().splitlines()]
    shifts = [float(row[3]) for row in rows if len(row) == 4 and row[0].isdigit()]
    assert len(shifts) == 25
    # Castigliano for a force F at the end of a coil of n turns with the radius R, fixed at the other end:
    # F R^3 2 pi n (3 / (2 G J) + 1 / (2 E I)), a square wire with the side b: J = 0.1406 b^4, I = b^4 / 12
    force, radius, turns, side, young = 25 * -0.4, 10.0, 4, 2.0, 210_000.0
    twist, bend = young / 2.6 * 0.1406 * side**4, young * side**4 / 12
    expected = force * radius**3 * 2 * math.pi * turns * (1.5 / twist + 0.5 / bend)
    assert sum(shifts) / len(shifts) == pytest.approx(expected, rel=0.05)
    assert result["field"].stat().st_size > 100_000


@pytest.mark.parametrize("card", ["*INCLUDE, INPUT=/etc/hosts", " *node, nset=all, input=/etc/hosts"])
async def test_mesh_that_names_a_file_is_refused(worker: Any, tmp_path: Path, card: str) -> None:
    mesh = make_mesh(tmp_path / "spring.inp", 3)
    mesh.write_text(f"{card}\n{mesh.read_text()}")
    with pytest.raises(ActionError, match="names another file"):
        await worker.call("solve_mesh", mesh=mesh)
