"""Accounts over restarts, beside another operator, with lost answers, and at sites that come and go.

The API server is a dictionary with resource versions; the sites are tables of machines; the clock stands still unless
told otherwise.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from simyard.api.base import Json
from simyard.api.names import USAGE, Resource
from simyard.api.usage import HOUR_MILLISECONDS
from simyard.fleet import metering as module
from simyard.fleet.machines import MachineTable
from simyard.fleet.metering import Metering, SiteMeter
from simyard.fleet.registry import Registry
from simyard.kube.client import KubeClient
from simyard.kube.errors import AlreadyExistsError, ConflictError, NotFoundError, UnavailableError
from simyard.plan.metering import Moment
from simyard_sites.base import Machine, MachineState, Owner, Stage

EPOCH = 1_700_000_000


@dataclass
class ScriptedServer:
    """Holds Usage objects. ``lose_answers``: so many next writes are carried out, and nobody hears of it."""

    items: dict[str, Json] = field(default_factory=dict)
    writes: int = 0
    lose_answers: int = 0
    closed: set[str] = field(default_factory=set)
    _versions: Any = field(default_factory=lambda: itertools.count(1))

    async def create(self, resource: Resource, body: Json, namespace: str) -> Json:
        if namespace in self.closed:
            raise NotFoundError(404, "NotFound", "no such namespace")
        if namespace in self.items:
            raise AlreadyExistsError(409, "AlreadyExists", "it exists")
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
        found["status"] = body["status"]
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
    """One operator's metering, with one site."""

    server: ScriptedServer
    seconds: float = 0
    table: MachineTable = field(default_factory=MachineTable)
    registry: Registry = field(init=False)
    metering: Metering = field(init=False)
    meter: SiteMeter = field(init=False)

    def __post_init__(self) -> None:
        self.registry = Registry(cast(KubeClient, self.server))
        self.price(77, 13)
        for item in self.server.items.values():
            self.registry.usages.learn(copy.deepcopy(item))
        self.metering = Metering(self.registry, self.clock)
        self.meter = self.metering.site("site")

    def price(self, worker_hour_millis: int, core_hour_millis: int = 0, version: int = 1) -> None:
        cost = {"workerHourMillis": worker_hour_millis, "coreHourMillis": core_hour_millis}
        self.registry.sites.learn(
            {
                "metadata": {"name": "site", "uid": "site-uid", "resourceVersion": str(version)},
                "spec": {"provider": {"emulated": {}}, "cost": cost},
            }
        )

    def clock(self) -> Moment:
        return Moment(round((EPOCH + self.seconds) * 1000), round((1_000 + self.seconds) * 1000))

    def see(self, *machines: Machine) -> None:
        for item in machines:
            self.table.put(item)
            self.meter.seen(item)

    def lose(self, number: int) -> None:
        gone = self.table.remove(str(number))
        assert gone is not None
        self.meter.gone(gone)

    def begin(self, *machines: Machine) -> None:
        """The first answer of the site."""
        self.see(*machines)
        self.meter.settle(self.table)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.metering.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    def counted(self) -> int:
        """Milliseconds of workers, in memory, up to now."""
        return sum(row.worker_milliseconds for _, row in self.metering.current())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPACING_SECONDS", 0.01)
    monkeypatch.setattr(module, "STARTED_SECONDS", 0.01)


@pytest.fixture
def server() -> ScriptedServer:
    return ScriptedServer()


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not check():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def test_what_ran_is_written_when_it_ends_and_says_from_when_to_go_on(server: ScriptedServer) -> None:
    process = Process(server)
    async with process.running():
        process.begin(machine(0), machine(1))
        process.seconds = 10
        process.lose(0)
        await until(lambda: server.worker_milliseconds() == 20_000)
        (row,) = server.rows()
    assert server.items["ns"]["metadata"]["name"] == USAGE
    assert (row["pool"], row["site"], row["currency"], row["workers"], row["cores"]) == ("pool", "site", "EUR", 1, 1)
    assert row["accountedUntil"].startswith("2023-11-14T22:13:30")
    assert row["costMillis"] * HOUR_MILLISECONDS + row["costRemainder"] == 20_000 * (77 + 13)


async def test_a_start_is_written_so_that_everybody_sees_what_runs(server: ScriptedServer) -> None:
    process = Process(server)
    async with process.running():
        process.begin(*(machine(number) for number in range(100)))
        await until(lambda: server.rows() and server.rows()[0]["workers"] == 100)
    assert server.writes == 1


async def test_a_process_that_is_killed_loses_and_doubles_nothing(server: ScriptedServer) -> None:
    first = Process(server)
    async with first.running():
        first.begin(machine(0), machine(1))
        first.seconds = 10
        first.lose(0)
        await until(lambda: server.worker_milliseconds() == 20_000)
        first.seconds = 15
        first.see(machine(2, 12))
    second = Process(server, seconds=20)
    async with second.running():
        second.begin(machine(1), machine(2, 12))
        assert second.counted() == 10_000 + 20_000 + 8_000
        second.lose(1)
        second.lose(2)
        await until(lambda: server.worker_milliseconds() == 38_000)
    assert server.rows()[0]["workers"] == 0


async def test_two_operators_at_once_count_nothing_twice(server: ScriptedServer) -> None:
    one, two = Process(server), Process(server)
    async with one.running(), two.running():
        for process in (one, two):
            process.begin(machine(0), machine(1), machine(2))
        for seconds, number in ((10, 0), (20, 1), (30, 2)):
            for process in (one, two):
                process.seconds = seconds
                process.lose(number)
            await until(lambda number=number: server.rows() and server.rows()[0]["workers"] == 2 - number)
    assert server.worker_milliseconds() == 10_000 + 20_000 + 30_000


async def test_an_old_leader_takes_over_what_the_new_one_wrote(server: ScriptedServer) -> None:
    old, new = Process(server), Process(server)
    async with old.running(), new.running():
        for process in (old, new):
            process.begin(machine(0), machine(1), machine(2))
        await until(lambda: server.rows())
        old.seconds = new.seconds = 10
        new.lose(0)
        await until(lambda: server.worker_milliseconds() == 30_000)
        old.lose(0)
        old.seconds = 20
        old.lose(1)
        await until(lambda: server.worker_milliseconds() == 30_000 + 10_000 + 10_000)
    assert server.rows()[0]["workers"] == 1


async def test_operators_do_not_answer_each_others_writes(server: ScriptedServer) -> None:
    two = Process(server)
    async with two.running():
        two.begin(machine(0))
        await until(lambda: server.writes == 1)
        one = Process(server)
        async with one.running():
            one.seconds = two.seconds = 10
            one.begin(machine(0), machine(1))
            await until(lambda: server.writes == 2)
        two.registry.usages.learn(await server.get(two.registry.usages.resource, USAGE, "ns"))
        elsewhere = machine(2)
        elsewhere = replace(elsewhere, owner=replace(elsewhere.owner, namespace="elsewhere"))
        two.see(elsewhere)
        two.lose(2)
        await until(lambda: server.rows("elsewhere"))
    assert server.writes == 3


async def test_an_answer_that_is_lost_is_no_other_operator(server: ScriptedServer) -> None:
    server.lose_answers = 1
    process = Process(server)
    async with process.running():
        process.begin(machine(0), machine(1))
        await until(lambda: server.writes == 1)
        process.seconds = 10
        process.lose(0)
        await until(lambda: server.worker_milliseconds() == 20_000)
        process.seconds = 20
        process.lose(1)
        await until(lambda: server.worker_milliseconds() == 30_000)


async def test_a_site_that_returns_is_caught_up_for_the_machines_that_are_still_there(server: ScriptedServer) -> None:
    process = Process(server)
    process.begin(machine(0), machine(1))
    process.seconds = 10
    process.meter.settle(None)
    process.seconds = 30
    assert process.counted() == 20_000
    process.see(machine(2, 20))
    process.lose(0)
    process.meter.settle(process.table)
    assert process.counted() == 10_000 + 30_000 + 10_000


async def test_machines_that_a_new_connection_does_not_know_are_not_charged_for_the_gap(server: ScriptedServer) -> None:
    process = Process(server)
    process.begin(machine(0), machine(1))
    process.seconds = 10
    process.meter.settle(None)
    process.seconds = 30
    process.table = MachineTable()
    process.begin(machine(1))
    assert process.counted() == 10_000 + 30_000


async def test_a_machine_that_comes_back_is_counted_from_its_return(server: ScriptedServer) -> None:
    process = Process(server)
    process.begin(machine(0))
    process.seconds = 10
    process.lose(0)
    process.seconds = 30
    process.see(machine(0))
    process.seconds = 35
    assert process.counted() == 15_000


async def test_a_machine_counts_until_it_is_gone_whatever_it_does(server: ScriptedServer) -> None:
    process = Process(server)
    process.begin(machine(0, None))
    process.seconds = 5
    assert process.counted() == 0
    process.see(machine(0, 3))
    process.seconds = 10
    running = machine(0, 3)
    for state in (MachineState.STOPPED, MachineState.FAILED, MachineState.TERMINATING):
        process.see(Machine(running.id, running.name, running.owner, state, running.entered))
        process.seconds += 10
    assert process.counted() == 37_000


async def test_a_clock_that_jumps_while_a_machine_starts_costs_a_minute_at_most(server: ScriptedServer) -> None:
    process = Process(server)
    process.begin()
    process.see(machine(0, None))
    process.seconds = 2
    ahead = process.clock()
    process.metering.clock = lambda: Moment(ahead.wall + HOUR_MILLISECONDS, ahead.steady)
    process.see(machine(0, 1))
    assert 2_000 <= process.counted() <= 2_000 + module.MOST_LATE_MILLISECONDS


async def test_what_ran_before_its_event_came_is_counted(server: ScriptedServer) -> None:
    process = Process(server)
    process.begin()
    process.seconds = 10
    process.see(machine(0, None))
    process.see(machine(0, 8))
    process.seconds = 11
    assert process.counted() == 3_000


async def test_a_new_price_is_paid_from_the_change_on(server: ScriptedServer) -> None:
    process = Process(server)
    process.price(1000, version=2)
    process.begin(machine(0))
    process.seconds = 3600
    process.price(3000, version=3)
    process.seconds = 7200
    ((_, row),) = process.metering.current()
    assert row.cost_millis == 4000


async def test_counters_go_on_where_the_ledger_ended(server: ScriptedServer) -> None:
    def value(name: str, **labels: str) -> float | None:
        of = {"namespace": "ns", "pool": "pool", "service": "", "site": "site", **labels}
        return REGISTRY.get_sample_value(f"simyard_usage_{name}_total", of)

    first = Process(server)
    async with first.running():
        first.begin(machine(0))
        first.seconds = 3600
        first.see(machine(1, 3600))
        await until(lambda: server.worker_milliseconds() == HOUR_MILLISECONDS)
    second = Process(server, seconds=3700)
    async with second.running():
        await until(lambda: module.COLLECTOR.sources)
        assert value("worker_seconds") == 3600
        second.begin(machine(0), machine(1, 3600))
        assert value("worker_seconds") == value("core_seconds") == 3800
        assert value("licence_seconds") == 0
        assert value("cost", currency="EUR") == pytest.approx(0.090 * 3800 / 3600)
    assert not module.COLLECTOR.sources


async def test_an_idle_fleet_is_written_no_more(server: ScriptedServer) -> None:
    process = Process(server)
    async with process.running():
        process.begin(machine(0))
        await until(lambda: server.rows())
        process.seconds = 5
        process.see(machine(0))
        process.see(machine(1, 5, pool="other"))
        await until(lambda: len(server.rows()) == 2)
    assert server.writes == 2


async def test_the_account_of_a_namespace_that_is_gone_is_dropped(server: ScriptedServer) -> None:
    server.closed.add("ns")
    process = Process(server)
    async with process.running():
        process.begin(machine(0))
        process.lose(0)
        await until(lambda: not list(process.metering.accounts()))
    assert not server.items


async def test_a_deleted_ledger_begins_anew_with_what_runs(server: ScriptedServer) -> None:
    process = Process(server)
    async with process.running():
        process.begin(machine(0), machine(1))
        process.seconds = 10
        process.lose(0)
        await until(lambda: server.worker_milliseconds() == 20_000)
        del server.items["ns"]
        usage = process.registry.usages.get("ns", USAGE)
        assert usage is not None
        process.registry.usages.forget(usage)
        await until(lambda: server.worker_milliseconds() == 10_000)
