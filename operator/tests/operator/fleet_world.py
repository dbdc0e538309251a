# SPDX-License-Identifier: Apache-2.0
"""A world of its own for operators that live in the test's process: a namespace, a virtual host, a site.

The API server and the broker are real. The site is a :class:`memory_cloud.MemoryCloud`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
from aiormq.abc import DeliveredMessage
from fleet_life import Life, WorldClient
from living_operator import Operator, hear_broker, run_fleet
from memory_cloud import MemoryCloud, MemorySite

from simyard.api import names
from simyard.api.base import Json, find_condition
from simyard.api.names import ConditionType
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.fleet import Fleet, FleetSettings
from simyard.fleet.registry import Registry, get_pool_uid, get_queue
from simyard.fleet.timing import Timing
from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import open_connection
from simyard.messaging.liveness import STATISTICS_SECONDS
from simyard.messaging.topology import REPLY_QUEUES_PREFIX
from simyard.plan.actions import ActionTimes
from simyard.plan.worker import is_ready
from simyard_adapter import wire
from simyard_adapter.python_backend import load_class
from simyard_adapter.transport import Connections, Session, encode
from simyard_sites.kubernetes.errors import NotFoundError
from simyard_sites.kubernetes.resource import Resource

CONNECTOR = Path(__file__).parent / "operator_connector.py"
SERVICE = "program"
PATIENCE_SECONDS = 240.0
ORPHAN_GRACE_SECONDS = 1
LOOK_SECONDS = 0.02
LOOK_AT_BROKER_SECONDS = 0.1
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
TIMING = Timing(
    status_spacing_seconds=0.1,
    stages_delay_seconds=0.1,
    teardown_check_seconds=0.1,
    broker_retry_seconds=0.2,
    sweep_settle_seconds=0.2,
    broker_wait_seconds=0.2,
    site_retry_first_seconds=0.1,
    read_on_seconds=0.5,
    quarantine_first_seconds=3.0,
    rotation_first_seconds=0.5,
    rotation_max_seconds=0.5,
    login_linger_seconds=2.0,
    deletion_confirm_seconds=1.0,
    default_drain_seconds=0.5,
    platform_look_seconds=0.1,
    platform_healed_seconds=0.5,
    actions=ActionTimes(lost_grace_seconds=1.0, resend_seconds=1.0, fence_look_seconds=0.1),
)
"""Pauses of the operator that are shorter in these tests."""


class World:
    """See the module.

    Attributes:
        seen: the namespace's objects, by caches of the test's own.
        kubeconfig: the file of the API server.
    """

    def __init__(
        self, kubeconfig: Path, access: BrokerAccess, cloud: MemoryCloud, statistics_seconds: float = STATISTICS_SECONDS
    ) -> None:
        self.name = f"world-{uuid.uuid4().hex[:8]}"
        self.cloud = cloud
        self.kubeconfig = kubeconfig
        self._statistics_seconds = statistics_seconds
        self._home_vhost = access.vhost
        self.access = replace(access, vhost=self.name)
        self._counter = itertools.count()
        self._identities = itertools.count()
        self._operators: list[Operator] = []

    async def __aenter__(self) -> World:
        async with contextlib.AsyncExitStack() as stack:
            self.client = await stack.enter_async_context(await self._connect(None))
            authorization = {"Authorization": aiohttp.encode_basic_auth(self.access.username, self.access.password)}
            self._management = await stack.enter_async_context(
                aiohttp.ClientSession(self.access.management_url, headers=authorization, raise_for_status=True)
            )
            await self._management.put(f"/api/vhosts/{self.name}")
            stack.push_async_callback(self._management.delete, f"/api/vhosts/{self.name}")
            everything = {"configure": ".*", "write": ".*", "read": ".*"}
            await self._management.put(f"/api/permissions/{self.name}/{self.access.username}", json=everything)
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}
            await self.client.create(NAMESPACES, body)
            self.seen = Registry(self.client)
            watching = asyncio.create_task(self.seen.run())
            stack.callback(watching.cancel)
            await self.seen.wait_until_synced()
            await self._make_service()
            await self.make(names.CLOUD_SITES, self.name, {"provider": {"emulated": {}}, "orphanGraceSeconds": 1})
            stack.push_async_callback(self._delete, names.CLOUD_SITES, self.name)
            stack.push_async_callback(self.cloud.aclose)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # Operators

    async def operator(self, **changes: Any) -> Operator:
        """Start an operator; it is ended by its life, or by :meth:`Operator.end`. ``changes``: of its settings."""
        life = Life()
        client = await self._connect(life)
        installation = f"{self.name}-{next(self._identities)}"
        settings = FleetSettings(
            *(self.access, self.access, self.name, installation, installation),
            statistics_seconds=self._statistics_seconds,
            make_provider=lambda *_: MemorySite(self.cloud, life),
            timing=TIMING,
        )
        fleet = Fleet(client, replace(settings, **changes))
        life.attach(fleet)
        hear_broker(fleet.liveness, self._home_vhost, self.name)
        operator = Operator(life, fleet, asyncio.create_task(run_fleet(fleet, client), name=installation))
        self._operators.append(operator)
        return operator

    async def _connect(self, life: Life | None) -> WorldClient:
        client = await WorldClient.connect(self.kubeconfig)
        client.namespace = client.site = self.name
        client.life = life
        return client

    async def ready(self, operator: Operator) -> None:
        """Wait until an operator knows everything and has reached the broker."""
        fleet = operator.fleet
        await self.until(
            lambda: (
                all(cache.synced.is_set() for cache in fleet.registry.caches)
                and fleet.broker.reachable
                and fleet.requester.connected
            ),
            "the operator is ready",
        )

    # Objects

    async def make(self, kind: Resource, name: str, spec: Json, **metadata: Any) -> Json:
        namespace = self.name if kind.namespaced else ""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, **metadata}, "spec": spec}
        return await self.client.create(kind, body, namespace)

    async def make_pool(self, replicas: int, **spec: Any) -> WorkerPool:
        """A pool as kopf leaves it: with the finalizer."""
        body = {
            "serviceRef": {"name": SERVICE},
            "replicas": replicas,
            "placement": {"sites": [self.name]},
            **spec,
        }
        raw = await self.make(names.WORKER_POOLS, f"p{next(self._counter)}", body, finalizers=[names.FINALIZER])
        return WorkerPool.model_validate(raw)

    async def change_pool(self, pool: WorkerPool, **spec: Any) -> None:
        await self.client.patch(names.WORKER_POOLS, pool.metadata.name, {"spec": spec}, self.name)

    async def delete_pool(self, pool: WorkerPool) -> None:
        await self.client.delete(names.WORKER_POOLS, pool.metadata.name, self.name)

    async def act(self, pool: WorkerPool, action: str, **parameters: Any) -> str:
        """Call an Async action on a pool; the name of the ServiceAction."""
        name = f"a{next(self._counter)}"
        target = {"kind": names.WORKER_POOLS.kind, "name": pool.metadata.name}
        await self.make(names.SERVICE_ACTIONS, name, {"target": target, "action": action, "parameters": parameters})
        return name

    async def change_service(self) -> None:
        """Another version of the program: its workers are outdated."""
        files = [{"path": "operator_connector.py", "content": f"{CONNECTOR.read_text()}# {next(self._counter)}\n"}]
        await self.client.patch(
            names.SIMULATION_SERVICES, SERVICE, {"spec": {"connector": {"files": files}}}, self.name
        )

    def workers(self, pool: WorkerPool) -> list[Worker]:
        return self.seen.workers.list_by("pool", pool.metadata.uid)

    async def quiet(self, *operators: Operator, seconds: float = 2.0) -> None:
        """Wait until the operators have done nothing for so long, beside what they write about their work."""

        def done() -> list[int]:
            return [len(operator.life.done) - sum(map(_is_about_work, operator.life.done)) for operator in operators]

        before, since = done(), time.monotonic()

        def is_quiet() -> bool:
            nonlocal before, since
            if (now := done()) != before:
                before, since = now, time.monotonic()
            return time.monotonic() - since > seconds

        await self.until(is_quiet, "nothing is done any more")

    # Expectations

    def is_right(self, pool: WorkerPool, replicas: int) -> bool:
        """Exactly so many ready workers, one machine each, and the pool's status says so."""
        found = self.workers(pool)
        current = self.seen.pools.get(self.name, pool.metadata.name)
        machines = sorted(machine.owner.worker_uid for machine in self.cloud.machines())
        others = {worker.metadata.uid for worker in self.seen.workers if get_pool_uid(worker) != pool.metadata.uid}
        return (
            len(found) == replicas
            and all(map(is_ready, found))
            and machines == sorted({worker.metadata.uid for worker in found} | others)
            and current is not None
            and current.status.observed_generation == current.metadata.generation
            and (current.status.replicas, current.status.ready_replicas) == (replicas, replicas)
        )

    async def say(self, machine_id: str, kind: wire.Event, **body: Any) -> None:
        """Publish an event as the guest of a machine does."""
        told = self.cloud.bootstrap(machine_id)
        key = wire.make_event_key(kind, told.broker.username, told.worker_uid)
        message = encode({"worker": told.worker, "observedAt": time.time(), **body})
        async with Connections(told.broker, "another guest").open_channel() as channel:
            session = Session(channel)
            await session.publish(wire.EVENTS_EXCHANGE, key, kind.value, message, persistent=True)

    async def right(self, pool: WorkerPool, replicas: int, *, unless: asyncio.Event | None = None) -> bool:
        """Wait until it is right; False when ``unless`` was set before."""
        return await self.until(lambda: self.is_right(pool, replicas), f"{replicas} workers", unless=unless)

    async def until(
        self, check: Callable[[], bool], what: str, *, unless: asyncio.Event | None = None, seconds: float = 0.0
    ) -> bool:
        """Wait until the check is true; False when ``unless`` was set before."""
        try:
            async with asyncio.timeout(seconds or PATIENCE_SECONDS):
                while not check():
                    self.cloud.raise_defect()
                    for operator in self._operators:
                        operator.raise_defect()
                    if unless is not None and unless.is_set():
                        return False
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(f"{self.name}: {what}: it did not become so\n{self.report()}") from None
        return True

    async def gone(self, pool: WorkerPool, *, unless: asyncio.Event | None = None) -> bool:
        """Wait until the pool and its machines are gone; then nothing of it is left at the broker."""
        name, uid = pool.metadata.name, pool.metadata.uid

        def is_gone() -> bool:
            left = [machine for machine in self.cloud.machines() if machine.owner.pool == name]
            return self.seen.pools.get(self.name, name) is None and not left and not self.workers(pool)

        return await self.until(is_gone, f"{name} is gone", unless=unless) and await self.until_nothing_is_left(uid)

    async def left_at_broker(self, uid: str) -> list[str]:
        """The user and the queues of a pool, or of a Worker that stands alone, that are there."""
        return [
            name
            for path in ("/api/users?columns=name", f"/api/queues/{self.name}?columns=name")
            for name in await self._names(path)
            if uid in name
        ]

    async def at_broker(self) -> set[str]:
        """All queues of the world but those of single connections."""
        found = await self._names(f"/api/queues/{self.name}?columns=name")
        return {name for name in found if not name.startswith(("amq.", REPLY_QUEUES_PREFIX))}

    @contextlib.asynccontextmanager
    async def swallowing(self, worker: Worker) -> AsyncIterator[list[str]]:
        """Take every message from a worker's queue before its adapter gets it; gives the ids of the messages."""
        swallowed: list[str] = []

        async def take(message: DeliveredMessage) -> None:
            swallowed.append(message.header.properties.message_id or "")

        async with open_connection(self.access, "thief") as connection:
            channel = await connection.channel()
            await channel.basic_consume(get_queue(worker), take, no_ack=True, arguments={"x-priority": 10})
            yield swallowed

    async def make_user(self, name: str) -> None:
        """Make a broker user that may do something in this virtual host."""
        await self._management.put(f"/api/users/{name}", json={"password": uuid.uuid4().hex, "tags": ""})
        nothing = {"configure": "^$", "write": "^$", "read": "^$"}
        await self._management.put(f"/api/permissions/{self.name}/{name}", json=nothing)

    async def delete_user(self, name: str) -> None:
        await self._management.delete(f"/api/users/{name}")

    async def until_nothing_is_left(self, *uids: str) -> bool:
        """Wait until nothing at the broker has one of the uids of pools, or Workers that stand alone, in its name."""
        deadline = time.monotonic() + PATIENCE_SECONDS / 2
        while left := [name for uid in uids for name in await self.left_at_broker(uid)]:
            assert time.monotonic() < deadline, f"left at the broker: {left}"
            await asyncio.sleep(LOOK_AT_BROKER_SECONDS)
        return True

    def made_once(self) -> bool:
        """Whether no Worker ever had two machines."""
        return all(len(ids) == 1 for ids in self.cloud.made.values())

    def report(self) -> str:
        """What is there, for a test that failed."""
        lines = [f"worker {item.metadata.name} {item.metadata.uid} {item.status}" for item in self.seen.workers]
        lines += [
            f"pool {item.metadata.name} {item.metadata.deletion_timestamp} {item.status}" for item in self.seen.pools
        ]
        lines += [f"action {item.metadata.name} {item.status}" for item in self.seen.actions]
        lines += [f"machine {item.id} {item.name} {item.state}" for item in self.cloud.machines()]
        return "\n".join(lines)

    async def _names(self, path: str) -> list[str]:
        async with self._management.get(path) as answer:
            return [str(item["name"]) for item in await answer.json()]

    async def _make_service(self) -> None:
        interface = load_class("operator_connector:Program", CONNECTOR.parent).interface.to_json()
        files = [{"path": "operator_connector.py", "content": CONNECTOR.read_text()}]
        connector = {"python": {"class": "operator_connector:Program"}, "files": files}
        await self.make(names.SIMULATION_SERVICES, SERVICE, {"interface": interface, "connector": connector})

    async def _delete(self, kind: Resource, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            await self.client.delete(kind, name)


@contextlib.asynccontextmanager
async def living(world: World, **changes: Any) -> AsyncIterator[Operator]:
    """An operator that is ended at the end; ``changes``: of its settings."""
    operator = await world.operator(**changes)
    try:
        yield operator
    finally:
        await operator.end()


def is_complete(world: World, action: str) -> bool:
    """Whether a ServiceAction succeeded."""
    found = world.seen.actions.get(world.name, action)
    condition = find_condition(found.status.conditions, ConditionType.COMPLETE) if found is not None else None
    return condition is not None and condition.status == "True"


def _is_about_work(what: str) -> bool:
    """Whether a side effect is an Event or a record of use: gathered, and written a while later."""
    return "/events" in what or "/usages" in what
