# SPDX-License-Identifier: Apache-2.0
"""ServiceActions: what each needs now, what becomes of it, and who gets it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_objects import NOW, at, made_ready, make_action, make_service, make_worker

from simyard.api.base import find_condition
from simyard.api.service_action import ServiceAction, ServiceActionStatus
from simyard.guest.messages import Begun, LogStored, Progressed, Resulted, read_event
from simyard.plan.actions import (
    ACTION_TIMES,
    MAX_ATTEMPTS,
    MAX_BEGIN_SECONDS,
    OVERRUN_SECONDS,
    ActionPlan,
    Need,
    Sent,
    Target,
    get_invocation_id,
    is_finished,
    parse_invocation_uid,
    plan_action,
    record_assignment,
    record_log,
    record_progress,
    record_result,
    record_wait,
)
from simyard.plan.assignment import MAX_CONCURRENT, assign_actions, reserve_for_sync
from simyard_adapter.file_values import FileReference
from simyard_adapter.wire import ErrorReason, Event, WireError, make_too_large_error

ACTIONS = [
    {
        "name": "solve",
        "parameters": [{"name": "length", "type": "number"}],
        "result": [{"name": "twice", "type": "integer"}],
        "timeoutSeconds": 100,
    },
    {"name": "sweep", "idempotent": True},
]
SERVICE = make_service(interface={"attributes": [], "actions": ACTIONS})
JUST_SENT = Sent()
WORKER = made_ready(make_worker(), at(1))


def progress(**body: Any) -> Progressed:
    read = read_event(Event.PROGRESS, orjson.dumps({"invocation": "id", **body}))
    assert isinstance(read, Progressed)
    return read


def result(**body: Any) -> Resulted:
    read = read_event(Event.RESULT, orjson.dumps({"invocation": "id", **body}))
    assert isinstance(read, Resulted)
    return read


def given_to_worker(action: ServiceAction) -> ServiceAction:
    return action.model_copy(update={"status": record_assignment(action, WORKER, at(1))})


def after(action: ServiceAction, status: ServiceActionStatus) -> ServiceAction:
    return action.model_copy(update={"status": status})


def begun(action: ServiceAction) -> ServiceAction:
    return after(action, record_progress(action, Begun("id"), at(1)))


def need(action: ServiceAction, now: datetime = NOW, *, sent: Sent | None = JUST_SENT, **target: Any) -> ActionPlan:
    fields: dict[str, Any] = {"service": SERVICE, "worker_there": True, **target}
    return plan_action(action, Target(**fields), sent=sent, now=now)


def failure(plan: ActionPlan) -> str:
    assert plan.need is Need.WRITE
    assert plan.status is not None
    assert plan.status.failure is not None
    return plan.status.failure.reason


def test_an_action_is_assigned_then_published_then_awaited() -> None:
    action = make_action(parameters={"length": 3})
    assert need(action).need is Need.ASSIGN
    running = given_to_worker(action)
    assert (running.status.worker, running.status.attempts) == ("pool-0", 1)
    assert need(running, sent=None).need is Need.PUBLISH
    assert need(running).need is Need.NOTHING


@pytest.mark.parametrize(
    ("action", "target", "reason"),
    [
        (make_action(parameters={"length": "long"}), {}, "InvalidParameters"),
        (make_action(action="nothing"), {}, "UnknownAction"),
        (make_action(), {"service": None}, "TargetNotFound"),
        (make_action(cancel=True), {}, "Cancelled"),
    ],
)
def test_what_can_never_run_fails_before_anything_is_sent(
    action: ServiceAction, target: dict[str, Any], reason: str
) -> None:
    plan = need(action, **target)
    assert failure(plan) == reason
    assert plan.status is not None
    assert is_finished(after(action, plan.status))


def test_an_action_of_a_lost_worker_fails_after_a_grace_for_its_result() -> None:
    running = begun(given_to_worker(make_action()))
    waits = need(running, at(10), worker_there=False, worker_gone=at(8))
    assert (waits.need, waits.look_again) == (Need.NOTHING, at(8 + ACTION_TIMES.lost_grace_seconds))
    assert failure(need(running, at(20), worker_there=False, worker_gone=at(8))) == "WorkerLost"


def test_an_idempotent_action_of_a_lost_worker_goes_to_another_one_under_another_id() -> None:
    running = given_to_worker(make_action(action="sweep"))
    plan = need(running, at(20), worker_there=False, worker_gone=at(8))
    assert plan.status is not None
    free = after(running, plan.status)
    assert not is_finished(free)
    assert need(free).need is Need.ASSIGN
    again = given_to_worker(free)
    assert again.status.attempts == 2
    assert get_invocation_id(again) != get_invocation_id(running)
    assert {parse_invocation_uid(get_invocation_id(item)) for item in (running, again)} == {running.metadata.uid}


def test_an_action_on_one_worker_is_not_run_by_another_and_none_is_tried_for_ever() -> None:
    lost: dict[str, Any] = {"worker_there": False, "worker_gone": at(8)}
    alone = given_to_worker(make_action(action="sweep", kind="Worker", target="pool-0"))
    assert failure(need(alone, at(20), **lost)) == "WorkerLost"
    tired = given_to_worker(make_action(action="sweep", status={"attempts": MAX_ATTEMPTS - 1}))
    assert failure(need(begun(tired), at(20), **lost)) == "WorkerLost"


def test_what_a_lost_worker_never_began_runs_elsewhere_once_it_cannot_begin_any_more() -> None:
    running = given_to_worker(make_action())
    lost: dict[str, Any] = {"worker_there": False, "worker_gone": at(8)}
    plan = need(running, at(20), **lost)
    assert plan.need is Need.FENCE
    assert plan.look_again is not None
    moved = need(running, at(20), fenced=True, **lost)
    assert moved.status is not None
    assert need(after(running, moved.status)).need is Need.ASSIGN
    assert failure(need(begun(running), at(20), fenced=True, **lost)) == "WorkerLost"


def test_an_action_says_on_which_revision_and_version_it_runs() -> None:
    labels, annotations = {"simyard.dev/revision": "0123456789"}, {"simyard.dev/service-version": "2.20"}
    metadata = WORKER.metadata.model_copy(update={"labels": labels, "annotations": annotations})
    status = record_assignment(make_action(), WORKER.model_copy(update={"metadata": metadata}), at(1))
    assert (status.revision, status.version) == ("0123456789", "2.20")


def test_an_action_that_is_not_begun_is_sent_again_and_then_given_up() -> None:
    running = given_to_worker(make_action())
    assert need(running, sent=Sent(ACTION_TIMES.resend_seconds, ACTION_TIMES.resend_seconds)).need is Need.PUBLISH
    waits = need(running, sent=Sent(ACTION_TIMES.resend_seconds + 10, 10))
    assert (waits.need, waits.look_again) == (Need.NOTHING, at(ACTION_TIMES.resend_seconds - 10))
    ended = need(running, sent=Sent(MAX_BEGIN_SECONDS, 1))
    assert failure(ended) == "TimedOut"
    assert ended.revokes
    repeatable = need(given_to_worker(make_action(action="sweep")), sent=Sent(MAX_BEGIN_SECONDS, 1))
    assert repeatable.status is not None
    assert repeatable.revokes
    assert repeatable.status.worker_uid == ""


@given(
    timeout=st.integers(1, 5000),
    begins=st.none() | st.integers(0, 400),
    ends=st.none() | st.integers(0, 6000),
    idempotent=st.booleans(),
)
def test_every_action_ends_whatever_its_worker_does(
    timeout: int, begins: int | None, ends: int | None, idempotent: bool
) -> None:
    """Simulate a worker that begins after a time, or never, and sends a result after a time, or never."""
    action = make_action(action="sweep" if idempotent else "solve", timeoutSeconds=timeout)
    service = make_service(
        interface={"attributes": [], "actions": [{**item, "timeoutSeconds": 5000} for item in ACTIONS]}
    )
    seconds, publishes = 0.0, 0
    while not is_finished(action):
        action, began = given_to_worker(action), seconds
        last: float | None = None
        while action.status.worker_uid and not is_finished(action):
            if begins is not None and seconds >= began + begins and action.status.started_time is None:
                action = after(action, record_progress(action, Begun("id"), at(seconds)))
                started = seconds
            if action.status.started_time is not None and ends is not None and seconds >= started + ends:
                action = after(action, record_result(action, service, result(), at(seconds)))
                break
            known = seconds - started if action.status.started_time is not None else None
            sent = None if last is None else Sent(seconds - began, seconds - last, known)
            plan = plan_action(action, Target(service, worker_there=True), sent=sent, now=at(seconds))
            if plan.need is Need.PUBLISH:
                last, publishes = seconds, publishes + 1
            elif plan.status is not None:
                action = after(action, plan.status)
            else:
                assert plan.look_again is not None
                seconds = max(seconds + 1, (plan.look_again - NOW).total_seconds())
                if begins is not None and seconds > began + begins > seconds - 1:
                    seconds = began + begins
    assert seconds <= MAX_ATTEMPTS * (MAX_BEGIN_SECONDS + timeout + OVERRUN_SECONDS)
    assert publishes <= MAX_ATTEMPTS * (MAX_BEGIN_SECONDS / ACTION_TIMES.resend_seconds + 3)


def test_cancelling_is_asked_of_the_worker() -> None:
    assert need(given_to_worker(make_action(cancel=True))).need is Need.CANCEL


def test_an_adapter_that_never_answers_is_given_up() -> None:
    running = given_to_worker(make_action(cancel=True))
    started, most = begun(running), 100 + OVERRUN_SECONDS
    assert need(started, sent=Sent(most, most, most - 40)).need is Need.CANCEL
    assert need(started, sent=Sent(most, most, most - 30)).need is Need.PUBLISH
    assert need(started, sent=Sent(most, 10, most - 10)).look_again == at(10)
    assert failure(need(started, sent=Sent(most, 10, most))) == "TimedOut"


def test_a_finished_action_is_deleted_when_its_time_has_come() -> None:
    running = given_to_worker(make_action(ttlSecondsAfterFinished=60))
    done = after(running, record_result(running, SERVICE, result(), at(5)))
    assert need(done, at(64)).look_again == at(65)
    assert need(done, at(65)).need is Need.DELETE


def test_progress_says_that_it_began_and_how_far_it_is() -> None:
    running = given_to_worker(make_action())
    status = record_progress(running, progress(percent=40.7, message="step 4"), at(3))
    assert (status.percent, status.progress, status.started_time) == (40, "step 4", at(3))
    later = record_progress(after(running, status), progress(percent=900), at(9))
    assert (later.percent, later.started_time) == (100, at(3))
    assert record_progress(running, progress(percent="many"), at(3)).percent is None


def test_a_result_completes_and_an_error_fails() -> None:
    running = given_to_worker(make_action())
    done = record_result(running, SERVICE, result(startedAt=at(2).timestamp(), seconds=1.5, result={"twice": 6}), at(4))
    assert (done.result, done.run_milliseconds, done.started_time, done.finished_time) == (
        {"twice": 6}, 1500, at(2), at(4),
    )  # fmt: skip
    error = {"reason": "InvalidParameters", "message": "has no *STEP", "field": "parameters.deck"}
    refused = record_result(running, SERVICE, result(error=error), at(4))
    assert refused.failure is not None
    assert refused.failure.message == "parameters.deck: has no *STEP"
    for status, kinds in ((done, ("True", None)), (refused, ("False", "True"))):
        found = [find_condition(status.conditions, kind) for kind in ("Complete", "Failed")]
        assert tuple(item.status if item else None for item in found) == kinds


@pytest.mark.parametrize(
    ("action", "reason", "again"),
    [
        ("solve", "Draining", True),
        ("solve", "Busy", True),
        ("solve", "Interrupted", False),
        ("sweep", "Interrupted", True),
        ("sweep", "ActionFailed", False),
    ],
)
def test_what_was_not_begun_or_does_no_harm_twice_runs_elsewhere(action: str, reason: str, again: bool) -> None:
    running = given_to_worker(make_action(action=action))
    status = record_result(running, SERVICE, result(error={"reason": reason, "message": "no"}), at(4))
    assert is_finished(after(running, status)) is not again
    assert (status.worker_uid == "") is again


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("not an object", "InvalidResult"),
        ({"twice": "six"}, "InvalidResult"),
        ({"twice": 6, "undeclared": 1}, "Succeeded"),
        (None, "Succeeded"),
    ],
)
def test_a_result_is_held_against_the_declared_interface(given: Any, reason: str) -> None:
    running = given_to_worker(make_action())
    status = record_result(running, SERVICE, result(result=given), at(4))
    complete = find_condition(status.conditions, "Complete")
    assert complete is not None
    assert complete.reason == reason
    if reason == "Succeeded":
        assert set(status.result or {}) <= {"twice"}


def test_times_that_cannot_be_are_not_taken_over() -> None:
    running = given_to_worker(make_action())
    for started in (at(-3600), at(3600)):
        done = record_result(running, SERVICE, result(startedAt=started.timestamp(), seconds=10**8, result={}), at(4))
        assert (done.started_time, done.run_milliseconds) == (None, None)
        assert is_finished(after(running, done))


def test_a_result_too_large_fails_the_action_with_what_to_do() -> None:
    running = given_to_worker(make_action())
    error = Resulted("id", None, None, make_too_large_error(2**22))
    status = record_result(running, SERVICE, error, at(4))
    assert status.failure is not None
    assert status.failure.reason == "ResultTooLarge"
    assert "the vendor can declare a result of the type file" in status.failure.message


def test_a_log_is_recorded_while_the_action_runs_and_after_its_end_and_goes_with_its_attempt() -> None:
    running = given_to_worker(make_action())
    part = FileReference(f"sha256:{'0' * 64}", size=3)
    status = record_log(running, LogStored("id", (part, part)))
    assert [(item.file, item.bytes) for item in status.log] == [(part.address, 3)] * 2
    done = record_result(after(running, status), SERVICE, result(result={}), at(4))
    assert done.log == status.log
    assert len(record_log(after(running, done), LogStored("id", (part,))).log) == 1
    interrupted = WireError(ErrorReason.BUSY, "too many")
    released = record_result(after(running, status), SERVICE, Resulted("id", None, None, interrupted), at(4))
    assert released.log == []


def test_waiting_is_a_condition() -> None:
    action = make_action()
    condition = find_condition(record_wait(action, "no worker is ready", NOW).conditions, "Complete")
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == (
        "False", "WaitingForWorker", "no worker is ready",
    )  # fmt: skip


@given(st.lists(st.booleans(), max_size=8), st.lists(st.booleans(), max_size=6))
def test_each_worker_gets_one_exclusive_action_at_most_and_the_oldest_are_served_first(
    concurrent: list[bool], busy: list[bool]
) -> None:
    actions = [make_action(f"a{index}", created=at(index)) for index in range(len(concurrent))]
    workers = [made_ready(make_worker(f"pool-{index}"), at(1)) for index in range(len(busy))]
    shared = {action.metadata.uid for action, yes in zip(actions, concurrent, strict=True) if yes}
    taken = {worker.metadata.uid for worker, yes in zip(workers, busy, strict=True) if yes}
    matched = assign_actions(list(reversed(actions)), workers, taken, shared, {})
    exclusive = [action for action in actions if action.metadata.uid not in shared]
    served = [action for action in exclusive if action.metadata.uid in matched]
    assert served == exclusive[: busy.count(False)]
    given_uids = [matched[action.metadata.uid].metadata.uid for action in served]
    assert len(set(given_uids)) == len(given_uids)
    assert not set(given_uids) & taken
    assert all((uid in matched) == bool(workers) for uid in shared)


def test_concurrent_actions_are_spread_and_bounded() -> None:
    actions = [make_action(f"a{index}", created=at(index)) for index in range(4)]
    workers = [made_ready(make_worker(f"pool-{index}"), at(1)) for index in range(2)]
    first, second = (worker.metadata.uid for worker in workers)
    shared = {action.metadata.uid for action in actions}
    matched = assign_actions(actions, workers, set(), shared, {first: MAX_CONCURRENT - 1, second: MAX_CONCURRENT - 2})
    assert sorted(worker.metadata.uid for worker in matched.values()) == sorted([first, second, second])
    assert actions[3].metadata.uid not in matched


@given(
    busy=st.lists(st.booleans(), max_size=12),
    reserved=st.none() | st.integers(1, 15) | st.sampled_from(["10%", "50%", "100%"]),
)
def test_a_backlog_leaves_the_reserved_workers_free(busy: list[bool], reserved: int | str | None) -> None:
    workers = [made_ready(make_worker(f"pool-{index}"), at(1)) for index in range(len(busy))]
    taken = {worker.metadata.uid for worker, yes in zip(workers, busy, strict=True) if yes}
    kept = reserve_for_sync(workers, taken, reserved)
    share = {None: 0, "10%": len(busy) // 10, "50%": len(busy) // 2, "100%": len(busy)}
    wanted = reserved if isinstance(reserved, int) else share[reserved]
    assert len(kept) == min(wanted, busy.count(False))
    assert not kept & taken
    backlog = [make_action(f"a{index}", created=at(index)) for index in range(20)]
    matched = assign_actions(backlog, workers, taken | kept, set(), {})
    assert not kept & {worker.metadata.uid for worker in matched.values()}
