"""A pytest plugin: one real control plane and one real broker for a test run, shared by its xdist workers.

They start when a test first asks for them, and end with the run, even if it is killed.
"""

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simyard_dev import watchdog
from simyard_dev.broker import Broker, open_broker
from simyard_dev.controlplane import ControlPlane
from simyard_dev.processes import kill_all

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

WORKER_INPUT = "simyard_directory"


class _Run:
    """What one test run keeps on disk, and the watchdog that ends its processes if the run cannot."""

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
    """Add the options of this plugin."""
    parser.getgroup("simyard").addoption(
        "--simyard-keep",
        type=Path,
        metavar="DIR",
        help="keep state and logs of the control plane and the broker in a new directory below DIR",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: "WorkerController") -> None:
    """Tell an xdist worker which directory the run has."""
    node.workerinput[WORKER_INPUT] = str(_run(node.config).directory)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what the run has started, when its workers have ended."""
    run = config.stash.get(_RUN, None)
    if run:
        run.end()


@pytest.fixture(scope="session")
def simyard_directory(request: pytest.FixtureRequest) -> Path:
    """Give the run's directory: what has a pid file in or below it ends with the run."""
    worker_input = getattr(request.config, "workerinput", None)
    return Path(worker_input[WORKER_INPUT]) if worker_input else _run(request.config).directory


@pytest.fixture(scope="session")
def control_plane(simyard_directory: Path) -> ControlPlane:
    """Give the run's control plane, ready; tests share it and keep to namespaces of their own."""
    control_plane = ControlPlane(simyard_directory / "controlplane")
    control_plane.start()
    return control_plane


@pytest.fixture(scope="session")
def broker(simyard_directory: Path) -> Broker:
    """Give the run's broker, ready; tests share it and keep to queues or virtual hosts of their own."""
    broker = open_broker(simyard_directory / "broker")
    broker.start()
    return broker


def _run(config: pytest.Config) -> _Run:
    if _RUN not in config.stash:
        config.stash[_RUN] = _Run(config.getoption("--simyard-keep"))
    return config.stash[_RUN]
