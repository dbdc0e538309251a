# SPDX-License-Identifier: Apache-2.0
"""Operators that keep accounts. The API server is a dictionary with versions, and a site is a table of machines."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from simyard.api.base import Json
from simyard.api.names import USAGE
from simyard.fleet.metering import Metering, SiteMeter
from simyard.fleet.registry import Registry
from simyard.fleet.sites.machines import MachineTable
from simyard.fleet.timing import Timing
from simyard.fleet.wiring import connect
from simyard.plan.metering import Moment
from simyard_sites.base import Machine, MachineState, Owner, Stage
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import AlreadyExistsError, ConflictError, NotFoundError, UnavailableError
from simyard_sites.kubernetes.resource import Resource

EPOCH = 1_700_000_000
TIMING = Timing(usage_spacing_seconds=0.01, usage_started_seconds=0.01)


@dataclass
class ScriptedServer:
    """An API server that holds Usage objects.

    Attributes:
        lose_answers: number of next writes that are carried out without an answer.
        closed: namespaces that do not exist.
        during_create: called while an object is being created.
    """

    items: dict[str, Json] = field(default_factory=dict)
    writes: int = 0
    lose_answers: int = 0
    closed: set[str] = field(default_factory=set)
    during_create: Callable[[], None] = lambda: None
    _versions: Any = field(default_factory=lambda: itertools.count(1))

    async def create(self, resource: Resource, body: Json, namespace: str) -> Json:
        if namespace in self.closed:
            raise NotFoundError(404, "NotFound", "no such namespace")
        if namespace in self.items:
            raise AlreadyExistsError(409, "AlreadyExists", "it exists")
        self.during_create()
        version = next(self._versions)
        self.items[namespace] = {
            **body,
            "metadata": {**body["metadata"], "uid": f"uid-{version}", "resourceVersion": str(version)},
        }
        return copy.deepcopy(self.items[namespace])

    async def get(self, resource: Resource, name: str, namespace: str) -> Json:
        if namespace not in self.items:
            raise NotFoundError(404, "NotFound", "no such usage")
        return copy.deepcopy(self.items[namespace])

    async def patch(self, resource: Resource, name: str, body: Json, namespace: str, subresource: str) -> Json:
        found = await self.get(resource, name, namespace)
        if any(found["metadata"][key] != value for key, value in body["metadata"].items()):
            raise ConflictError(409, "Conflict", "it has changed")
        self.writes += 1
        merged = {**found.get("status", {}), **body["status"]}
        found["status"] = {key: value for key, value in merged.items() if value is not None}
        found["metadata"]["resourceVersion"] = str(next(self._versions))
        self.items[namespace] = found
        if self.lose_answers:
            self.lose_answers -= 1
            raise UnavailableError(0, "", "no answer")
        return copy.deepcopy(found)

    def rows(self, namespace: str = "ns") -> list[Json]:
        rows: list[Json] = self.items.get(namespace, {}).get("status", {}).get("rows", [])
        return rows

    def worker_milliseconds(self, namespace: str = "ns") -> int:
        return sum(row["workerMilliseconds"] for row in self.rows(namespace))


def machine(number: int, running: float | None = 0, pool: str = "pool") -> Machine:
    entered = {} if running is None else {Stage.RUNNING: EPOCH + running}
    state = MachineState.RUNNING if entered else MachineState.BOOT
    return Machine(str(number), f"m-{number}", Owner("ns", f"w-{number}", f"uid-{number}", pool), state, entered)


@dataclass
class Process:
    """The metering of one operator, with one site."""

    server: ScriptedServer
    seconds: float = 0
    timing: Timing = TIMING
    table: MachineTable = field(default_factory=MachineTable)
    registry: Registry = field(init=False)
    metering: Metering = field(init=False)
    meter: SiteMeter = field(init=False)

    def __post_init__(self) -> None:
        self.registry = Registry(cast(KubeClient, self.server))
        self.price(77, 13)
        for item in self.server.items.values():
            self.registry.usages.learn(copy.deepcopy(item))
        self.metering = Metering(self.registry, self.clock, self.timing)
        connect(self.registry, self.metering)
        self.meter = self.metering.get_site_meter("site")

    def price(self, worker_hour_millis: int, core_hour_millis: int = 0, version: int = 1) -> None:
        cost = {"workerHourMillis": worker_hour_millis, "coreHourMillis": core_hour_millis}
        self.registry.sites.learn(
            {
                "metadata": {"name": "site", "uid": "site-uid", "resourceVersion": str(version)},
                "spec": {"provider": {"emulated": {}}, "cost": cost},
            }
        )

    def remove_site(self) -> None:
        site = self.registry.sites.get("", "site")
        assert site is not None
        self.registry.sites.forget(site)

    def clock(self) -> Moment:
        return Moment(round((EPOCH + self.seconds) * 1000), round((1_000 + self.seconds) * 1000))

    def see(self, *machines: Machine) -> None:
        for item in machines:
            self.table.put(item)
            self.meter.machine_seen(item)

    def lose(self, number: int) -> None:
        gone = self.table.remove(str(number))
        assert gone is not None
        self.meter.machine_gone(gone)

    def begin(self, *machines: Machine) -> None:
        """Let the site list its machines for the first time."""
        self.see(*machines)
        self.meter.set_inventory(self.table)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.metering.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def hear(self) -> None:
        """Let the watch report the stored objects."""
        self.registry.usages.learn(await self.server.get(self.registry.usages.resource, USAGE, "ns"))

    def counted(self) -> int:
        """Return the milliseconds of workers, in memory, up to now."""
        return sum(row.worker_milliseconds for _, row in self.metering.count_current())


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(240):
        while not check():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
