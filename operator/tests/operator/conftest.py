# SPDX-License-Identifier: Apache-2.0
"""An installation for the tests of this folder whose operator is a process."""

import itertools
import os
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kube_api import Api
from simyard.files.access import StoreAccess
from simyard.files.store import ObjectStore
from simyard.manifests import install
from simyard.messaging.access import BrokerAccess
from simyard_dev.broker import Broker
from simyard_dev.controlplane import ControlPlane
from simyard_dev.file_store import FileStore
from simyard_dev.local_broker import open_broker

sys.path.insert(0, str(Path(__file__).parent))

from fleet_world import World, living
from memory_cloud import MemoryCloud
from operator_stack import Operator, Scene, Stack, scene
from study_world import StudyWorld


@pytest.fixture(scope="session")
def stack(simyard_directory: Path) -> Iterator[Stack]:
    # Not the run's shared control plane and broker: these tests kill operators and brokers.
    directory = simyard_directory / "operator"
    control_plane = ControlPlane(directory / "controlplane")
    broker = open_broker(directory / "broker", statistics_seconds=1)
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


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """The run's control plane with Simyard's kinds in it; no operator of its own works there."""
    Api(control_plane.kubeconfig).install(install.build_objects())
    return control_plane


@pytest.fixture
async def make_world(
    installed: ControlPlane, broker: Broker, tmp_path: Path
) -> AsyncIterator[Callable[[], Awaitable[World]]]:
    """Makes worlds for operators that live in the test's process."""
    numbers = itertools.count()
    access = BrokerAccess.from_url(broker.url, broker.management_url or "")
    async with AsyncExitStack() as worlds:

        async def make() -> World:
            cloud = MemoryCloud(tmp_path / f"cloud-{next(numbers)}")
            return await worlds.enter_async_context(
                World(installed.kubeconfig, access, cloud, broker.statistics_seconds)
            )

        yield make


@pytest.fixture
def file_store(simyard_directory: Path) -> Iterator[FileStore]:
    server = FileStore(simyard_directory / f"studies-{secrets.token_hex(4)}")
    server.start()
    yield server
    server.stop(0)


@pytest.fixture
async def quiet_studies(make_world: Callable[[], Awaitable[World]], file_store: FileStore) -> AsyncIterator[StudyWorld]:
    """A world without an operator."""
    access = StoreAccess.from_directory(file_store.access)
    async with ObjectStore(access) as store:
        yield StudyWorld(await make_world(), access, store)


@pytest.fixture
async def studies(quiet_studies: StudyWorld) -> AsyncIterator[StudyWorld]:
    """A world with an operator and a pool of two workers."""
    async with living(quiet_studies.world, files=quiet_studies.access) as operator:
        await quiet_studies.world.ready(operator)
        await quiet_studies.start()
        yield quiet_studies
