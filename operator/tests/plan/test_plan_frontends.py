# SPDX-License-Identifier: Apache-2.0
"""Number of a service's frontends: bounds, hysteresis, unknown load, and the conditions about it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simyard.api.frontend import Autoscaling
from simyard.plan.frontends import (
    BLIND_SECONDS,
    MAX_STABILISATION_SECONDS,
    MIN_READS,
    STABILISATION_SECONDS,
    STEP_SECONDS,
    Figures,
    Load,
    ReplicaLoad,
    Scaling,
    describe_load,
    measure_replica_load,
    plan_scaling,
)

LOOK = 15.0
MOST = 64
DAY = 86_400
MOST_TRIES_A_DAY = 12
"""Maximum number of scale-ins per day that do not last: after 5 min, 10 min, 20 min, .. and at last 4 h."""

counts = st.integers(0, 10_000)
latencies = st.floats(0, 10, allow_nan=False)
replica_loads = st.one_of(st.none(), st.builds(ReplicaLoad, counts, latencies))
loads = st.builds(
    Load, st.one_of(st.none(), counts), st.lists(replica_loads, max_size=MOST).map(tuple), st.integers(0, 2)
)
times = st.floats(0, 1e6, allow_nan=False)


@st.composite
def specs(draw: st.DrawFn) -> Autoscaling:
    smallest = draw(st.integers(1, MOST))
    return Autoscaling(
        min_replicas=smallest,
        max_replicas=draw(st.integers(smallest, MOST)),
        target_queue_depth=draw(st.integers(1, 1000)),
        target_latency_milliseconds=draw(st.integers(1, 5000)),
    )


@st.composite
def states(draw: st.DrawFn) -> Scaling:
    time = st.one_of(st.none(), times)
    return Scaling(draw(st.integers(0, MOST)), draw(time), draw(time), draw(st.integers(0, 20)), draw(time))


def spec_of(low: int = 1, high: int = 16, depth: int = 10, latency: int = 100) -> Autoscaling:
    return Autoscaling(
        min_replicas=low, max_replicas=high, target_queue_depth=depth, target_latency_milliseconds=latency
    )


def busy(depth: int | None = 0, seconds: float = 0.001, ready: int = 1) -> Load:
    return Load(depth, (ReplicaLoad(1000, seconds),) * ready)


def clamped(replicas: int, spec: Autoscaling) -> int:
    return min(max(replicas, spec.min_replicas), spec.max_replicas)


# One look


@given(specs(), states(), loads, times)
def test_the_bounds_always_hold(spec: Autoscaling, state: Scaling, load: Load, now: float) -> None:
    assert spec.min_replicas <= plan_scaling(spec, state, load, now).replicas <= spec.max_replicas


@given(specs(), states(), loads, times)
def test_a_look_at_most_doubles_them_or_takes_one_away(
    spec: Autoscaling, state: Scaling, load: Load, now: float
) -> None:
    before, after = clamped(state.replicas, spec), plan_scaling(spec, state, load, now).replicas
    assert before - 1 <= after <= 2 * before


@given(specs(), states(), loads, times)
def test_what_is_unknown_never_takes_one_away(spec: Autoscaling, state: Scaling, load: Load, now: float) -> None:
    before = clamped(state.replicas, spec)
    for unknown in (
        replace(load, queue_depth=None),
        replace(load, replicas=(*load.replicas, None)),
        replace(load, replicas=()),
    ):
        after = plan_scaling(spec, state, unknown, now)
        assert after.replicas >= before
        assert after.quiet_since is None, "the quiet time begins anew"


@given(specs(), states(), loads, times, counts, latencies)
def test_more_load_never_means_fewer(
    spec: Autoscaling, state: Scaling, load: Load, now: float, waiting: int, slower: float
) -> None:
    more = Load(
        None if load.queue_depth is None else load.queue_depth + waiting,
        tuple(item and replace(item, latency_seconds=item.latency_seconds + slower) for item in load.replicas),
        load.silent,
    )
    assert plan_scaling(spec, state, more, now).replicas >= plan_scaling(spec, state, load, now).replicas


@given(specs(), states(), loads, times)
def test_within_the_tolerance_of_a_target_nothing_changes(
    spec: Autoscaling, state: Scaling, load: Load, now: float
) -> None:
    current = clamped(state.replicas, spec)
    for share in (0.95, 1.0, 1.05):
        depth = int(spec.target_queue_depth * current * share)
        seconds = spec.target_latency_milliseconds / 1000 * share
        near = Load(depth, (ReplicaLoad(1000, seconds),) * current)
        assert plan_scaling(spec, state, near, now).replicas == current


def test_a_queue_that_is_too_long_brings_more_at_once() -> None:
    spec = spec_of(depth=10)
    assert plan_scaling(spec, Scaling(4), busy(70), 0).replicas == 7
    assert plan_scaling(spec, Scaling(4), busy(700), 0).replicas == 8, "twice as many at most"
    assert plan_scaling(spec, Scaling(12), busy(700), 0).replicas == 16, "maxReplicas"


def test_slow_answers_bring_more_in_proportion() -> None:
    spec = spec_of(latency=100)
    assert plan_scaling(spec, Scaling(4), busy(seconds=0.15, ready=4), 0).replicas == 6
    assert plan_scaling(spec, Scaling(6), busy(seconds=0.15, ready=4), LOOK).replicas == 6, "two of them are starting"


def test_the_known_part_of_the_load_can_bring_more() -> None:
    spec = spec_of()
    assert plan_scaling(spec, Scaling(2), busy(None, 0.2, ready=2), 0).replicas == 4
    assert plan_scaling(spec, Scaling(2), Load(40, ()), 0).replicas == 4
    assert plan_scaling(spec, Scaling(2), Load(0, (ReplicaLoad(500, 0.2), None)), 0).replicas == 4


def test_other_bounds_count_at_once() -> None:
    quiet = busy()
    assert plan_scaling(spec_of(5, 8), Scaling(2), quiet, 0).replicas == 5
    assert plan_scaling(spec_of(1, 3), Scaling(9), quiet, 0).replicas == 3


def test_more_than_the_limit_is_said_and_unknown_after_a_minute() -> None:
    spec = spec_of(1, 2)
    assert plan_scaling(spec, Scaling(2), busy(1000), 0).limited
    assert not plan_scaling(spec, Scaling(2, limited=True), busy(0), 0).limited
    first = plan_scaling(spec, Scaling(2), busy(None), 0)
    assert not first.blind
    second = plan_scaling(spec, first, busy(None), BLIND_SECONDS)
    assert second.blind
    assert not plan_scaling(spec, second, busy(), BLIND_SECONDS + 1).blind


# A time of looks


def history(spec: Autoscaling, load: Callable[[float, int], Load], seconds: float, start: int = 1) -> list[int]:
    """Return the number of frontends after each measurement; ``load`` gets the time and the number."""
    state, result = Scaling(start), []
    for number in range(int(seconds / LOOK)):
        now = number * LOOK
        state = plan_scaling(spec, state, load(now, state.replicas), now)
        result.append(state.replicas)
    return result


def reversals(numbers: list[int]) -> int:
    """Return the number of changes of direction."""
    steps = [other > one for one, other in pairwise(numbers) if one != other]
    return sum(one != other for one, other in pairwise(steps))


def test_they_go_one_by_one_after_a_quiet_time() -> None:
    numbers = history(spec_of(), lambda now, n: busy(ready=n), 3600, start=5)
    wait, step = int(STABILISATION_SECONDS / LOOK), int(STEP_SECONDS / LOOK)
    steps = [index for index, (one, other) in enumerate(pairwise(numbers), 1) if one != other]
    assert numbers[-1] == 1
    assert steps == [wait, wait + step, wait + 2 * step, wait + 3 * step]


@given(st.lists(loads, min_size=1, max_size=200), specs())
def test_after_more_came_none_goes_for_the_stabilisation_time(sequence: list[Load], spec: Autoscaling) -> None:
    state, grown_at = Scaling(spec.min_replicas), None
    for number, load in enumerate(sequence):
        now = number * LOOK
        after = plan_scaling(spec, state, load, now)
        if after.replicas > state.replicas:
            grown_at = now
        if after.replicas < clamped(state.replicas, spec) and grown_at is not None:
            assert now - grown_at >= STABILISATION_SECONDS
        state = after


class Traffic:
    """Frontends as a queueing system: so many requests per second arrive, each frontend serves so many.

    Latency is that of M/M/1 at each frontend, bounded; what is not served waits in the queue.
    """

    def __init__(self, rate: Callable[[float], float], noise: float, seed: int, capacity: float = 100.0) -> None:
        self._rate, self._noise, self._capacity = rate, noise, capacity
        self._random = random.Random(seed)
        self._backlog = 0.0

    def load(self, now: float, replicas: int) -> Load:
        rate = self._rate(now) * self._random.uniform(1 - self._noise, 1 + self._noise)
        self._backlog = max(0.0, self._backlog + (rate - self._capacity * replicas) * LOOK)
        use = min(0.99, rate / (self._capacity * replicas))
        latency = 1 / self._capacity / (1 - use)
        return Load(int(self._backlog), (ReplicaLoad(int(rate * LOOK / replicas), latency),) * replicas)


@given(st.floats(1, 1500), st.floats(0, 0.1), st.integers(0, 2**32), st.integers(1, 16))
@example(rate=100.0, noise=0.0, seed=0, start=16)
@example(rate=189.0, noise=0.1, seed=1, start=1)
def test_a_steady_load_with_noise_is_not_followed_to_and_fro(rate: float, noise: float, seed: int, start: int) -> None:
    traffic = Traffic(lambda now: rate, noise, seed)
    numbers = history(spec_of(latency=50), traffic.load, DAY, start)
    assert reversals(numbers) <= MOST_TRIES_A_DAY * 2


@given(st.floats(1, 1500), st.integers(0, 2**32))
def test_a_steady_load_is_served_in_the_end(rate: float, seed: int) -> None:
    traffic = Traffic(lambda now: rate, 0.05, seed)
    numbers = history(spec_of(latency=50), traffic.load, 3600)
    assert numbers[-1] * 100 >= rate


def test_a_step_that_has_to_be_taken_back_is_tried_less_and_less_often() -> None:
    """Three are needed, and with three nothing shows that two would not do: an empty queue is all that is seen."""
    numbers = history(spec_of(), lambda now, n: busy(0 if n >= 3 else 1000, ready=n), DAY, start=3)
    tries = [index for index, (one, other) in enumerate(pairwise(numbers)) if other == 2 and one == 3]
    pauses = [(other - one) * LOOK for one, other in pairwise(tries)]
    assert len(tries) <= MOST_TRIES_A_DAY
    assert pauses == sorted(pauses)
    assert pauses[-1] >= MAX_STABILISATION_SECONDS


def test_the_load_of_a_day_is_followed_up_and_down() -> None:
    def rate(now: float) -> float:
        return 900.0 if 8 * 3600 <= now < 18 * 3600 else 50.0

    traffic = Traffic(rate, 0.05, 7)
    numbers = history(spec_of(latency=50), traffic.load, DAY)
    at_hour = [numbers[int(hour * 3600 / LOOK)] for hour in (4, 12, 23)]
    assert at_hour[1] >= 9
    assert at_hour[0] <= 2
    assert at_hour[2] <= 2


# Figures


def test_the_load_is_the_difference_of_the_figures() -> None:
    before, after = Figures(100, 1.0, 10, 0.5), Figures(200, 3.0, 30, 0.7)
    found = measure_replica_load(before, after)
    assert found is not None
    assert found.reads == 100
    assert found.latency_seconds == pytest.approx(0.02 + 0.01)


@pytest.mark.parametrize("after", [None, Figures(99, 9, 11, 1), Figures(100, 1, 10, 0.5), Figures(5, 0.1, 2, 0.1)])
def test_counters_that_are_missing_or_began_anew_are_unknown(after: Figures | None) -> None:
    assert measure_replica_load(Figures(100, 1.0, 10, 0.5), after) is None
    assert measure_replica_load(None, Figures(100, 1.0, 10, 0.5)) is None


def test_a_few_slow_reads_do_not_count_but_a_loop_that_is_late_does() -> None:
    found = measure_replica_load(Figures(0, 0, 0, 0), Figures(MIN_READS - 1, 100.0, 10, 5.0))
    assert found == ReplicaLoad(MIN_READS - 1, 0.5)


def test_the_latency_of_all_is_weighted_by_what_each_has_answered() -> None:
    assert busy(seconds=0.25, ready=3).latency_seconds == pytest.approx(0.25)
    uneven = Load(0, (ReplicaLoad(998, 0.2), ReplicaLoad(0, 0.0), None))
    assert uneven.latency_seconds == pytest.approx(0.2, rel=0.01)
    assert Load(0, (None,)).latency_seconds is None


def test_the_event_has_both_figures() -> None:
    assert describe_load(spec_of(), busy(12, 0.25)) == (
        "12 requests wait (target 10 for each frontend), mean latency 250 ms (target 100 ms)"
    )
    assert "an unknown number of requests" in describe_load(spec_of(), Load(None))


@given(st.integers(1, 10), st.integers(1, 10), st.one_of(st.none(), st.integers(0, 5)))
def test_frontends_that_are_too_busy_to_tell_ask_for_as_many_more(silent: int, ready: int, depth: int | None) -> None:
    spec = Autoscaling(min_replicas=1, max_replicas=MOST, target_queue_depth=100, target_latency_milliseconds=100)
    load = Load(depth, (*([None] * silent), *([ReplicaLoad(10, 0.001)] * ready)), silent)
    after = plan_scaling(spec, Scaling(silent + ready), load, 0.0)
    assert after.replicas == 2 * silent + ready
    assert plan_scaling(spec, after, load, LOOK).replicas == after.replicas, "those that start are not asked for again"
    assert f"{silent} do not answer" in describe_load(spec, load)
