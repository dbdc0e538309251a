"""The rotation of passwords: one worker that cannot be told holds up nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from scripted_site import ScriptedClient, until

from simyard.fleet.broker import Broker
from simyard.fleet.orders import Orders
from simyard.fleet.registry import Registry, queue_of
from simyard.fleet.rotation import Rotation
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.errors import BrokerRefusedError
from simyard_adapter.bootstrap import BrokerAddress
from simyard_adapter.wire import identity_of, pool_user
from simyard_sites.kubernetes.client import KubeClient

POOLS = ("blocked", "other")


@dataclass
class ScriptedBroker:
    """The users of both pools have a former login."""

    registry: Registry
    settled: bool = True
    swept: Callable[[], None] = lambda: None

    @property
    def logins(self) -> ScriptedBroker:
        return self

    async def found(self) -> list[str]:
        return [pool_user(pool) for pool in POOLS]

    def newest(self, user: str) -> str:
        return f"{user}~2.0"

    def former(self, found: list[str]) -> dict[str, set[str]]:
        return {identity_of(login): {login} for login in found}

    async def ensure_login(self, user: str, workers: Any) -> None: ...

    def address_of(self, login: str) -> BrokerAddress:
        return BrokerAddress("host", 5672, "/", login, "password")

    async def consumer_logins(self, prefix: str) -> dict[str, frozenset[str]]:
        """Every worker consumes under the former login of its pool."""
        return {queue_of(worker): frozenset({queue_of(worker).split(".")[2]}) for worker in self.registry.workers}


@dataclass
class ScriptedOrders:
    told: list[str] = field(default_factory=list)

    async def give(self, uid: str, kind: Any, body: Any, *, lasting: bool) -> None:
        if uid == "blocked-0":
            raise BrokerRefusedError("the queue is full")
        self.told.append(uid)


async def test_a_worker_whose_queue_is_full_holds_up_no_other_worker_and_no_other_pool() -> None:
    registry, orders = Registry(cast(KubeClient, ScriptedClient())), ScriptedOrders()
    for pool in POOLS:
        owner = {"apiVersion": "simyard.dev/v1alpha1", "kind": "WorkerPool", "name": pool, "uid": pool}
        for number in range(2):
            metadata = {
                "name": f"{pool}-{number}",
                "namespace": "ns",
                "uid": f"{pool}-{number}",
                "resourceVersion": "1",
            }
            owned = metadata | {"ownerReferences": [owner | {"controller": True}]}
            spec = {"serviceRef": {"name": "service"}, "site": "site"}
            registry.workers.learn({"metadata": owned, "spec": spec})
    broker = ScriptedBroker(registry)
    rotation = Rotation(registry, cast(Broker, broker), cast(BrokerAdmin, broker), cast(Orders, orders))
    running = asyncio.create_task(rotation.run())
    broker.swept()
    await until(lambda: sorted(orders.told) == ["blocked-1", "other-0", "other-1"])
    running.cancel()
    await asyncio.wait([running])
