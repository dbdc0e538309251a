# SPDX-License-Identifier: Apache-2.0
"""Chunks of studies: their layout, their assignment, their sums, and the end of a study."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from simyard.api.base import find_condition
from simyard.api.names import ConditionType
from simyard.api.study import MAX_CHUNK_TASKS, MAX_CHUNKS, StopRule, Study
from simyard.guest.chunks import ChunkSummary, Extremes, FailureCount
from simyard.plan.studies.assignment import choose_workers
from simyard.plan.studies.layout import TRIAL_CHUNKS, ChunkSet, choose_length, make_layout
from simyard.plan.studies.progress import Progress
from simyard.plan.studies.study import plan_end, record_end, record_progress
from simyard_adapter.wire import ErrorReason

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TASKS = st.integers(1, MAX_CHUNKS * MAX_CHUNK_TASKS)


def make_study(**spec: Any) -> Study:
    target = {"kind": "WorkerPool", "name": "beams"}
    design = {"grid": {"axes": [{"name": "x", "values": [1]}]}}
    body = {"target": target, "action": "solve", "design": design, **spec}
    return Study.model_validate({"metadata": {"name": "s", "uid": "u"}, "spec": body})


@given(TASKS, st.none() | st.integers(1, MAX_CHUNK_TASKS), st.floats(0, 1e6), st.integers(0, 10_000), st.data())
def test_every_task_belongs_to_one_chunk(
    tasks: int, wanted: int | None, seconds: float, workers: int, data: st.DataObject
) -> None:
    layout = make_layout(tasks, wanted, None)
    if layout.length is None:
        layout = make_layout(tasks, wanted, choose_length(layout, seconds, workers))
    assert 1 <= layout.chunks <= MAX_CHUNKS
    chunk = data.draw(st.integers(0, layout.chunks - 1))
    assert 1 <= len(layout.get_tasks(chunk)) <= MAX_CHUNK_TASKS
    assert layout.get_tasks(0).start == 0
    assert layout.get_tasks(layout.chunks - 1).stop == tasks
    assert chunk == 0 or layout.get_tasks(chunk - 1).stop == layout.get_tasks(chunk).start


def test_a_chunk_takes_about_the_target_time_and_every_worker_gets_several() -> None:
    layout = make_layout(1_000_000, None, None)
    assert layout.trials == TRIAL_CHUNKS
    assert choose_length(layout, 0.1, 10) == 300
    assert choose_length(layout, 60, 10) == 101  # at most 10,000 chunks
    assert choose_length(make_layout(1_016, None, None), 0.02, 10) == 25
    assert choose_length(make_layout(1_016, None, None), 0.001, 10) == 250  # a shorter one would cost too much


@given(st.sets(st.integers(0, MAX_CHUNKS - 1)))
def test_a_set_of_chunks_survives_a_status(chunks: set[int]) -> None:
    made = ChunkSet()
    for chunk in chunks:
        made.add(chunk)
    read = ChunkSet.decode(made.encode())
    assert set(read) == chunks
    assert len(read) == len(chunks)
    assert len(made.encode()) <= 1668


@given(
    st.integers(0, 5),
    st.lists(st.integers(1, 2), max_size=6),
    st.integers(0, 20),
)
def test_no_worker_gets_too_many_chunks_and_none_waits_while_another_has_two(
    fresh: int, loads: list[int], chunks: int
) -> None:
    own = {f"w{number}": load for number, load in enumerate(loads)}
    new = [f"new{number}" for number in range(fresh)]
    chosen = choose_workers(own, new, chunks)
    assert len(chosen) == min(chunks, 2 * fresh + loads.count(1))
    after = {uid: own.get(uid, 0) + chosen.count(uid) for uid in (*own, *new)}
    assert all(count <= 2 for count in after.values())
    if any(after[uid] == 2 and own.get(uid, 0) < 2 for uid in after):
        assert all(after.values())


def test_sums_count_each_chunk_once_and_survive_a_status() -> None:
    rules = [StopRule(result="y", at_most=3)]
    failed = {ErrorReason.ACTION_FAILED: FailureCount(2, 11, "no mesh"), ErrorReason.TIMED_OUT: FailureCount(1, 14)}
    summary = ChunkSummary(10, 5.0, failed, (11, 12, 14), {"y": Extremes(2.5, 15, 9.0, 16)})
    progress = Progress()
    assert progress.add(1, summary, 100, rules, NOW)
    assert not progress.add(1, summary, 100, rules, NOW)
    study = make_study()
    status = record_progress(study, progress, 100, 10, 3, NOW)
    read = Progress.read(status)
    assert (read.succeeded, read.failed, read.size, read.stopped_by) == (7, 3, 100, 15)
    assert (read.failures, read.failed_indexes) == (progress.failures, [11, 12, 14])
    assert 1 in read.finished
    assert read.mean_seconds == 0.5


def test_a_study_says_why_its_rows_are_not_stored() -> None:
    waiting = record_progress(make_study(), Progress(), 10, 1, 3, NOW, blocked="exceeded the quota")
    condition = find_condition(waiting.conditions, ConditionType.COMPLETE)
    assert condition is not None
    assert (condition.reason, condition.message) == ("Running", "exceeded the quota")


def test_the_rate_gives_the_time_of_the_end() -> None:
    progress = Progress()
    progress.start_clock(NOW)
    progress.add(0, ChunkSummary(10, 1.0), 1, [], NOW + timedelta(seconds=2))
    fields = progress.to_fields(110, 1, NOW + timedelta(seconds=2))
    assert fields["tasks_per_second"] == "5"
    assert fields["estimated_completion_time"] == NOW + timedelta(seconds=22)


def test_the_rate_of_tasks_that_take_longer_than_it_is_measured_over_is_known() -> None:
    progress = Progress()
    progress.start_clock(NOW)
    for chunk in range(5):
        progress.add(chunk, ChunkSummary(10, 1.0), 1, [], NOW + timedelta(seconds=100 * (chunk + 1)))
    assert progress.to_fields(1000, 1, NOW + timedelta(seconds=500))["tasks_per_second"] == "0.1"


def test_a_study_ends_for_the_first_reason_that_holds() -> None:
    def end(progress: Progress, tasks: int = 10, **spec: Any) -> tuple[str, bool] | None:
        study = make_study(**spec)
        study = study.model_copy(update={"status": study.status.model_copy(update={"started_time": NOW})})
        ending = plan_end(study, progress, tasks, NOW + timedelta(seconds=60))
        return None if ending is None else (ending.reason, ending.complete)

    def make(succeeded: int, **failed: int) -> Progress:
        reasons = {ErrorReason[name]: FailureCount(count, 0) for name, count in failed.items()}
        progress = Progress()
        progress.add(0, ChunkSummary(succeeded + sum(failed.values()), 1.0, reasons), 1, [], NOW)
        return progress

    assert end(make(5)) is None
    assert end(make(10), cancel=True) == ("Succeeded", True)
    assert end(make(9, ACTION_FAILED=1)) == ("Succeeded", True)
    assert end(make(8, ACTION_FAILED=2)) == ("TooManyFailedTasks", False)
    assert end(make(5, ACTION_FAILED=2)) == ("TooManyFailedTasks", False)
    assert end(make(5, ACTION_FAILED=2), maxFailedTasks=2) is None
    assert end(make(5), cancel=True) == ("Cancelled", False)
    assert end(make(5, CANCELLED=5), cancel=True) == ("Cancelled", False)
    assert end(make(5), activeDeadlineSeconds=61) is None
    assert end(make(5), activeDeadlineSeconds=60) == ("DeadlineExceeded", False)
    stopped = make(5, CANCELLED=5)
    stopped.stopped_by = 3
    assert end(stopped) == ("StopRuleMet", True)


def test_the_largest_status_has_less_than_5_kb() -> None:
    progress = Progress()
    failed = {reason: FailureCount(10, 9_999_999, "m" * 400) for reason in sorted(ErrorReason, key=len)[-10:]}
    for chunk in range(MAX_CHUNKS):
        indexes = tuple(9_999_999 - number for number in range(10))
        progress.add(chunk, ChunkSummary(1000, 1e6, failed, indexes), 10**6, [], NOW)
    study = make_study()
    status = record_progress(study, progress, 10_000_000, 1000, 10_000, NOW)
    assert len(status.model_dump_json(by_alias=True, exclude_none=True)) < 5_000
    ended = study.model_copy(update={"status": status})
    ending = plan_end(ended, progress, 10_000_000, NOW)
    assert ending is not None
    text = record_end(ended, progress, 10_000_000, ending, NOW).model_dump_json(by_alias=True, exclude_none=True)
    assert len(text) < 5_000
