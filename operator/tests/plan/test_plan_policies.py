# SPDX-License-Identifier: Apache-2.0
"""The small policies: back-off, slots, replacement, scale-in, start timings, quorum, merge patches."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_objects import NOW, at, made_ready, make_worker, not_ready

from simyard.api import names
from simyard.api.base import find_condition
from simyard.api.worker_pool import PoolStart, ScaleInPolicy
from simyard.plan.backoff import MAX_BACKOFF_SECONDS, Backoff
from simyard.plan.lost_workers import RECONNECT_SECONDS, get_time_limit
from simyard.plan.patch import make_merge_patch
from simyard.plan.pool_conditions import get_quorum
from simyard.plan.scale_in import DEFAULT_DRAIN_SECONDS, choose_victims, get_drain_seconds_left
from simyard.plan.slots import find_free_slots
from simyard.plan.start import begin_start, finish_start
from simyard.plan.worker import is_ready
from simyard.plan.workforce import Clock, split_workers


def test_back_off_grows_from_round_to_round_up_to_a_bound_and_ends_with_a_success() -> None:
    backoff, now, waits = Backoff(), NOW, []
    for _ in range(15):
        backoff = backoff.record_failure(now)
        assert backoff.until is not None
        waits.append((backoff.until - now).total_seconds())
        assert backoff.record_failure(now) == backoff or waits[-1] == 0, "a failure while it waits is of the same round"
        now = backoff.until
    assert waits[:5] == [0, 1, 2, 4, 8]
    assert max(waits) == MAX_BACKOFF_SECONDS
    assert backoff.record_ready(NOW) == backoff
    assert backoff.record_ready(at(1e6)) == Backoff()


@given(st.sets(st.integers(0, 30)), st.integers(0, 30))
def test_slots_are_the_lowest_free_ones_and_none_twice(taken: set[int], wanted: int) -> None:
    names = find_free_slots("pool", wanted, {f"pool-{slot}" for slot in taken})
    slots = [int(name.removeprefix("pool-")) for name in names]
    assert len(set(slots)) == wanted
    assert not taken & set(slots)
    assert all(free in slots or free in taken for free in range(max(slots, default=0)))


def test_each_state_has_its_time_limit() -> None:
    ready = made_ready(make_worker(), at(1))
    expected = [
        (not_ready(ready, "MachineLost", at(2)), 0),
        (not_ready(make_worker(), "MachineFailed", at(2)), 0),
        (not_ready(ready, "AdapterDisconnected", at(2)), RECONNECT_SECONDS),
        (make_worker(), 60),
        (not_ready(make_worker(), "Starting", at(2)), 60),
        (ready, None),
        (not_ready(ready, "Stopped", at(2)), None),
        (make_worker(spec={"powerState": "Stopped"}), None),
    ]
    for worker, seconds in expected:
        assert get_time_limit(worker, find_condition(worker.status.conditions, "Ready"), 60) == seconds


def test_workers_are_replaced_when_their_time_is_over() -> None:
    ready = made_ready(make_worker(), at(1))
    workers = [
        not_ready(make_worker("pool-0"), "MachineFailed", at(2), "no host"),
        not_ready(ready, "AdapterDisconnected", at(2)),
        make_worker("pool-2"),
        make_worker("pool-3"),
    ]
    clock = Clock(100.0, {workers[1].metadata.uid: 99.0, workers[2].metadata.uid: 50.0, workers[3].metadata.uid: 40.0})
    force = split_workers(workers, 60, clock)
    assert [(item.worker, item.message) for item in force.failed] == [(workers[0], "no host")]
    assert [item.worker for item in force.late] == [workers[3]]
    assert force.unready == workers[1:]
    assert force.look_again == 10


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("IdleFirst", ["pool-4", "pool-2", "pool-0", "pool-3"]),
        ("Newest", ["pool-4", "pool-3", "pool-2", "pool-0"]),
        ("Oldest", ["pool-4", "pool-0", "pool-2", "pool-3"]),
    ],
)
def test_those_that_are_not_ready_go_first_then_as_the_policy_says(policy: Any, expected: list[str]) -> None:
    workers = [made_ready(make_worker(f"pool-{slot}", requested=at(slot)), at(50)) for slot in (0, 2, 3)]
    workers.append(make_worker("pool-4", requested=at(4)))
    busy = {workers[2].metadata.uid}
    chosen = choose_victims(workers, 4, ScaleInPolicy(policy=policy), busy)
    assert [worker.metadata.name for worker in chosen] == expected
    assert choose_victims(workers, -1, ScaleInPolicy(policy=policy), busy) == []


def test_who_was_asked_to_leave_goes_before_all_others() -> None:
    workers = [made_ready(make_worker(f"pool-{slot}"), at(1)) for slot in (1, 2)]
    workers.append(make_worker("pool-3"))
    asked = {"annotations": {names.ANNOTATION_LEAVES: "true"}}
    workers[0] = workers[0].model_copy(update={"metadata": workers[0].metadata.model_copy(update=asked)})
    assert choose_victims(workers, 1, ScaleInPolicy(), {workers[0].metadata.uid}) == [workers[0]]


def test_ten_goes_before_nine() -> None:
    workers = [made_ready(make_worker(f"pool-{slot}"), at(1)) for slot in (9, 10)]
    assert choose_victims(workers, 1, ScaleInPolicy(), ())[0].metadata.name == "pool-10"


def test_a_draining_worker_ends_when_it_is_drained_or_late_or_dead() -> None:
    worker, policy = make_worker(), ScaleInPolicy(drain_seconds=30)
    uid = worker.metadata.uid
    assert get_drain_seconds_left(worker, policy, (), (), 10) == 20
    assert get_drain_seconds_left(worker, policy, {uid}, {uid}, 10) == 0, "it said so, and its status does not yet"
    assert get_drain_seconds_left(not_ready(worker, "Draining", at(5)), policy, (), {uid}, 10) == 20
    assert get_drain_seconds_left(not_ready(worker, "Drained", at(5)), policy, (), (), 1) == 0
    assert get_drain_seconds_left(not_ready(worker, "MachineLost", at(5)), policy, (), {uid}, 1) == 0


def test_without_a_limit_of_the_pool_a_worker_drains_as_long_as_its_action_runs() -> None:
    worker, policy = make_worker(), ScaleInPolicy()
    assert get_drain_seconds_left(worker, policy, (), {worker.metadata.uid}, 100_000) > 0
    assert get_drain_seconds_left(worker, policy, (), (), DEFAULT_DRAIN_SECONDS - 10) == 10
    assert get_drain_seconds_left(worker, policy, (), (), 100_000) <= 0


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 9)), max_size=12),
    st.integers(-2, 14),
    st.sampled_from(["IdleFirst", "Newest", "Oldest"]),
)
def test_those_who_go_are_never_better_than_those_who_stay(
    kinds: list[tuple[bool, bool, bool, int]], count: int, policy: Any
) -> None:
    workers, busy, outdated = [], set(), set()
    for slot, (ready, works, old, age) in enumerate(kinds):
        worker = make_worker(f"pool-{slot}", requested=at(age))
        workers.append(made_ready(worker, at(50)) if ready else worker)
        busy |= {worker.metadata.uid} if works else set()
        outdated |= {worker.metadata.uid} if old else set()
    gone = choose_victims(workers, count, ScaleInPolicy(policy=policy), busy, outdated)
    assert len(gone) == max(0, min(count, len(workers)))
    assert gone == choose_victims(workers[::-1], count, ScaleInPolicy(policy=policy), busy, outdated), (
        "order does not matter"
    )

    def worth(worker: Any) -> tuple[Any, ...]:
        uid, age = worker.metadata.uid, worker.metadata.creation_timestamp.timestamp()
        last = {"IdleFirst": uid in busy, "Newest": -age, "Oldest": age}[policy]
        return is_ready(worker), uid not in outdated, last

    stay = [worker for worker in workers if worker not in gone]
    assert all(worth(leaver) <= worth(keeper) for leaver in gone for keeper in stay)


def test_a_start_runs_from_the_change_until_all_are_ready() -> None:
    start = begin_start(None, spec_changed=True, missing=2, now=NOW)
    assert start == PoolStart(requested_time=NOW, workers=2)
    assert begin_start(start, spec_changed=False, missing=1, now=at(9)) == start, "a replacement is no start"
    assert begin_start(start, spec_changed=True, missing=0, now=at(9)) == start
    workers = [made_ready(make_worker(f"pool-{slot}"), at(slot + 1)) for slot in range(2)]
    assert finish_start(start, workers[:1], 2) == start
    done = finish_start(start, workers, 2)
    assert done is not None
    assert (done.boot_milliseconds, done.registered_milliseconds) == (2000, 2000)
    late = [*workers, made_ready(make_worker("pool-2", requested=at(60)), at(61))]
    assert finish_start(done, late, 3) == done, "a start ends once"


def test_only_the_workers_of_a_start_count_for_it() -> None:
    old = made_ready(make_worker("pool-0"), at(500))
    start = PoolStart(requested_time=at(100), workers=1)
    done = finish_start(start, [old, made_ready(make_worker("pool-1", requested=at(100)), at(103))], 2)
    assert done is not None
    assert done.registered_milliseconds == 3000


@pytest.mark.parametrize(("desired", "percent", "needed"), [(3, 100, 3), (3, 50, 2), (10, 1, 1), (7, 90, 7)])
def test_a_quorum_is_rounded_up(desired: int, percent: int, needed: int) -> None:
    assert get_quorum(desired, percent) == needed


JSON = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=2), JSON, max_size=4)


def apply(old: Any, patch: Any) -> Any:
    """RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply(result.get(name), value)
    return result


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_turns_one_into_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert apply(old, make_merge_patch(old, new)) == new
    assert make_merge_patch(old, old) == {}


def test_times_are_never_negative() -> None:
    start = PoolStart(requested_time=at(10), workers=1)
    done = finish_start(start, [made_ready(make_worker(requested=at(10)), at(9))], 1)
    assert done is not None
    assert done.registered_milliseconds == 0
    assert isinstance(done.requested_time, datetime)


def test_a_clock_that_is_set_back_holds_up_no_replacement() -> None:
    backoff = Backoff(rounds=3, until=at(4))
    assert backoff.is_waiting(at(1))
    assert not backoff.is_waiting(at(-86_400))
