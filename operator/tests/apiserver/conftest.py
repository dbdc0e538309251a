# SPDX-License-Identifier: Apache-2.0
"""Fixtures: one installation of the aggregated API with one pool of one worker, for all tests in this folder."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from simyard_dev.broker import Broker
from simyard_dev.controlplane import ControlPlane

sys.path.insert(0, str(Path(__file__).parent))

from apiserver_stack import Client, Running, Stack, client_of, unique


@pytest.fixture(scope="session")
def stack(simyard_directory: Path, broker: Broker) -> Iterator[Stack]:
    # Not the run's shared control plane, because an operator under test there would handle these tests' objects.
    control_plane = ControlPlane(simyard_directory / "apiserver" / "controlplane")
    control_plane.start()
    stack = Stack(simyard_directory / "apiserver", control_plane, broker)
    stack.up()
    yield stack
    stack.process.stop(grace_seconds=10)
    stack.files.stop(0)


@pytest.fixture(scope="session")
def running(stack: Stack) -> Iterator[Running]:
    namespace = unique("apiserver")
    stack.make_service(namespace)
    stack.make_pool(namespace, "pool")
    worker = stack.make_worker(namespace, "pool-0", "pool")
    yield Running(namespace, "pool", worker)
    worker.process.kill()


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    """Yield a client that connects to the apiserver like kube-apiserver."""
    async with client_of(stack.ports["apiserver"], stack.authority.files.certificate, stack.front_proxy) as client:
        yield client
