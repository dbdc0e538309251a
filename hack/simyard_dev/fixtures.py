# SPDX-License-Identifier: Apache-2.0
"""Provide one real control plane and one real broker to a test run, as a pytest plugin.

The xdist workers of the run share both servers. A server starts when the first test uses it. Both end with the run,
even if the run is killed.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from simyard_dev import quickstart, watchdog
from simyard_dev.broker import Broker
from simyard_dev.controlplane import ControlPlane
from simyard_dev.environment import Environment
from simyard_dev.local_broker import LocalBroker, open_broker
from simyard_dev.platform import Platform
from simyard_dev.processes import kill_all

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

WORKER_INPUT = "simyard_directory"
_SLOW_FIXTURES = frozenset({"simyard_directory", "solver"})
_EXAMPLES = 50
_FAST_EXAMPLES = 25
_STATISTICS_SECONDS = 1
"""Interval of the broker's statistics in seconds. Some waits of the operator last for one interval."""
_GARBAGE_PERCENT = "200"
"""Value of GOGC for Go programs: twice as much garbage as by default, for a tenth less CPU of kube-apiserver."""


class _Run:
    """The directory of a test run, and the watchdog that kills its processes if the run is killed."""

    def __init__(self, keep_below: Path | None) -> None:
        if keep_below:
            keep_below.mkdir(parents=True, exist_ok=True)
        self.keep = keep_below is not None
        self.directory = Path(tempfile.mkdtemp(prefix="simyard-test-", dir=keep_below)).absolute()
        self._watchdog = watchdog.start(self.directory)

    def end(self) -> None:
        kill_all(self.directory)
        self._watchdog.kill()
        self._watchdog.wait()
        if not self.keep:
            shutil.rmtree(self.directory)


_RUN = pytest.StashKey[_Run]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add this plugin's options."""
    parser.getgroup("simyard").addoption(
        "--simyard-keep",
        type=Path,
        metavar="DIR",
        help="keep state and logs of the control plane and the broker in a new directory below DIR",
    )
    parser.getgroup("simyard").addoption(
        "--fast", action="store_true", help="deselect slow tests, and try fewer examples of each property"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers, and set the number of examples that property tests try."""
    config.addinivalue_line("markers", "slow: starts processes, or waits in real time")
    config.addinivalue_line("markers", "long: takes long, so it starts before most other tests")
    config.addinivalue_line("markers", "soak: a benchmark or a soak test of a minute or more: `make test-soak`")
    sys.dont_write_bytecode = False  # otherwise each of hundreds of Python processes compiles its modules for seconds
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    os.environ.setdefault("GOGC", _GARBAGE_PERCENT)
    hypothesis.settings.register_profile("fast", max_examples=_FAST_EXAMPLES, deadline=None)
    hypothesis.settings.register_profile("all", max_examples=_EXAMPLES, deadline=None)
    hypothesis.settings.load_profile("fast" if config.getoption("--fast") else "all")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start long tests first, so that all workers end at about the same time; deselect slow tests in a fast run."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    if not config.getoption("--fast"):
        return
    config.hook.pytest_deselected(items=[item for item in items if _is_slow(item)])
    items[:] = [item for item in items if not _is_slow(item)]


def _is_slow(item: pytest.Item) -> bool:
    """Return whether the test is marked as slow, or uses a fixture that starts processes or installs a program.

    Tests start their processes below the directory of the run, so a test is slow if it uses the fixture of this
    directory.
    """
    fixtures = getattr(item, "fixturenames", ())
    return not _SLOW_FIXTURES.isdisjoint(fixtures) or item.get_closest_marker("slow") is not None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: "WorkerController") -> None:
    """Send the directory of the run to an xdist worker."""
    node.workerinput[WORKER_INPUT] = str(_run(node.config).directory)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the processes of the run after its workers have ended."""
    run = config.stash.get(_RUN, None)
    if run:
        run.end()


@pytest.fixture(scope="session")
def simyard_directory(request: pytest.FixtureRequest) -> Path:
    """Return the directory of the run. The processes with a pid file in or below it are killed when the run ends."""
    worker_input = getattr(request.config, "workerinput", None)
    return Path(worker_input[WORKER_INPUT]) if worker_input else _run(request.config).directory


@pytest.fixture(scope="session")
def control_plane(simyard_directory: Path) -> ControlPlane:
    """Return the ready control plane of the run. Tests share it, and each test uses separate namespaces."""
    control_plane = ControlPlane(simyard_directory / "controlplane")
    control_plane.start()
    return control_plane


@pytest.fixture(scope="session")
def broker(simyard_directory: Path) -> Broker:
    """Return the ready broker of the run. Tests share it, and each test uses separate queues or virtual hosts."""
    broker = open_broker(simyard_directory / "broker", statistics_seconds=_STATISTICS_SECONDS)
    broker.start()
    return broker


@pytest.fixture(scope="session")
def mortal_broker(simyard_directory: Path) -> LocalBroker:
    """Return a ready broker that tests may kill, slow down or fill.

    Tests that use it have the xdist group ``mortal-broker``, so that they run one after the other.
    """
    broker = LocalBroker(simyard_directory / "mortal-broker", statistics_seconds=_STATISTICS_SECONDS)
    broker.start()
    return broker


@pytest.fixture(scope="session")
def quickstart_environment(simyard_directory: Path) -> Iterator[Environment]:
    """Provide the system that `make quickstart` leaves behind, with two OCCI frontends.

    Tests that use it have the xdist group ``quickstart``.
    """
    environment = Environment(simyard_directory / "quickstart", statistics_seconds=_STATISTICS_SECONDS)
    try:
        quickstart.run(environment, occi=True)
        yield environment
    finally:
        Platform(environment).down()
        environment.control_plane.stop(0)
        environment.broker.stop(0)


def _run(config: pytest.Config) -> _Run:
    if _RUN not in config.stash:
        config.stash[_RUN] = _Run(config.getoption("--simyard-keep"))
    return config.stash[_RUN]
