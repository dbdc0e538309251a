"""One installation for the tests of this folder in each process of the test run."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simyard_dev.broker import open_broker
from simyard_dev.controlplane import ControlPlane

sys.path.insert(0, str(Path(__file__).parent))

from operator_stack import Operator, Scene, Stack, scene


@pytest.fixture(scope="session")
def stack(simyard_directory: Path) -> Iterator[Stack]:
    # Not the run's shared control plane and broker: these tests kill operators and brokers.
    directory = simyard_directory / f"operator-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    control_plane, broker = ControlPlane(directory / "controlplane"), open_broker(directory / "broker")
    control_plane.start()
    broker.start()
    stack = Stack(directory, control_plane, broker)
    stack.up()
    os.environ["SIMYARD_EMULATED_DIR"] = str(stack.emulated)
    yield stack
    stack.down()


@pytest.fixture
def operator(stack: Stack) -> Operator:
    """The operator, leading; started again when the test before has ended it."""
    operator = stack.operator()
    operator.start()
    return operator


@pytest.fixture
def world(stack: Stack, operator: Operator) -> Iterator[Scene]:
    with scene(stack) as made:
        yield made
