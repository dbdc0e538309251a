# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simyard_adapter.declarations import InvalidValuesError
from simyard_adapter.errors import ActionCancelledError, ActionError, ParameterError
from simyard_adapter.python_backend import load_class

HERE = Path(__file__).resolve().parent.parent
DECK = (HERE / "deck.inp").read_text()
SOLVE = json.loads((HERE / "solve.json").read_text())["parameters"]
EXPECTED = json.loads((HERE / "expected.json").read_text())

load_class("calculix_beam:CalculixBeam", HERE)
beams = sys.modules["calculix_beam"]


@pytest.fixture
async def worker(start_worker: Callable[[Path], Awaitable[Any]]) -> Any:
    return await start_worker(HERE / "service.yaml")


@pytest.mark.parametrize(
    "beam",
    [
        {},
        {"elements": 1},
        {"length": 500, "width": 50, "height": 50},
        {"width": 100, "height": 10, "material": "titanium"},
        {"width": 10, "height": 50, "material": "aluminium"},
        {"length": 100, "width": 3, "height": 2, "load": 0.5, "elements": 7, "material": "cast_iron"},
        {"length": 20_000, "width": 300, "height": 600, "load": 25_000, "elements": 60},
        {"young_modulus": 3200, "poisson_ratio": 0.49},
        {"poisson_ratio": 0},
        {"width": 1, "height": 1, "load": 0.001, "elements": 100},
    ],
    ids=str,
)
async def test_slender_beam_is_within_one_percent_of_euler_bernoulli(worker: Any, beam: dict[str, Any]) -> None:
    values = {**SOLVE, **beam}
    modulus = values.get("young_modulus") or beams.MATERIALS[values["material"]][0]
    theory = 4 * values["load"] * values["length"] ** 3 / (modulus * values["width"] * values["height"] ** 3)
    result = await worker.call("solve", **values)
    assert result["theory"] == pytest.approx(theory)
    assert result["max_displacement"] == pytest.approx(theory, rel=0.01)
    assert result["error_percent"] == pytest.approx(100 * (result["max_displacement"] / theory - 1), abs=1e-4)
    bending_stress = 6 * values["load"] * values["length"] / (values["width"] * values["height"] ** 2)
    assert result["max_stress"] == pytest.approx(bending_stress, rel=0.02)


@pytest.mark.parametrize("row", re.findall(r"^\| \d.*", (HERE / "README.md").read_text(), re.MULTILINE))
async def test_table_of_the_readme_is_true(worker: Any, row: str) -> None:
    length, width, height, load, material, elements, theory, displacement, error, _ = row.strip("| ").split(" | ")
    measures = {"length": length, "width": width, "height": height, "load": load, "elements": elements}
    result = await worker.call("solve", material=material, **{name: float(text) for name, text in measures.items()})
    assert result["theory"] == pytest.approx(float(theory), rel=1e-5)
    assert result["max_displacement"] == pytest.approx(float(displacement), rel=1e-5)
    assert result["error_percent"] == pytest.approx(float(error), abs=2e-3)


async def test_doubled_load_doubles_the_displacement(worker: Any) -> None:
    single = await worker.call("solve", **SOLVE)
    double = await worker.call("solve", **{**SOLVE, "load": 2 * SOLVE["load"]})
    assert double["max_displacement"] == pytest.approx(2 * single["max_displacement"], rel=1e-5)


@pytest.mark.parametrize(("name", "parameters"), [("solve.json", SOLVE), ("deck.inp", {"deck": DECK})])
async def test_files_of_the_example_give_what_it_says(worker: Any, name: str, parameters: dict[str, Any]) -> None:
    result = await worker.call("solve", **parameters)
    assert {key: result[key] for key in EXPECTED[name]} == pytest.approx(EXPECTED[name], rel=1e-4, abs=1e-4)


async def test_deck_agrees_with_lame(worker: Any) -> None:
    result = await worker.call("solve", deck=DECK)
    radial = 100 * 100 / 210_000 * ((100**2 + 200**2) / (200**2 - 100**2) + 0.3)
    axial = 2 * 0.3 * 100 * 100**2 / (210_000 * (200**2 - 100**2)) * 10
    assert result["max_displacement"] == pytest.approx(math.hypot(radial, axial), rel=1e-3)
    assert result["max_stress"] == pytest.approx(700 / 3, rel=5e-3)
    assert "theory" not in result


async def test_deck_of_one_mebibyte_is_solved_and_a_longer_one_refused(worker: Any) -> None:
    deck = DECK + "** padding\n" * 100_000
    result = await worker.call("solve", deck=deck[: 2**20])
    assert result["nodes"] == 43
    with pytest.raises(InvalidValuesError, match=r"^parameters\.deck: has 1048577 characters, at most 1048576"):
        await worker.call("solve", deck=deck[: 2**20 + 1])


async def test_attributes_follow_the_solutions(worker: Any) -> None:
    assert worker.attributes == {"state": "idle", "progress": 0, "solved": 0}
    result = await worker.call("solve", **SOLVE)
    with pytest.raises(ActionError):
        await worker.call("solve", deck="*STEP\n*STATIC\n*END STEP\n")
    await worker.call("solve", deck=DECK)
    after = worker.attributes
    assert (after["state"], after["progress"], after["solved"]) == ("idle", 100, 2)
    assert after["max_displacement"] != result["max_displacement"]
    assert after["solve_seconds"] > 0


async def test_progress_rises_with_the_increments_of_a_step(worker: Any) -> None:
    deck = DECK.replace("*STEP", "*STEP, NLGEOM").replace("*STATIC", "*STATIC, DIRECT\n0.5, 2")
    await worker.call("solve", deck=deck)
    assert worker.progress == sorted(set(worker.progress))
    assert worker.progress[-2:] == [50, 75]


async def test_displacements_printed_for_several_steps_count_at_the_end_only(worker: Any) -> None:
    printing = DECK.replace("*NODE FILE\nU\n*EL FILE\nS\n", "").replace("NSET=BORE\nU", "NSET=ALL\nU")
    unloading = printing[printing.index("*STEP") :].replace("P4, 100", "P4, 10")
    full, last = await worker.call("solve", deck=printing), await worker.call("solve", deck=printing + unloading)
    assert full["max_displacement"] == pytest.approx(EXPECTED["deck.inp"]["max_displacement"], rel=1e-4)
    assert last["max_displacement"] == pytest.approx(full["max_displacement"] / 10, rel=1e-5)
    assert "max_stress" not in full


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("MATERIAL=STEEL", "MATERIAL=BRASS"), r"^\*ERROR reading \*SOLID SECTION: nonexistent material\n"),
        (("210000, 0.3", "210000, 0.5"), r"^\*ERROR reading \*ELASTIC: Poisson coefficient should be less than 0\.5\n"),
        (("TYPE=CAX8R", "TYPE=CAX9"), r"^\*ERROR reading \*ELEMENT: CAX9 is an unknown element type\n"),
        (
            ("1, 4, 6", "1, 2, 3, 5, 7, 8, 10, 12, 13, 15, 17, 4, 6"),
            r"^\*ERROR in splitline: there should not be more than 16",
        ),
        (("*STATIC", "*STATTIC"), r"\*WARNING reading the input file. Card image: \*STATTIC$"),
        (("*NODE FILE\nU\n*EL FILE", "*NODE OUTPUT\nU\n*EL OUTPUT"), "^the results are binary: ask for them by"),
        (("1, P4, 100", "1, P4, nan"), "."),
    ],
    ids=lambda value: value[1].replace("\n", " ") if isinstance(value, tuple) else "",
)
async def test_deck_that_ccx_refuses_fails_in_its_own_words(worker: Any, change: tuple[str, str], says: str) -> None:
    assert change[0] in DECK
    with pytest.raises(ActionError, match=says):
        await worker.call("solve", deck=DECK.replace(*change))
    assert (await worker.call("solve", deck=DECK))["nodes"] == 43


async def test_deck_without_displacements_says_what_to_ask_for(worker: Any) -> None:
    deck = DECK.replace("*NODE FILE\nU\n", "").replace("*NODE PRINT, NSET=BORE\nU\n", "")
    with pytest.raises(ActionError, match=r"by \*NODE FILE or \*NODE PRINT and a line with U"):
        await worker.call("solve", deck=deck)


@pytest.mark.parametrize(
    "card",
    [
        "*INCLUDE, INPUT=/etc/hosts",
        "\t* i n c l u d e,Input = hosts",
        f"**{'x' * 1317}*INCLUDE,INPUT=/etc/hosts",  # ccx reads the rest of so long a line as the next one
        "*SUBMODEL, TYPE=NODE, INPUT=/etc/hosts",
        "*BOUNDARY, FILE=/etc/hosts, STEP=1",
        "*VIEWFACTOR, WRITE, OUTPUT=/etc/hosts",
        "*MATRIX ASSEMBLE, NAME=X, STIFFNESS FILE=/etc/hosts",
        "*SUBSTRUCTURE MATRIX OUTPUT, FILE NAME=/etc/hosts",
    ],
)
async def test_deck_that_names_another_file_is_refused_before_ccx_sees_it(
    worker: Any, card: str, tmp_path: Path
) -> None:
    with pytest.raises(ParameterError, match=r"^parameters\.deck: line 2 ") as caught:
        await worker.call("solve", deck=f"*HEADING\n{card}\n{DECK}")
    assert caught.value.field == "parameters.deck"
    assert not any("job" in name for _, _, names in os.walk(tmp_path) for name in names)


@given(
    st.lists(st.sampled_from(["", " ", "\t", "  "]), min_size=20, max_size=20),
    st.sampled_from(["*INCLUDE,INPUT=job", "*include,input=job", "*Include,Input=job"]),
)
def test_no_blanks_hide_an_include(blanks: list[str], card: str) -> None:
    spaced = "".join(blank + letter for blank, letter in zip(blanks, card, strict=False))
    with pytest.raises(ParameterError):
        beams.check_deck(f"{spaced}\n*STEP\n".encode())


def test_comments_and_dimensions_of_output_are_no_files() -> None:
    beams.check_deck(b"** FILE=x\n * * INPUT=x\r\n*STEP\n*NODE FILE, OUTPUT=2D\nU\n*EL FILE, OUTPUT = 3d\n")


async def test_beam_too_slender_for_solid_elements_is_refused(worker: Any) -> None:
    with pytest.raises(ParameterError, match=r"smaller side of 0\.9 mm") as caught:
        await worker.call("solve", length=1000, width=5, height=0.9)
    assert caught.value.field == "parameters.length"


ENDLESS = DECK.replace("*STEP", "*STEP, NLGEOM, INC=10000000").replace("*STATIC", "*STATIC, DIRECT\n2e-6, 1")


async def test_cancel_ends_ccx(worker: Any, tmp_path: Path) -> None:
    solution = asyncio.create_task(worker.call("solve", deck=ENDLESS))
    await worker.until(lambda attributes: attributes["progress"] > 0)
    assert worker.attributes["state"] == "running"
    assert len(programs_below(tmp_path)) == 1
    assert await worker.call("cancel") == {"cancelled": 1}
    with pytest.raises(ActionCancelledError):
        await solution
    assert programs_below(tmp_path) == []
    assert (worker.attributes["state"], worker.attributes["solved"]) == ("idle", 0)
    assert await worker.call("cancel") == {"cancelled": 0}
    assert (await worker.call("solve", deck=DECK))["nodes"] == 43


async def test_crash_of_ccx_names_the_signal(worker: Any, tmp_path: Path) -> None:
    solution = asyncio.create_task(worker.call("solve", deck=ENDLESS))
    await worker.until(lambda attributes: attributes["progress"] > 0)
    for process in programs_below(tmp_path):
        os.kill(process, signal.SIGSEGV)
    with pytest.raises(ActionError, match=r"^ccx crashed with SIGSEGV$"):
        await solution
    assert worker.attributes["state"] == "idle"


def programs_below(directory: Path) -> list[int]:
    """The processes whose working directory is below that directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(directory):
                found.append(int(process.name))
    return found


def test_frd_keeps_the_last_increment_and_reads_numbers_that_touch() -> None:
    text = (
        "    2C                             2                                     1\n"
        " -4  DISP        4    1\n"
        " -1         1 9.00000E+00 0.00000E+00 0.00000E+00\n"
        " -3\n"
        " -4  DISP        4    1\n"
        " -1         1-3.00000E+00-4.00000E+00-1.00000E-100\n"
        " -1         2 1.00000E-1002.00000E+00 0.00000E+00\n"
        " -3\n"
        " -1         1 7.00000E+00 0.00000E+00 0.00000E+00\n"
    )
    assert beams.read_frd(text.splitlines()) == {"nodes": 2, "max_displacement": 5}


@pytest.mark.parametrize("number", ["         nan", "        -nan", "         inf"])
def test_results_that_are_not_finite_are_refused(number: str) -> None:
    with pytest.raises(ActionError, match="not finite"):
        beams.read_frd([" -4  DISP        4    1", f" -1         1{number} 0.00000E+00 0.00000E+00"])


def test_dat_reads_short_exponents_and_all_sets_of_the_last_time() -> None:
    title = " displacements (vx,vy,vz) for set {} and time  {}"
    lines = [title.format("A", "0.1E+01"), "", "  1  9.0E+00  0.0E+00  0.0E+00", ""]
    lines += [title.format("A", "0.2E+01"), "", "  1  3.0E+00  4.0E+00  1.000000-100", ""]
    lines += [title.format("B", "0.2E+01"), "", "  2  1.0E+00  0.0E+00  0.0E+00", ""]
    lines += [" forces (fx,fy,fz) for set B and time  0.2E+01", "", "  2  8.0E+00  0.0E+00  0.0E+00"]
    assert beams.read_dat(lines) == {"max_displacement": 5}


def test_manifests_refer_to_each_other() -> None:
    service, pool, call, site = (
        yaml.safe_load((HERE / f"{name}.yaml").read_text()) for name in ("service", "pool", "action", "site")
    )
    assert pool["spec"]["serviceRef"]["name"] == service["metadata"]["name"]
    assert pool["spec"]["placement"]["sites"] == [site["metadata"]["name"]]
    assert call["spec"]["target"] == {"kind": "WorkerPool", "name": pool["metadata"]["name"]}
    assert (call["spec"]["action"], call["spec"]["parameters"]) == ("solve", SOLVE)


def test_service_yaml_is_made_from_the_class() -> None:
    command = [sys.executable, str(HERE.parent.parent / "hack" / "manifest.py"), "--check", str(HERE)]
    assert subprocess.run(command, check=False).returncode == 0
