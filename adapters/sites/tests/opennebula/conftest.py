# SPDX-License-Identifier: Apache-2.0
"""A simulated oned for each test, and sites that use it."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest

from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.declarations import Interface
from simyard_dev.providers import complete_open_nebula
from simyard_simulators.oned import WIDE, Oned, Settings
from simyard_sites.base import Gone, Machine, MachineRequest, Outcome, Owner, SiteConfig, Snapshot
from simyard_sites.opennebula import OpenNebulaSite

DEADLINE_SECONDS = 240.0
PASSWORD = "not-to-be-seen"


@dataclass
class Yard:
    """A simulated cloud, and what tests ask of it."""

    oned: Oned
    sites: list[OpenNebulaSite] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    uids: dict[str, str] = field(default_factory=dict)

    def site(self, credentials: dict[str, str] | None = None, **provider: Any) -> OpenNebulaSite:
        """A site of the account ``simyard``."""
        config = complete_open_nebula() | {
            "endpoint": self.oned.url,
            "template": "worker",
            "imageOwner": "oneadmin",
            "pollMilliseconds": 20,
            "quietPollSeconds": 1,
            **provider,
        }
        login = {"username": "simyard", "password": "secret"} if credentials is None else credentials
        self.sites.append(OpenNebulaSite(SiteConfig("one", config, login)))
        return self.sites[-1]

    def request(self, name: str, **asked: Any) -> MachineRequest:
        """The same machine each time."""
        owner = Owner("default", name, self.uids.setdefault(name, str(uuid.uuid4())), "pool")
        broker = BrokerAddress("broker.example", 5671, "simyard", "pool", PASSWORD)
        document = Bootstrap(
            namespace=owner.namespace,
            worker=name,
            worker_uid=owner.worker_uid,
            service="service",
            pool=owner.pool,
            broker=broker,
            interface=Interface.from_json({}),
            connector={"commands": {}},
        )
        return MachineRequest(name, owner, document.to_bytes(), **asked)

    async def create(self, site: OpenNebulaSite, *names: str) -> list[Machine]:
        """Machines, which must be made."""
        outcomes = await gather(site.create([self.request(name) for name in names]))
        assert [outcome.error for outcome in outcomes] == [None] * len(names)
        return [outcome.machine for outcome in outcomes if outcome.machine is not None]

    def watch(self, site: OpenNebulaSite) -> "Seen":
        """Follow a site until the test ends."""
        seen = Seen()
        self.tasks.append(asyncio.create_task(seen.follow(site)))
        return seen

    def vm(self, machine: Machine) -> Any:
        """The VM behind a machine."""
        return self.oned.cloud.vms[int(machine.id)]


@dataclass
class Seen:
    """What events told."""

    machines: dict[str, Machine] = field(default_factory=dict)
    states: dict[str, list[str]] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, site: OpenNebulaSite) -> None:
        async with aclosing(site.events()) as events:
            async for event in events:
                for machine in event.machines if isinstance(event, Snapshot) else ():
                    self._take(machine)
                if isinstance(event, Gone):
                    self.machines.pop(event.name, None)
                elif not isinstance(event, Snapshot):
                    self._take(event.machine)
                self.news.set()

    def _take(self, machine: Machine) -> None:
        self.machines[machine.name] = machine
        self.states.setdefault(machine.name, []).append(machine.state.value)

    async def until(self, wanted: Callable[[dict[str, Machine]], bool]) -> dict[str, Machine]:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not wanted(self.machines):
                self.news.clear()
                await self.news.wait()
        return dict(self.machines)

    async def until_all(self, state: str, *names: str) -> dict[str, Machine]:
        """Wait until exactly these machines are there, in that state."""
        wanted = dict.fromkeys(names, state)
        return await self.until(lambda found: {key: each.state.value for key, each in found.items()} == wanted)


async def gather(call: AsyncIterator[Outcome]) -> list[Outcome]:
    """All outcomes."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        return [outcome async for outcome in call]


@pytest.fixture
def outcomes() -> Callable[[AsyncIterator[Outcome]], Any]:
    """Gives all outcomes of a call."""
    return gather


@pytest.fixture
async def make_yard() -> AsyncIterator[Callable[..., Any]]:
    """Makes simulated clouds that end with the test."""
    yards: list[Yard] = []

    async def make(tls: Any = None, **settings: Any) -> Yard:
        given = {"time_scale": 0.01, "cost_scale": 0, "scheduler": WIDE, **settings}
        oned = Oned(Settings(**given), tls=tls)
        await oned.start()
        yards.append(Yard(oned))
        return yards[-1]

    yield make
    for yard in yards:
        for task in yard.tasks:
            task.cancel()
        await asyncio.gather(*yard.tasks, return_exceptions=True)
        for site in yard.sites:
            await site.aclose()
        await yard.oned.aclose()


@pytest.fixture
async def yard(make_yard: Callable[..., Any]) -> Any:
    """A simulated cloud without limits."""
    return await make_yard()
