# SPDX-License-Identifier: Apache-2.0
"""The rotation of passwords: a worker that cannot be told holds up no other worker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from scripted_site import ScriptedClient, until

from simyard.fleet.broker.orders import Orders
from simyard.fleet.broker.provisioning import Broker
from simyard.fleet.broker.rotation import Rotation
from simyard.fleet.registry import Registry, get_queue
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.errors import BrokerRefusedError
from simyard_adapter.bootstrap import BrokerAddress
from simyard_adapter.wire import name_pool_user, parse_identity
from simyard_sites.kubernetes.client import KubeClient

POOLS = ("blocked", "other")


@dataclass
class ScriptedBroker:
    """A broker on which the users of both pools have a former login."""

    registry: Registry
    is_swept: bool = True

    @property
    def logins(self) -> ScriptedBroker:
        return self

    async def list_found(self) -> list[str]:
        return [name_pool_user(pool) for pool in POOLS]

    def get_newest(self, user: str) -> str:
        return f"{user}~2.0"

    def find_former(self, found: list[str]) -> dict[str, set[str]]:
        return {parse_identity(login): {login} for login in found}

    async def ensure_login(self, user: str, workers: Any) -> None: ...

    def build_login_address(self, login: str) -> BrokerAddress:
        return BrokerAddress("host", 5672, "/", login, "password")

    async def list_consumer_logins(self, prefix: str) -> dict[str, frozenset[str]]:
        """Return the former login of its pool for every worker."""
        return {get_queue(worker): frozenset({get_queue(worker).split(".")[2]}) for worker in self.registry.workers}


@dataclass
class ScriptedOrders:
    told: list[str] = field(default_factory=list)

    async def send(self, uid: str, kind: Any, body: Any, *, lasting: bool) -> None:
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
    rotation.wake()
    await until(lambda: sorted(orders.told) == ["blocked-1", "other-0", "other-1"])
    running.cancel()
    await asyncio.wait([running])
