# SPDX-License-Identifier: Apache-2.0
"""The drain of a worker whose machine must leave its host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from scripted_site import owner, until

from simyard.api.base import Json, Metadata
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry
from simyard.fleet.sites.evacuations import Evacuations
from simyard_sites.base import Machine, MachineState
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import NotFoundError


@dataclass
class Client:
    """An API server that records patches of Workers, in order."""

    registry: Registry = field(init=False)
    patches: list[Json] = field(default_factory=list)
    gone: bool = False

    async def patch(self, _: Any, name: str, body: Json, namespace: str) -> Json:
        self.patches.append(body)
        if self.gone:
            raise NotFoundError(404, "NotFound", "it is gone")
        return worker_json(name, drain=True, version=2)


@dataclass
class Notes:
    told: list[str] = field(default_factory=list)

    def emit(self, _: Any, regarding: Metadata, reason: str, note: str) -> None:
        self.told.append(f"{regarding.name}: {reason}: {note}")


def worker_json(name: str, *, drain: bool = False, version: int = 1) -> Json:
    reference = {"apiVersion": "v1", "kind": "WorkerPool", "name": "pool", "uid": "pool-uid", "controller": True}
    metadata = {"name": name, "namespace": "ns", "uid": f"{name}-uid", "resourceVersion": str(version)}
    spec = {"serviceRef": {"name": "service"}, "site": "site", "drain": drain}
    return {"metadata": {**metadata, "ownerReferences": [reference]}, "spec": spec}


def machine(name: str) -> Machine:
    return Machine(name, name, owner(name, f"{name}-uid"), MachineState.RUNNING, evacuate="node a is being drained")


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
async def evacuations(client: Client, notes: Notes) -> AsyncIterator[Evacuations]:
    client.registry = Registry(cast(KubeClient, client))
    pool = {"metadata": {"name": "pool", "namespace": "ns", "uid": "pool-uid", "resourceVersion": "1"}}
    client.registry.pools.learn({**pool, "spec": {"serviceRef": {"name": "service"}}})
    made = Evacuations(client.registry, cast(Recorder, notes))
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.wait([running])


async def test_it_drains_once_and_its_pool_tells_why(evacuations: Evacuations, client: Client, notes: Notes) -> None:
    for name in ("pool-0", "pool-1"):
        client.registry.workers.learn(worker_json(name))
    evacuations.evacuate(machine("pool-0"))
    await until(lambda: notes.told)
    evacuations.evacuate(machine("pool-0"))
    evacuations.evacuate(machine("nobody"))
    evacuations.evacuate(machine("pool-1"))
    await until(lambda: len(notes.told) == 2)
    assert client.patches == [
        {"metadata": {"uid": f"{name}-uid"}, "spec": {"drain": True}} for name in ("pool-0", "pool-1")
    ]
    assert notes.told[0] == "pool: WorkerEvacuated: a worker drains and is replaced: node a is being drained"


async def test_a_worker_that_is_gone_meanwhile_is_let_go(
    evacuations: Evacuations, client: Client, notes: Notes
) -> None:
    client.gone = True
    client.registry.workers.learn(worker_json("pool-0"))
    evacuations.evacuate(machine("pool-0"))
    await until(lambda: client.patches)
    client.gone = False
    client.registry.workers.learn(worker_json("pool-1"))
    evacuations.evacuate(machine("pool-1"))
    await until(lambda: notes.told)
    assert len(client.patches) == 2
