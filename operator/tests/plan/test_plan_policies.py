"""The small policies: back-off, slots, replacement, scale-in, start timings, quorum, merge patches."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_objects import NOW, at, made_ready, make_worker, not_ready

from simyard.api.worker_pool import PoolStart, ScaleInPolicy
from simyard.plan.backoff import MOST_SECONDS, Backoff
from simyard.plan.patch import merge_patch
from simyard.plan.pool_conditions import quorum
from simyard.plan.replacement import RECONNECT_SECONDS, judge
from simyard.plan.scale_in import drain_ends, victims
from simyard.plan.slots import free_slots
from simyard.plan.start import begin_start, finish_start


def test_back_off_grows_from_round_to_round_up_to_a_bound_and_ends_with_a_success() -> None:
    backoff, now, waits = Backoff(), NOW, []
    for _ in range(15):
        backoff = backoff.failed(now)
        assert backoff.until is not None
        waits.append((backoff.until - now).total_seconds())
        assert backoff.failed(now) == backoff or waits[-1] == 0, "a failure while it waits is of the same round"
        now = backoff.until
    assert waits[:5] == [0, 1, 2, 4, 8]
    assert max(waits) == MOST_SECONDS
    assert backoff.recovered(NOW) == backoff
    assert backoff.recovered(at(1e6)) == Backoff()


@given(st.sets(st.integers(0, 30)), st.integers(0, 30))
def test_slots_are_the_lowest_free_ones_and_none_twice(taken: set[int], wanted: int) -> None:
    names = free_slots("pool", wanted, {f"pool-{slot}" for slot in taken})
    slots = [int(name.removeprefix("pool-")) for name in names]
    assert len(set(slots)) == wanted
    assert not taken & set(slots)
    assert all(free in slots or free in taken for free in range(max(slots, default=0)))


def test_workers_are_replaced_for_what_cannot_mend_itself() -> None:
    ready = made_ready(make_worker(), at(1))
    assert judge(not_ready(ready, "MachineLost", at(2)), 60, at(3)).reason == "MachineLost"
    assert judge(not_ready(make_worker(), "MachineFailed", at(2)), 60, at(3)).reason == "MachineFailed"
    disconnected = not_ready(ready, "AdapterDisconnected", at(2))
    assert judge(disconnected, 60, at(3)).look_again == at(2 + RECONNECT_SECONDS)
    assert judge(disconnected, 60, at(2 + RECONNECT_SECONDS)).reason == "AdapterDisconnected"
    assert judge(make_worker(), 60, at(59)).look_again == at(60)
    assert judge(make_worker(), 60, at(60)).reason == "ReadinessDeadlineExceeded"
    assert judge(ready, 60, at(1000)).reason == ""
    assert judge(make_worker(spec={"powerState": "Stopped"}), 60, at(1000)).reason == ""


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
    chosen = victims(workers, 4, ScaleInPolicy(policy=policy), busy)
    assert [worker.metadata.name for worker in chosen] == expected
    assert victims(workers, -1, ScaleInPolicy(policy=policy), busy) == []


def test_ten_goes_before_nine() -> None:
    workers = [made_ready(make_worker(f"pool-{slot}"), at(1)) for slot in (9, 10)]
    assert victims(workers, 1, ScaleInPolicy(), ())[0].metadata.name == "pool-10"


def test_a_draining_worker_ends_when_it_is_drained_or_late() -> None:
    worker, policy = make_worker(), ScaleInPolicy(drain_seconds=30)
    assert drain_ends(worker, policy) is None
    assert drain_ends(not_ready(worker, "Draining", at(5)), policy) == at(35)
    assert drain_ends(not_ready(worker, "Drained", at(5)), policy) == at(5)


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
    assert quorum(desired, percent) == needed


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
    assert apply(old, merge_patch(old, new)) == new
    assert merge_patch(old, old) == {}


def test_times_are_never_negative() -> None:
    start = PoolStart(requested_time=at(10), workers=1)
    done = finish_start(start, [made_ready(make_worker(requested=at(10)), at(9))], 1)
    assert done is not None
    assert done.registered_milliseconds == 0
    assert isinstance(done.requested_time, datetime)
