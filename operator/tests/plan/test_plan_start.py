# SPDX-License-Identifier: Apache-2.0
"""The figures of a pool's start."""

from __future__ import annotations

from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st
from plan_objects import NOW, at, make_condition, make_worker, with_status

from simyard.api.worker import Stages, Worker
from simyard.api.worker_pool import PoolStart, WorkerPoolStatus
from simyard.plan.start import finish_start, measure_stages, publish_start

START = PoolStart(requested_time=NOW, workers=2)


def started(name: str, *seconds: float) -> Worker:
    """A ready worker that entered the stages at these times."""
    names = ("start", "pending", "prolog", "boot", "running", "registered")
    stages = Stages(**{stage: at(second) for stage, second in zip(names, seconds, strict=True)})
    return with_status(make_worker(name), stages=stages, conditions=[make_condition("Ready", True, "Registered")])


def test_a_finished_start_says_how_long_each_stage_took() -> None:
    workers = [started("a", 0, 1, 2, 3, 5, 5.5), started("b", 0, 1, 4, 5, 6, 6.2), started("c", 0, 2, 3, 4, 7, 7.1)]
    start = finish_start(START, workers, 3)
    assert start is not None
    assert (start.boot_milliseconds, start.registered_milliseconds) == (7000, 7100)
    assert start.published_milliseconds is None
    assert start.stages is not None
    assert start.stages.to_json() == {
        "pending": {"medianMilliseconds": 1000, "slowestMilliseconds": 2000},
        "prolog": {"medianMilliseconds": 1000, "slowestMilliseconds": 3000},
        "boot": {"medianMilliseconds": 1000, "slowestMilliseconds": 1000},
        "running": {"medianMilliseconds": 2000, "slowestMilliseconds": 3000},
        "registered": {"medianMilliseconds": 200, "slowestMilliseconds": 500},
    }


def test_a_start_is_not_finished_before_all_are_there() -> None:
    assert finish_start(START, [started("a", 0, 1, 2, 3, 5, 5.5)], 2) == START
    assert finish_start(START, [started("a", 0, 1, 2, 3, 5, 5.5), make_worker("b")], 2) == START


@given(st.lists(st.one_of(st.none(), st.integers(0, 10_000)), min_size=6, max_size=6))
def test_stages_with_an_unknown_end_are_left_out_and_none_is_negative(seconds: list[int | None]) -> None:
    names = ("start", "pending", "prolog", "boot", "running", "registered")
    known = {stage: at(second) for stage, second in zip(names, seconds, strict=True) if second is not None}
    found = measure_stages(Stages(**known))
    assert all(value >= 0 for value in found.values())
    pairs = zip(seconds, seconds[1:], names[1:], strict=False)
    assert set(found) == {name for first, last, name in pairs if first is not None and last is not None}


REGISTERED = WorkerPoolStatus(start=START.model_copy(update={"registered_milliseconds": 5000}))


def published(stored: WorkerPoolStatus, previous: WorkerPoolStatus, now: datetime) -> int | None:
    start = publish_start(stored, previous, now).start
    return start.published_milliseconds if start is not None else None


def test_t_m_is_when_the_api_server_has_stored_t_r() -> None:
    assert published(REGISTERED, WorkerPoolStatus(start=START), at(5.25)) == 5250
    assert published(REGISTERED, WorkerPoolStatus(), at(4)) == 5000, "it is never before T_r, whatever clocks say"


def test_t_m_is_not_made_up_when_t_r_was_stored_before_or_is_not_known() -> None:
    assert published(REGISTERED, REGISTERED, at(60)) is None
    assert published(WorkerPoolStatus(start=START), WorkerPoolStatus(), at(5)) is None
    assert published(WorkerPoolStatus(), WorkerPoolStatus(), at(5)) is None


def test_the_t_r_of_an_earlier_start_does_not_count() -> None:
    earlier = START.model_copy(update={"requested_time": at(-60), "registered_milliseconds": 1000})
    assert published(REGISTERED, WorkerPoolStatus(start=earlier), at(6)) == 6000
