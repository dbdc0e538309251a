# SPDX-License-Identifier: Apache-2.0
"""How often what is looked at, and what that costs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard_dev.providers import complete_open_nebula
from simyard_simulators.oned import WIDE, State
from simyard_simulators.oned.settings import Latencies
from simyard_sites.base import SiteConfig
from simyard_sites.opennebula.settings import Settings
from simyard_sites.opennebula.watching import PollSchedule

CONFIG = SiteConfig("one", complete_open_nebula(), {"username": "simyard", "password": "secret"})
SETTINGS = Settings.from_config(CONFIG)


def test_while_nothing_moves_a_look_comes_every_30_s() -> None:
    schedule = PollSchedule.begin(SETTINGS, 100.0)
    assert schedule.compute_next_poll(100.0, moving=False) == 130.0
    assert schedule.compute_next_poll(129.0, moving=False) == 130.0


def test_what_moves_is_looked_at_twice_a_second_and_less_often_when_nothing_happens_for_long() -> None:
    schedule = PollSchedule.begin(SETTINGS, 0.0)
    pauses = [schedule.compute_next_poll(now, moving=True) - now for now in (0.0, 9.0, 20.0)]
    assert pauses == [0.5, 0.5, 1.0]
    schedule.all_at = 1000.0
    assert schedule.compute_next_poll(600.0, moving=True) - 600.0 == 5.0
    schedule.record_poll(600.0, 600.1, changed=True)
    assert schedule.compute_next_poll(600.1, moving=True) - 600.1 == pytest.approx(0.5)


@given(st.floats(0, 100), st.floats(0, 10_000), st.booleans())
def test_looks_leave_a_slow_site_alone_and_never_wait_longer_than_the_quiet_pause(
    seconds: float, now: float, moving: bool
) -> None:
    schedule = PollSchedule.begin(SETTINGS, now)
    schedule.record_poll(now - seconds, now, changed=False)
    pause = schedule.compute_next_poll(now, moving=moving) - now
    assert pause <= 30.0 + 1e-6
    assert pause >= min(4 * seconds, 30.0) - 1e-6


async def looks(yard: Any, count: int) -> tuple[float, int, int]:
    """What so many looks at everything cost: time of the server in its model, rows scanned, requests."""
    site = yard.site()
    await site.list_owned()
    yard.oned.counters.reset()
    for _ in range(count):
        await site._view.read(site._table.list_ids())
        await site._view.read_new()
    counters = yard.oned.counters
    return sum(counters.cost_milliseconds.values()), counters.scanned_rows, counters.requests


async def test_a_look_costs_the_same_however_many_machines_have_finished(make_yard: Any) -> None:
    costs = []
    for finished in (600, 25_600):
        yard = await make_yard()
        yard.oned.fill(finished=finished)
        await yard.create(yard.site(), *(f"m{number}" for number in range(50)))
        costs.append(await looks(yard, 3))
    assert costs[0] == costs[1]
    assert costs[0][2] == 6


async def test_machines_that_rest_are_left_alone_while_others_start(make_yard: Any) -> None:
    yard = await make_yard(time_scale=0.05, latencies=Latencies(prolog=4, boot=4))
    site = yard.site(quietPollSeconds=3600)
    seen = yard.watch(site)
    resting = [f"r{number}" for number in range(30)]
    await yard.create(site, *resting)
    await seen.until_all("Running", *resting)
    yard.oned.counters.reset()
    asked: list[int] = []
    query = yard.oned._methods._methods["one.vmpool.infoset"]
    yard.oned._methods._methods["one.vmpool.infoset"] = lambda user, given: (
        asked.append(len(given.string(1).split(","))) or query(user, given)
    )
    await yard.create(site, "a")
    await seen.until_all("Running", "a", *resting)
    assert set(asked) == {1}
    assert yard.oned.counters.calls["one.vmpool.info"] == 4  # the one look for what is new, after it was made


async def test_a_machine_that_rests_and_goes_is_missed_at_the_next_look_at_all(yard: Any) -> None:
    site = yard.site()
    seen = yard.watch(site)
    [machine] = await yard.create(site, "a")
    await seen.until_all("Running", "a")
    yard.oned.cloud.index(yard.vm(machine), State.DONE, yard.vm(machine).lcm)
    await seen.until(lambda machines: not machines)


async def test_ten_thousand_machines_are_seen_with_few_requests(make_yard: Any) -> None:
    yard = await make_yard(scheduler=WIDE, hosts=200)
    site = yard.site()
    yard.oned.fill(running=3)
    await yard.create(site, "a")
    ids = [int(machine.id) for machine in await site.list_owned()]
    yard.oned.counters.reset()
    await site._view.read([*ids, *range(100_000, 110_000 - 1)])
    assert yard.oned.counters.requests == 20
    assert [machine.name for machine in await site.list_owned()] == ["a"]
