# SPDX-License-Identifier: Apache-2.0
"""A site's runner reports every machine to its meter, and the times in which not all machines are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_site import Bench, owner, until

from simyard.plan.metering import Moment
from simyard_sites.base import Changed, Machine, MachineState, Stage, UnavailableError

EPOCH = 1_700_000_000


@pytest.fixture
async def bench() -> Bench:
    """Return a runner whose usage is counted by a clock that the test moves."""
    bench = Bench(grace_seconds=3600)
    bench.metering.clock = lambda: Moment((EPOCH + 100) * 1000, 100_000)
    return bench


def later(bench: Bench, seconds: int) -> None:
    now = bench.metering.clock()
    bench.metering.clock = lambda: Moment(now.wall + seconds * 1000, now.steady + seconds * 1000)


def running(bench: Bench, number: int) -> Machine:
    """Return a machine that runs since second 100."""
    machine = bench.site.add(f"pool-{number}-x", owner(f"pool-{number}"))
    machine = replace(machine, entered={Stage.RUNNING: float(EPOCH)})
    bench.site.machines[machine.id] = machine
    return machine


def used(bench: Bench) -> list[tuple[int, int]]:
    """Return the number of running machines, and the seconds used."""
    return [(row.workers, row.worker_milliseconds // 1000) for _, row in bench.metering.count_current()]


async def test_machines_are_counted_until_they_are_gone(bench: Bench) -> None:
    bench.worker("pool-0")
    machine = running(bench, 0)
    async with bench.running():
        await until(lambda: used(bench) == [(1, 100)])
        later(bench, 10)
        bench.site.tell(Changed(replace(machine, state=MachineState.STOPPED)))
        await until(lambda: bench.runner.machines.states[MachineState.STOPPED])
        later(bench, 10)
        async for _ in bench.site.delete([machine.id]):
            pass
        await until(lambda: used(bench) == [(0, 120)])


async def test_what_vanished_while_the_site_was_away_is_charged_until_it_was_last_heard(bench: Bench) -> None:
    for number in range(2):
        bench.worker(f"pool-{number}")
    lost, _ = running(bench, 0), running(bench, 1)
    async with bench.running():
        await until(lambda: used(bench) == [(2, 200)])
        del bench.site.machines[lost.id]
        bench.site.tell(UnavailableError("away"))
        await until(lambda: not bench.runner.complete)
        later(bench, 50)
        await until(lambda: used(bench) == [(1, 100 + 150)])


async def test_a_runner_that_ends_counts_no_more(bench: Bench) -> None:
    bench.worker("pool-0")
    running(bench, 0)
    async with bench.running():
        await until(lambda: used(bench) == [(1, 100)])
    later(bench, 50)
    assert used(bench) == [(1, 100)]
