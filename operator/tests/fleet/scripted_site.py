# SPDX-License-Identifier: Apache-2.0
"""A runner of one site, and a scripted site for it. Tests check what the site was asked for."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from simyard.api.base import Json
from simyard.api.cloud_site import CloudSite, CloudSiteSpec
from simyard.api.worker import Worker
from simyard.fleet.broker.provisioning import Broker
from simyard.fleet.metering import Metering
from simyard.fleet.registry import Registry
from simyard.fleet.sites.context import SiteContext
from simyard.fleet.sites.runner import SiteRunner
from simyard.fleet.timing import Timing
from simyard.fleet.wiring import connect
from simyard.fleet.worker_statuses import WorkerStatuses
from simyard.messaging.errors import BrokerUnavailableError
from simyard_adapter.bootstrap import BrokerAddress
from simyard_sites.base import (
    Changed,
    Gone,
    Machine,
    MachineNotFoundError,
    MachineRequest,
    MachineState,
    Outcome,
    Owner,
    PowerAction,
    SiteError,
    SiteEvent,
    SiteInfo,
    Snapshot,
)
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import NotFoundError
from simyard_sites.kubernetes.errors import UnavailableError as ApiUnavailableError

SITE = {"metadata": {"name": "site", "uid": "site-uid"}, "spec": {"provider": {"emulated": {}}}}
SERVICE = {
    "metadata": {"name": "service", "namespace": "ns", "uid": "service-uid", "resourceVersion": "1"},
    "spec": {"interface": {}, "connector": {"python": {"class": "module:Class"}}},
}


TIMING = Timing(
    status_spacing_seconds=0.0,
    defect_pause_seconds=0.02,
    site_retry_first_seconds=0.02,
    broker_wait_seconds=0.02,
    deletion_confirm_seconds=0.05,
)
"""Pauses that are shorter in these tests."""


def spec(grace_seconds: int) -> CloudSiteSpec:
    return CloudSiteSpec.model_validate({"provider": {"emulated": {}}, "orphanGraceSeconds": grace_seconds})


versions = itertools.count(1)


@dataclass
class ScriptedSite:
    """A site whose machines are in a dictionary.

    ``refusals`` are raised by the next creations, after the machine was created (True) or before (False).
    ``act_refusals`` are the answers to the next power actions.
    """

    machines: dict[str, Machine] = field(default_factory=dict)
    refusals: list[tuple[SiteError, bool]] = field(default_factory=list)
    act_refusals: list[SiteError] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    mute: bool = False
    capacity: int | None = None
    broken: SiteError | None = None
    calls: Counter[str] = field(default_factory=Counter)
    _events: asyncio.Queue[SiteEvent | SiteError] = field(default_factory=asyncio.Queue)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def add(self, name: str, owner: Owner, state: MachineState = MachineState.RUNNING) -> Machine:
        machine = Machine(str(next(self._ids)), name, owner, state)
        self.machines[machine.id] = machine
        self.tell(Changed(machine))
        return machine

    def tell(self, event: SiteEvent | SiteError) -> None:
        if not self.mute:
            self._events.put_nowait(event)

    def called(self, what: str) -> None:
        self.calls[what] += 1
        if self.broken is not None:
            raise self.broken

    async def probe(self) -> SiteInfo:
        self.calls["probe"] += 1
        return SiteInfo("scripted", self.capacity)

    async def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        self.called("create")
        for request in requests:
            self.asked.append(f"create {request.owner.worker}")
            refusal, made = self.refusals.pop(0) if self.refusals else (None, True)
            found = next((machine for machine in self.machines.values() if machine.name == request.name), None)
            if made and found is None:
                found = self.add(request.name, request.owner)
            yield Outcome(request.name, None if refusal else found, refusal)

    async def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        self.called("delete")
        for machine_id in ids:
            self.asked.append(f"delete {machine_id}")
            machine = self.machines.pop(machine_id, None)
            if machine is not None:
                self.tell(Gone(machine_id, machine.name))
            yield Outcome(machine_id)

    async def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        self.called("get")
        for machine_id in ids:
            machine = self.machines.get(machine_id)
            yield Outcome(machine_id, machine, None if machine else MachineNotFoundError("no such machine"))

    async def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        for machine_id in ids:
            self.asked.append(f"{action} {machine_id}")
            yield Outcome(machine_id, error=self.act_refusals.pop() if self.act_refusals else None)

    async def list_owned(self) -> Sequence[Machine]:
        self.asked.append("list")
        return list(self.machines.values())

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        yield Snapshot(list(self.machines.values()))
        while True:
            event = await self._events.get()
            if isinstance(event, SiteError):
                raise event
            yield event

    async def clear(self) -> None:
        self.calls["clear"] += 1

    async def aclose(self) -> None: ...


@dataclass
class ScriptedBroker:
    down: bool = False

    async def ensure_workers(self, workers: Collection[Worker]) -> None:
        if self.down:
            raise BrokerUnavailableError("down")

    def build_worker_address(self, worker: Worker) -> BrokerAddress:
        return BrokerAddress("host", 5672, "/", "user", "password")


@dataclass
class ScriptedClient:
    """An API server that has no Workers but those of the cache, or does not answer."""

    kubeconfig: None = None
    down: bool = False
    asked: int = 0

    async def get(self, *_: Any) -> Json:
        self.asked += 1
        if self.down:
            raise ApiUnavailableError(0, "", "no answer")
        raise NotFoundError(404, "NotFound", "no such worker")


@dataclass
class Statuses:
    """The observations of workers."""

    seen: dict[str, dict[str, Any]] = field(default_factory=dict)

    def observe(self, uid: str, delay: float = 0.0, **changes: Any) -> None:
        self.seen.setdefault(uid, {}).update(changes)

    def machine_changed(self, uid: str, machine: Machine) -> None:
        self.observe(uid, machine=machine)


@dataclass
class Bench:
    """A runner on a scripted site."""

    site: ScriptedSite = field(default_factory=ScriptedSite)
    grace_seconds: int = 0
    broker: ScriptedBroker = field(default_factory=ScriptedBroker)
    client: ScriptedClient = field(default_factory=ScriptedClient)
    statuses: Statuses = field(default_factory=Statuses)
    orphans: list[str] = field(default_factory=list)
    evacuated: list[str] = field(default_factory=list)
    registry: Registry = field(init=False)
    metering: Metering = field(init=False)
    runner: SiteRunner = field(init=False)

    def __post_init__(self) -> None:
        self.registry = Registry(cast(KubeClient, self.client))
        self.metering = Metering(self.registry)
        self.registry.services.learn(SERVICE)
        self.runner = SiteRunner(
            CloudSite.model_validate({**SITE, "spec": spec(self.grace_seconds).to_json()}),
            self.site,
            SiteContext(
                registry=self.registry,
                statuses=cast(WorkerStatuses, self.statuses),
                broker=cast(Broker, self.broker),
                meter=self.metering.get_site_meter("site"),
                changed=lambda: None,
                orphan_removed=lambda machine: self.orphans.append(machine.name),
                evacuate=lambda machine: self.evacuated.append(machine.name),
                timing=TIMING,
            ),
        )
        connect(self.registry, self.metering)
        self.registry.workers.subscribe(self.runner.worker_changed)

    def worker(self, name: str = "pool-0", owners: Sequence[Json] = (), **status: Any) -> Worker:
        metadata: Json = {"name": name, "namespace": "ns", "uid": f"{name:-<8}-uid"}
        metadata |= {"resourceVersion": str(next(versions)), "ownerReferences": list(owners)}
        spec = {"serviceRef": {"name": "service"}, "site": "site"}
        worker = self.registry.workers.learn({"metadata": metadata, "spec": spec, "status": status})
        assert worker is not None
        return worker

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.runner.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(240):
        while not check():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


def owner(worker: str, uid: str = "") -> Owner:
    return Owner("ns", worker, uid or f"{worker:-<8}-uid", "pool")
