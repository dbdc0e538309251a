# SPDX-License-Identifier: Apache-2.0
"""Settings that the tuner and the pace find for different kinds of sites, in simulated time."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuned_site import Bucket, Fast, Noisy, Run, Servers

from simyard.plan.pace import Pace
from simyard.plan.tuner import MAX_PER_BATCH, START, Answer, Bounds, Setting, Tuner
from simyard_dev.providers import complete_emulated
from simyard_sites.base import Owner, Stage, ThrottledError
from simyard_sites.emulated.bound import bound
from simyard_sites.emulated.cloud import Cloud
from simyard_sites.emulated.queueing import Front
from simyard_sites.emulated.settings import Settings


def test_a_fast_site_gets_all_that_is_permitted_soon() -> None:
    run = Run(Fast(seconds=0.02)).until(1.0)
    assert run.tuner.base.in_flight == 1000
    assert run.tuner.base.batch == MAX_PER_BATCH
    assert run.tuner.is_bound
    assert run.accepted >= 10_000, "in the first second"


def test_a_site_that_serves_items_of_a_call_one_by_one_gets_many_calls() -> None:
    class Single(Fast):
        def call(self, now: float, items: int) -> tuple[float, int]:
            return now + 0.01 + 0.01 * items, items

    run = Run(Single()).until(5.0)
    assert run.tuner.base.calls >= 100
    assert run.tuner.base.batch <= 8


def test_a_site_that_serves_one_after_the_other_is_kept_busy_with_little() -> None:
    run = Run(Servers(call_seconds=0.0, item_seconds=0.01)).until(60.0)
    assert run.accepted >= 0.95 * 60 * 100
    assert run.tuner.base.in_flight <= 4
    assert run.most_in_flight <= 4 * START.in_flight


def test_a_call_s_own_cost_is_spread_over_as_many_items_as_pay() -> None:
    run = Run(Servers(call_seconds=0.2, item_seconds=0.001)).until(120.0)
    begin = run.accepted
    run.until(180.0)
    assert (run.accepted - begin) / 60 >= 0.6 / 0.001 / 2
    assert run.tuner.base.batch >= 64


def test_several_servers_are_all_kept_busy() -> None:
    run = Run(Servers(count=8)).until(30.0)
    assert run.tuner.base.calls >= 8
    assert run.most_in_flight <= 8 * 8 * START.batch


def test_a_site_that_becomes_slower_gets_less_and_more_again_when_it_recovers() -> None:
    site = Servers(count=16)
    run = Run(site).until(30.0)
    before = run.tuner.base
    site.count = 4
    run.until(90.0)
    slow = run.tuner.base
    assert slow.in_flight <= before.in_flight / 2
    site.count = 16
    begin = run.accepted
    run.until(180.0)
    assert run.tuner.base.in_flight >= 2 * slow.in_flight
    assert run.accepted - begin >= 0.6 * 90 * 16 * START.batch / 0.04


@pytest.mark.parametrize("seed", range(3))
def test_noise_does_not_mislead_it(seed: int) -> None:
    run = Run(Noisy(Servers(call_seconds=0.0, item_seconds=0.005, count=4), random.Random(seed))).until(60.0)
    assert run.tuner.base.in_flight <= 256
    assert run.accepted >= 0.6 * 60 * 4 / 0.005


def test_a_site_whose_calls_take_long_is_not_asked_until_its_answers_are_lost() -> None:
    run = Run(Servers(call_seconds=0.0, item_seconds=0.333))
    run.check = lambda run: None if run.tuner.setting.in_flight * 0.333 <= 30 else pytest.fail("calls time out")
    run.until(300.0)
    assert run.accepted >= 0.95 * 300 * 3


@pytest.mark.parametrize(
    ("rate", "burst", "retry_after_seconds"),
    [(100, 100, None), (100, 20, None), (5, 10, None), (100, 100, 1.0), (5, 10, 1.0), (100, 20, 0.1)],
)
def test_a_site_that_refuses_gets_nearly_what_it_bears_and_refuses_little(
    rate: float, burst: float, retry_after_seconds: float | None
) -> None:
    run = Run(Bucket(rate, burst, retry_after_seconds)).until(60.0)
    accepted, refused = run.accepted, run.refused
    run.until(240.0)
    assert run.accepted - accepted >= 0.9 * 180 * rate
    assert run.refused - refused <= 0.03 * (run.accepted - accepted)


def test_a_refusing_site_whose_capacity_halves_and_recovers_is_followed() -> None:
    site = Bucket(100, 20)
    run = Run(site).until(60.0)
    site.rate = 50
    accepted = run.until(70.0).accepted
    assert run.until(120.0).accepted - accepted >= 0.9 * 50 * 50
    site.rate = 100
    accepted = run.until(160.0).accepted
    assert run.until(240.0).accepted - accepted >= 0.85 * 80 * 100


def test_a_batch_that_never_fits_becomes_smaller() -> None:
    class Whole(Bucket):
        def call(self, now: float, items: int) -> tuple[float, int]:
            end, accepted = super().call(now, items)
            self._tokens += accepted if accepted < items else 0
            return end, accepted if accepted == items else 0

    run = Run(Whole(200, 20)).until(60.0)
    assert run.accepted >= 0.5 * 60 * 200


def test_a_quiet_night_teaches_nothing() -> None:
    pace = Pace(1000.0).start_work(0.0).record_answer(100, 10, sent_at=0.0, now=1.0).stop_work(2.0)
    assert pace.get_rate(2.0) == pace.get_rate(50_000.0)


def test_the_declared_rate_holds_whatever_was_learned() -> None:
    pace = Pace(50.0).start_work(0.0)
    assert pace.get_rate(0.0) == 50
    pace = pace.record_answer(1000, 1, sent_at=0.0, now=1.0)
    assert all(pace.get_rate(float(now)) <= 50 for now in range(1000))
    assert pace.with_bound(10.0).get_rate(5.0) <= 10


def test_calls_that_fail_halve_it_and_it_grows_again() -> None:
    run = Run(Fast()).until(1.0)
    halved = run.tuner.record_failure(run.tuner.round)
    assert halved.base.in_flight <= run.tuner.base.in_flight / 2
    assert halved.record_failure(run.tuner.round) == halved, "an answer to what was sent before says nothing new"
    run.tuner = halved
    assert run.until(3.0).tuner.base.in_flight == 1000


def test_after_an_outage_it_begins_as_small_as_at_first() -> None:
    run = Run(Fast()).until(1.0)
    again = run.tuner.restart()
    assert (again.setting.batch, again.growing) == (START.batch, True)
    assert again.setting.calls <= START.calls
    assert again.record_failure(run.tuner.round) == again, "an answer to what was sent before says nothing new"
    small = replace(again, base=Setting(2, 1)).restart()
    assert small.setting == Setting(2, 1), "what bore less is not asked for more"
    run.tuner = again
    assert run.until(3.0).tuner.base.in_flight == 1000


@pytest.mark.parametrize(("call_seconds", "grows"), [(0.1, True), (20.0, False)])
def test_only_the_site_s_own_time_counts_as_slow(call_seconds: float, grows: bool) -> None:
    tuner = Tuner.start(Bounds(1000))
    for _ in range(START.calls):
        tuner = tuner.record_answer(Answer(tuner.round, START.batch, 20.0, full=True, call_seconds=call_seconds))
    assert (tuner.setting.in_flight > START.in_flight) is grows


def test_answers_of_a_site_that_is_hardly_asked_teach_nothing() -> None:
    tuner = Tuner.start(Bounds(1000))
    for _ in range(100):
        tuner = tuner.record_answer(Answer(tuner.round, 1, 0.01, full=False, call_seconds=0.01))
    assert tuner == Tuner.start(Bounds(1000))


def test_other_bounds_are_kept_at_once() -> None:
    run = Run(Fast()).until(1.0)
    assert run.tuner.with_bounds(Bounds(10)).setting.in_flight <= 10
    assert run.tuner.with_bounds(run.tuner.bounds) is run.tuner


@given(
    st.integers(1, 2000),
    st.integers(1, 600),
    st.lists(st.tuples(st.sampled_from("adtf"), st.floats(0, 40), st.booleans()), max_size=200),
)
def test_it_stays_within_its_bounds_and_never_stops(
    in_flight: int, batch: int, story: list[tuple[str, float, bool]]
) -> None:
    bounds = Bounds(in_flight, batch)
    tuner = Tuner.start(bounds)
    for what, seconds, old in story:
        round_ = tuner.round - old
        if what == "f":
            tuner = tuner.record_failure(round_)
        elif what == "t":
            tuner = tuner.record_throttle(round_)
        else:
            items = tuner.setting.batch if what == "a" else 1
            tuner = tuner.record_answer(Answer(round_, items, seconds, full=what == "a", call_seconds=seconds))
        for setting in (tuner.setting, tuner.base):
            assert setting.calls >= 1
            assert 1 <= setting.batch <= batch
            assert setting.in_flight <= in_flight
    for _ in range(2000):
        tuner = tuner.record_answer(Answer(tuner.round, tuner.setting.batch, 0.01, full=True, call_seconds=0.01))
    assert tuner.base.in_flight >= min(in_flight, batch, START.in_flight) / 4, "it grows again"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.floats(0.001, 30), st.booleans()), max_size=100))
def test_a_pace_never_stops_and_never_passes_its_bound(story: list[tuple[int, int, float, bool]]) -> None:
    pace, now = Pace(100.0).start_work(0.0), 0.0
    for accepted, refused, seconds, rests in story:
        sent, now = now, now + seconds
        pace = pace.record_answer(accepted, refused, sent_at=sent, now=now)
        pace = pace.stop_work(now) if rests else pace.start_work(now)
        assert 0 < pace.get_rate(now) <= 100
        assert pace.get_batch(now) >= 1
        assert pace.paused_until <= now + 1
    pace = pace.start_work(now)
    assert pace.get_rate(now + 1000) == 100


def test_small_bounds_are_used_to_the_full() -> None:
    assert [Tuner.start(Bounds(most)).setting for most in (1, 3, 8)] == [Setting(1, 1), Setting(3, 1), Setting(4, 2)]


class Emulated:
    """The model of an emulated cloud's front end, and of what it does with 512 machines."""

    retry_after_seconds = None

    def __init__(self, provider: dict[str, Any], machines: int) -> None:
        self.settings = Settings.from_provider(complete_emulated(**provider))
        self.front, self.cloud = Front(), Cloud(self.settings)
        self.left = machines
        self._ends: list[float] = []

    def call(self, now: float, items: int) -> tuple[float, int]:
        while self._ends and self._ends[0] <= now:
            heapq.heappop(self._ends)
            self.front.end()
        try:
            self.front.begin(self.settings)
        except ThrottledError:
            return now + 0.001, 0
        served = self.front.serve(items, self.settings, now)
        for at in served[: self.left]:
            self.cloud.create(f"bound-{len(self.cloud)}", Owner("bound", "bound", "bound"), at)
        self.left = max(0, self.left - items)
        heapq.heappush(self._ends, served[-1])
        return served[-1] + 0.001, items

    def last_seconds(self) -> float:
        while (due := self.cloud.get_next_change()) is not None:
            self.cloud.advance(due)
        found = [machine for machine in map(self.cloud.find_machine, self.cloud.list_ids()) if machine is not None]
        return max(machine.entered[Stage.RUNNING] for machine in found)


@pytest.mark.parametrize(
    "profile", ["opennebula-2015-default", "opennebula-2015-tuned", "kubevirt-default", "kubevirt-tuned"]
)
def test_an_emulated_cloud_s_start_is_at_most_5_percent_above_what_it_can_do_at_best(profile: str) -> None:
    provider = complete_emulated(profile=profile)
    site = Emulated(provider, 512)
    run = Run(site, rate=10_000.0)
    while site.left:
        run.until(run.now + 1.0)
    assert site.last_seconds() <= 1.05 * bound(provider, 512).last_seconds
