# SPDX-License-Identifier: Apache-2.0
"""Accounts over restarts, beside another operator, with lost answers, and at sites that come and go.

The clock stands still until a test moves it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from metered_process import TIMING, Process, ScriptedServer, machine, until
from prometheus_client import REGISTRY

from simyard.api.names import USAGE
from simyard.api.usage import HOUR_MILLISECONDS
from simyard.fleet.metering import MAX_LATE_MILLISECONDS, get_moment
from simyard.fleet.sites.machines import MachineTable
from simyard.fleet.usage_metrics import COLLECTOR
from simyard.plan.metering import Moment
from simyard_sites.base import Machine, MachineState
from simyard_sites.kubernetes.client import KubeClient


@pytest.fixture
def server() -> ScriptedServer:
    return ScriptedServer()


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
        await two.hear()
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
    process.meter.set_inventory(None)
    process.seconds = 30
    assert process.counted() == 20_000
    process.see(machine(2, 20))
    process.lose(0)
    process.meter.set_inventory(process.table)
    assert process.counted() == 10_000 + 30_000 + 10_000


async def test_machines_that_a_new_connection_does_not_know_are_not_charged_for_the_gap(server: ScriptedServer) -> None:
    process = Process(server)
    process.begin(machine(0), machine(1))
    process.seconds = 10
    process.meter.set_inventory(None)
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
    assert 2_000 <= process.counted() <= 2_000 + MAX_LATE_MILLISECONDS


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
    ((_, row),) = process.metering.count_current()
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
        await until(lambda: COLLECTOR.sources)
        assert value("worker_seconds") == 3600
        second.begin(machine(0), machine(1, 3600))
        assert value("worker_seconds") == value("core_seconds") == 3800
        assert value("licence_seconds") == 0
        assert value("cost", currency="EUR") == pytest.approx(0.090 * 3800 / 3600)
    assert not COLLECTOR.sources


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
        await until(lambda: not list(process.metering.list_accounts()))
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


async def test_the_last_ends_are_written_by_the_next_operator(server: ScriptedServer) -> None:
    first = Process(server)
    async with first.running():
        first.begin(machine(0), machine(1))
        await until(lambda: server.rows())
    first.seconds = 10
    first.lose(0)
    first.lose(1)
    assert server.items["ns"]["status"]["workers"] == 2, "it was killed before it wrote"
    second = Process(server, seconds=20)
    async with second.running():
        second.begin()
        await until(lambda: server.rows()[0]["workers"] == 0)
    assert server.worker_milliseconds() == 0
    assert server.items["ns"]["status"]["workers"] == 0
    assert server.items["ns"]["status"]["accountedUntil"] == server.rows()[0]["accountedUntil"]


async def test_an_account_that_says_what_runs_is_not_written_again_by_the_next_operator(server: ScriptedServer) -> None:
    first = Process(server)
    async with first.running():
        first.begin(machine(0))
        await until(lambda: server.rows())
        first.lose(0)
        await until(lambda: server.rows()[0]["workers"] == 0)
    second = Process(server, seconds=20)
    async with second.running():
        second.begin()
        elsewhere = machine(2)
        second.see(replace(elsewhere, owner=replace(elsewhere.owner, namespace="elsewhere")))
        await until(lambda: server.rows("elsewhere"))
    assert server.writes == 3


async def test_nothing_runs_at_a_site_that_is_gone(server: ScriptedServer) -> None:
    first = Process(server)
    async with first.running():
        first.begin(machine(0), machine(1))
        await until(lambda: server.rows())
    second = Process(server, seconds=20)
    second.remove_site()
    async with second.running():
        await until(lambda: server.rows()[0]["workers"] == 0)


async def test_nothing_runs_any_more_at_a_site_that_is_removed_with_its_machines(server: ScriptedServer) -> None:
    process = Process(server)
    async with process.running():
        process.begin(machine(0))
        await until(lambda: server.rows())
        process.remove_site()
        await until(lambda: server.rows()[0]["workers"] == 0)


async def test_what_an_old_leader_wrote_late_is_put_right(server: ScriptedServer) -> None:
    timing = replace(TIMING, usage_idle_seconds=0.01)
    old, new = Process(server, timing=timing), Process(server, timing=timing)
    async with new.running():
        async with old.running():
            old.begin(machine(0))
            await until(lambda: server.rows())
        new.begin()
        await new.hear()
        await until(lambda: server.rows()[0]["workers"] == 0)


async def test_an_end_while_the_account_is_made_is_not_lost_to_another_operator(server: ScriptedServer) -> None:
    process = Process(server)

    def end() -> None:
        process.seconds = 10
        process.lose(0)

    server.during_create = end
    process.begin(machine(0), machine(1))
    async with process.running():
        await until(lambda: server.writes == 1)
    other = {**server.rows()[0], "workerMilliseconds": 10_000, "accountedUntil": "2023-11-14T22:13:25Z"}
    await server.patch(process.registry.usages.resource, USAGE, {"metadata": {}, "status": {"rows": [other]}}, "ns", "")
    await process.hear()
    assert process.counted() == 10_000 + 2 * 5_000


def test_time_is_that_of_the_api_server_where_our_clock_is_wrong() -> None:
    def seconds_off(skew: float | None) -> float:
        client = cast(KubeClient, SimpleNamespace(clock_skew_seconds=skew))
        return get_moment(client).wall / 1000 - time.time()

    assert abs(seconds_off(3600.0) - 3600) < 60
    assert abs(seconds_off(-3600.0) + 3600) < 60
    for agreed in (None, 0.0, 30.0):
        assert abs(seconds_off(agreed)) < 30
