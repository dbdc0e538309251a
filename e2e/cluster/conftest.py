# SPDX-License-Identifier: Apache-2.0
"""Provide the cluster of the end-to-end tests; the first test that asks for it makes and installs it.

With ``E2E_AS_IT_IS=1`` the tests use the present installation.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

import artifacts
import deploy
import environment
import pytest
import report as figures
from beams import Beams, have_beams
from cluster import Cluster

ORDER = ("install", "workers", "cli", "occi", "frontends", "idle", "", "upgrade", "uninstall")
"""Order of the test files; the empty name stands for all files that are not listed."""
SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files, and give each test the time that a cluster needs."""
    folder = Path(__file__).parent
    own = [item for item in items if item.path.parent == folder]
    for item in own:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SECONDS, func_only=True))
    places = [index for index, item in enumerate(items) if item.path.parent == folder]
    for place, item in zip(places, sorted(own, key=_place), strict=True):
        items[place] = item


def _place(item: pytest.Item) -> tuple[int, str]:
    name = item.path.stem.removeprefix("test_")
    return ORDER.index(name if name in ORDER else ""), name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Save the state of the cluster when a test fails."""
    result = yield
    if result.failed and item.path.parent == Path(__file__).parent:
        artifacts.collect(item.name)
    return result


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Provide the cluster with the chart installed and Available, a site of pods, and its variables in this process."""
    if os.environ.get("E2E_AS_IT_IS") != "1":
        environment.up()
        deploy.deploy()
    os.environ.update(environment.variables())
    cluster = deploy.installed()
    deploy.wait_until_available(cluster)
    deploy.have_site(cluster)
    return cluster


@pytest.fixture(scope="session")
def report() -> ModuleType:
    """Return the function for figures: ``report.add(section, name, value, unit)``."""
    return figures


@pytest.fixture(scope="session")
def beams(cluster: Cluster) -> Beams:
    """Provide the CalculiX service with two frontends, and an Available pool of three workers."""
    return have_beams(cluster)
