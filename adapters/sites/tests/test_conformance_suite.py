# SPDX-License-Identifier: Apache-2.0
"""The suite finds what is wrong with a site, and is run from anywhere."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import defects_of_calls  # noqa: F401 - notes what it has
import pytest
from defects import CLEARED, FOUND_BY, LEFT, TOY, toy_cloud, toy_site, toy_world
from defects_of_machines import Keeps

from simyard_sites import base
from simyard_sites.base import SiteError
from simyard_sites.conformance import world as world_module
from simyard_sites.conformance.suite import Conformance
from simyard_sites.conformance.trial import Trial
from simyard_sites.conformance.world import World

DOCUMENT = TOY.parents[1] / "docs" / "sites" / "writing-a-site.md"
ARGUMENTS = {"reading_and_acting": ["probe"], "a_neighbour": ["of another CloudSite"]}


@pytest.mark.parametrize(("defect", "case"), FOUND_BY)
async def test_what_is_wrong_with_a_site_is_found(
    defect: type[Any], case: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = toy_world.ToyWorld()
    world.deadline_seconds = 0.3
    if issubclass(defect, toy_cloud.Cloud):
        world.cloud = toy_site.CLOUDS["here"] = defect()
    else:
        world.make_site = defect
    with pytest.raises((AssertionError, SiteError, TimeoutError, pytest.fail.Exception)):
        await carry_out(case, world, caplog)


@pytest.mark.parametrize("case", sorted({case for _, case in FOUND_BY}))
async def test_nothing_is_found_where_nothing_is_wrong(case: str, caplog: pytest.LogCaptureFixture) -> None:
    await carry_out(case, toy_world.ToyWorld(), caplog)


async def test_nothing_is_found_where_a_site_keeps_things_and_removes_them(caplog: pytest.LogCaptureFixture) -> None:
    world = toy_world.ToyWorld()
    world.make_site = Keeps
    await carry_out(CLEARED, world, caplog)
    assert world.cloud.files


async def carry_out(case: str, world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Run a test of the suite."""
    caplog.set_level(logging.DEBUG)
    LEFT.clear()
    trial = Trial(world)
    arguments = next((given for part, given in ARGUMENTS.items() if part in case), [])
    await getattr(Conformance(), f"test_{case}")(trial, *arguments)
    await trial.finish(caplog.records)


def test_the_document_says_of_each_error_what_is_true() -> None:
    rows = dict(re.findall(r"^\| `(\w+Error)` \| (\w+ \| \w+) \|", DOCUMENT.read_text(), re.MULTILINE))
    kinds = [kind for kind in vars(base).values() if isinstance(kind, type) and issubclass(kind, SiteError)]
    assert rows == {
        kind.__name__: f"{kind.scope} | {'yes' if kind.retryable else 'no'}" for kind in kinds if kind is not SiteError
    }


def test_the_document_says_which_switches_there_are() -> None:
    table = DOCUMENT.read_text().partition("| switch |")[2].partition("\n\n")[0]
    lacking = re.findall(r"_lacks\(\"(\w+)\"\)", Path(str(world_module.__file__)).read_text())
    assert set(re.findall(r"`(\w+)`", table)) == set(lacking)


def test_the_manifest_of_the_document_is_that_of_the_example() -> None:
    assert (TOY / "site.yaml").read_text() in DOCUMENT.read_text()


def test_the_world_of_the_document_runs_anywhere_and_lacks_switches(tmp_path: Path) -> None:
    [world] = re.findall(r"^```python\n(.*?class SmallWorld.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "small_world.py").write_text(world)
    [options] = re.findall(r"^pytest (.*)$", DOCUMENT.read_text(), re.MULTILINE)
    command = [sys.executable, "-m", "pytest", "-k", "probe_says or lost_answer_leaves or throttled_create_makes"]
    environment = {**os.environ, "PYTHONPATH": str(TOY)}
    ran = run([*command, *options.split()], tmp_path, environment)
    assert ran.returncode == 0, ran.stdout
    assert "2 passed, 1 skipped" in ran.stdout
    assert "this world does not have the switch throttle" in ran.stdout
    ran = run([*command, "--pyargs", "simyard_sites.conformance"], tmp_path, environment)
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--site is missing" in ran.stderr


def run(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
