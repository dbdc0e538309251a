# SPDX-License-Identifier: Apache-2.0
"""Next step of each ServiceAction, and its status after each event."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from simyard.api.base import Condition, find_condition, from_seconds, set_condition
from simyard.api.names import ANNOTATION_VERSION, LABEL_REVISION, ConditionType, Reason
from simyard.api.service_action import ActionFailure, ServiceAction, ServiceActionStatus, StoredFile
from simyard.api.worker import Worker
from simyard.guest.messages import Begun, LogStored, Progressed, Resulted
from simyard.guest.values import ClaimedResult, InvalidResultError
from simyard.plan.service import PublishedService
from simyard.plan.times import add_seconds
from simyard_adapter import wire
from simyard_adapter.declarations import Action, InvalidValuesError, Json, check_values
from simyard_adapter.file_urls import NO_URLS, AllowedUrls

OVERRUN_SECONDS = 60.0
"""If an adapter has not ended an action this long after its timeout, the operator ends the action."""

MAX_BEGIN_SECONDS = 330.0
"""Time in which a worker must begin an action that was sent to it; earlier Sync requests end within this time."""

MAX_TIMEOUT_SECONDS = 2_592_000
"""Maximum timeout that a service or an action can set."""

MAX_CLOCK_SKEW_SECONDS = 60.0
"""Maximum difference between a worker's clock and the operator's; the operator ignores times that differ more."""

MAX_ATTEMPTS = 5
_NOT_BEGUN = (wire.ErrorReason.DRAINING, wire.ErrorReason.BUSY)
_MESSAGE_CHARACTERS = 16_384


@dataclass(frozen=True, slots=True)
class ActionTimes:
    """The waiting times for one action.

    Attributes:
        lost_grace_seconds: Time for which the operator waits for the result of a lost worker.
        resend_seconds: Time after which the operator sends an action again if the worker has not reported that the
            action has begun. The first request may be lost.
        fence_look_seconds: Interval between two checks whether a lost worker may still begin the action.
    """

    lost_grace_seconds: float = 5.0
    resend_seconds: float = 30.0
    fence_look_seconds: float = 1.0


ACTION_TIMES = ActionTimes()


class Need(enum.Enum):
    """Kind of the next step of an action."""

    NOTHING = enum.auto()
    ASSIGN = enum.auto()
    FENCE = enum.auto()
    PUBLISH = enum.auto()
    CANCEL = enum.auto()
    WRITE = enum.auto()
    DELETE = enum.auto()


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an action, as the operator observes it.

    Attributes:
        service: Service of the target; None if the target or its service does not exist.
        worker_there: True if the worker to which the action was assigned exists.
        worker_gone: Time at which the operator learnt that this worker is gone.
        fenced: True if the worker is gone, cannot begin another action, and the operator has received all its messages.
        refusal: Reason and message with which the platform refuses the action; None if it permits the action.
    """

    service: PublishedService | None
    worker_there: bool = False
    worker_gone: datetime | None = None
    fenced: bool = False
    refusal: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """Seconds since the operator sent an action, on a steady clock that starts again when the broker comes back.

    Attributes:
        first: Seconds since the operator sent the action for the first time.
        last: Seconds since the operator sent the action for the last time.
        begun: Seconds since the operator learnt that the action has begun; None before that.
    """

    first: float = 0.0
    last: float = 0.0
    begun: float | None = None


@dataclass(frozen=True, slots=True)
class ActionPlan:
    """Next step of an action.

    Attributes:
        need: Kind of the step.
        status: Status to write, if the step is WRITE.
        look_again: Time of the next plan, unless an event causes an earlier plan.
        revokes: True if the operator must first send the worker a request not to run the action.
    """

    need: Need
    status: ServiceActionStatus | None = None
    look_again: datetime | None = None
    revokes: bool = False


def is_finished(action: ServiceAction) -> bool:
    """Return whether an action is Complete or Failed."""
    return any(
        condition is not None and condition.status == "True"
        for condition in (
            find_condition(action.status.conditions, ConditionType.COMPLETE),
            find_condition(action.status.conditions, ConditionType.FAILED),
        )
    )


def get_invocation_id(action: ServiceAction) -> str:
    """Return the invocation id of an action's present assignment; each assignment has its own id."""
    uid, attempts = action.metadata.uid, action.status.attempts
    return uid if attempts <= 1 else f"{uid}.{attempts}"


def parse_invocation_uid(invocation: str) -> str:
    """Return the uid of the ServiceAction to which an invocation id belongs."""
    return invocation.partition(".")[0]


def find_declared_action(action: ServiceAction, service: PublishedService | None) -> Action | None:
    """Return the declaration of an action; None if the service is None or does not declare the action."""
    return service.interface.find_action(action.spec.action) if service is not None else None


def get_timeout_seconds(action: ServiceAction, declared: Action) -> int:
    """Return the timeout of an action in seconds: the requested or the declared timeout, the smaller of the two."""
    return min(action.spec.timeout_seconds or declared.timeout_seconds, declared.timeout_seconds)


def plan_action(
    action: ServiceAction,
    target: Target,
    *,
    sent: Sent | None,
    now: datetime,
    times: ActionTimes = ACTION_TIMES,
    urls: AllowedUrls = NO_URLS,
) -> ActionPlan:
    """Return the next step of an action.

    ``sent`` is None if the operator has not sent the action since the broker last came back. ``urls`` are the URLs that
    file parameters may have.
    """
    if action.metadata.deletion_timestamp is not None:
        return ActionPlan(Need.NOTHING)
    if is_finished(action):
        finished = action.status.finished_time or now
        ends = add_seconds(finished, action.spec.ttl_seconds_after_finished)
        return ActionPlan(Need.DELETE) if ends <= now else ActionPlan(Need.NOTHING, look_again=ends)
    if not action.status.worker_uid:
        return _plan_unassigned(action, target, now, urls)
    if not target.worker_there:
        return _plan_lost(action, target, now, times)
    if sent is None:
        return ActionPlan(Need.PUBLISH)
    return _plan_sent(action, target, sent, now, times)


def _plan_sent(action: ServiceAction, target: Target, sent: Sent, now: datetime, times: ActionTimes) -> ActionPlan:
    """Return the next step of an action that the operator has sent to a worker.

    Each wait for the worker has a limit. The operator may send an action twice: an adapter runs an invocation at most
    once, and repeats the result of an invocation that has finished.
    """
    if sent.begun is None:
        ends, resend = MAX_BEGIN_SECONDS - sent.first, times.resend_seconds - sent.last
        if ends <= 0:
            message = f"worker {action.status.worker} did not begin the action within {MAX_BEGIN_SECONDS:.0f} s"
            if _is_idempotent(action, target.service) and _may_run_elsewhere(action):
                return ActionPlan(Need.WRITE, _release_action(action, message, now), revokes=True)
            return ActionPlan(
                Need.WRITE, record_failure(action, wire.ErrorReason.TIMED_OUT.value, message, now), revokes=True
            )
    else:
        declared = find_declared_action(action, target.service)
        limit = get_timeout_seconds(action, declared) if declared is not None else MAX_TIMEOUT_SECONDS
        ends = limit + OVERRUN_SECONDS - sent.begun
        if ends <= 0:
            message = f"no result within {limit} s"
            return ActionPlan(
                Need.WRITE, record_failure(action, wire.ErrorReason.TIMED_OUT.value, message, now), revokes=True
            )
        half = OVERRUN_SECONDS / 2
        resend = max(ends - half, half - sent.last)
    if resend <= 0:
        return ActionPlan(Need.PUBLISH)
    return ActionPlan(
        Need.CANCEL if action.spec.cancel else Need.NOTHING, look_again=add_seconds(now, min(ends, resend))
    )


def _plan_unassigned(action: ServiceAction, target: Target, now: datetime, urls: AllowedUrls) -> ActionPlan:
    if action.spec.cancel:
        message = "the action was cancelled before it began"
        return ActionPlan(Need.WRITE, record_failure(action, wire.ErrorReason.CANCELLED.value, message, now))
    if target.refusal is not None:
        return ActionPlan(Need.WRITE, record_failure(action, *target.refusal, now))
    if target.service is None:
        message = f"{action.spec.target.kind} {action.spec.target.name} or its service does not exist"
        return ActionPlan(Need.WRITE, record_failure(action, Reason.TARGET_NOT_FOUND, message, now))
    declared = find_declared_action(action, target.service)
    if declared is None:
        names = ", ".join(item.name for item in target.service.interface.actions) or "none"
        message = f"spec.action: {action.spec.action} is not declared by the service; it declares: {names}"
        return ActionPlan(Need.WRITE, record_failure(action, wire.ErrorReason.UNKNOWN_ACTION.value, message, now))
    try:
        check_values(action.spec.parameters, declared.parameters, "spec.parameters", urls=urls)
    except InvalidValuesError as error:
        return ActionPlan(
            Need.WRITE, record_failure(action, wire.ErrorReason.INVALID_PARAMETERS.value, str(error), now)
        )
    return ActionPlan(Need.ASSIGN)


def _plan_lost(action: ServiceAction, target: Target, now: datetime, times: ActionTimes) -> ActionPlan:
    """Return the next step of an action whose worker is gone.

    Another worker may run the action if it is idempotent, or if the lost worker certainly did not begin it. Otherwise
    the action fails.
    """
    if target.worker_gone is not None:
        ends = add_seconds(target.worker_gone, times.lost_grace_seconds)
        if ends > now:
            return ActionPlan(Need.NOTHING, look_again=ends)
    if _is_idempotent(action, target.service) and _may_run_elsewhere(action):
        message = f"worker {action.status.worker} is gone; another worker will run the action"
        return ActionPlan(Need.WRITE, _release_action(action, message, now))
    if action.status.started_time is None and _may_run_elsewhere(action):
        if not target.fenced:
            return ActionPlan(Need.FENCE, look_again=add_seconds(now, times.fence_look_seconds))
        message = f"worker {action.status.worker} is gone and had not begun the action; another worker will run it"
        return ActionPlan(Need.WRITE, _release_action(action, message, now))
    message = f"worker {action.status.worker} is gone; it is not known whether the action was done"
    return ActionPlan(Need.WRITE, record_failure(action, Reason.WORKER_LOST, message, now))


def record_wait(action: ServiceAction, message: str, now: datetime) -> ServiceActionStatus:
    """Return the status of an action for which no worker is free."""
    return _add_complete(action, action.status, Reason.WAITING_FOR_WORKER, message, now)


def record_assignment(action: ServiceAction, worker: Worker, now: datetime) -> ServiceActionStatus:
    """Return the status of an action after its assignment to a worker."""
    given = {
        "worker": worker.metadata.name,
        "worker_uid": worker.metadata.uid,
        "attempts": action.status.attempts + 1,
        "revision": worker.metadata.labels.get(LABEL_REVISION, ""),
        "version": worker.metadata.annotations.get(ANNOTATION_VERSION, "")[:64],
    }
    status = action.status.model_copy(update=given)
    return _add_complete(action, status, Reason.RUNNING, "", now)


def record_progress(action: ServiceAction, progress: Begun | Progressed, now: datetime) -> ServiceActionStatus:
    """Return the status after a worker's message about progress; the first message also sets the start time."""
    update: dict[str, Any] = {"started_time": action.status.started_time or now}
    if isinstance(progress, Progressed) and progress.percent is not None:
        update["percent"] = progress.percent
    if isinstance(progress, Progressed) and progress.message is not None:
        update["progress"] = progress.message
    return action.status.model_copy(update=update)


def record_result(
    action: ServiceAction, service: PublishedService | None, ended: Resulted, now: datetime
) -> ServiceActionStatus:
    """Return the status after a worker has sent the result or the error of an action.

    If the worker did not begin the action, or interrupted an idempotent action, the action waits for another worker.
    """
    seen = action.model_copy(update={"status": action.status.model_copy(update=_read_run(action, ended, now))})
    result: dict[str, Json] = {}
    error = ended.outcome if isinstance(ended.outcome, wire.WireError) else None
    if isinstance(ended.outcome, ClaimedResult):
        try:
            result = ended.outcome.check(find_declared_action(action, service))
        except InvalidResultError as invalid:
            error = invalid.error
    if error is not None:
        interrupted = error.reason is wire.ErrorReason.INTERRUPTED and _is_idempotent(action, service)
        if (interrupted or error.reason in _NOT_BEGUN) and _may_run_elsewhere(action):
            return _release_action(action, f"worker {action.status.worker}: {error.message}", now)
        message = f"{error.field}: {error.message}" if error.field else error.message
        return record_failure(seen, error.reason.value, message, now)
    done = {"result": result, "percent": 100, "finished_time": now}
    status = seen.status.model_copy(update=done)
    return _add_complete(action, status, Reason.SUCCEEDED, "", now, done=True)


def _read_run(action: ServiceAction, ended: Resulted, now: datetime) -> dict[str, Any]:
    """Return the fields of the status with the start and the duration of a run, as far as they are plausible.

    A start is not plausible before the creation of the action or in the future. A duration is not plausible if it is
    longer than the age of the action. Both checks allow for ``MAX_CLOCK_SKEW_SECONDS``.
    """
    update: dict[str, Any] = {}
    created = action.metadata.creation_timestamp or now
    if ended.started_at is not None:
        started = from_seconds(ended.started_at)
        if add_seconds(created, -MAX_CLOCK_SKEW_SECONDS) <= started <= add_seconds(now, MAX_CLOCK_SKEW_SECONDS):
            update["started_time"] = started
    if ended.seconds is not None and ended.seconds <= (now - created).total_seconds() + MAX_CLOCK_SKEW_SECONDS:
        update["run_milliseconds"] = round(ended.seconds * 1000)
    return update


def record_log(action: ServiceAction, stored: LogStored) -> ServiceActionStatus:
    """Return the status with the log's parts that a worker has stored; this report may arrive after the result."""
    parts = [StoredFile.model_validate(part.to_json()) for part in stored.parts]
    return action.status.model_copy(update={"log": parts})


def record_failure(action: ServiceAction, reason: str, message: str, now: datetime) -> ServiceActionStatus:
    """Return the status of an action that failed."""
    text = message[:_MESSAGE_CHARACTERS]
    update = {"finished_time": now, "failure": ActionFailure(reason=reason, message=text)}
    status = _add_complete(action, action.status.model_copy(update=update), reason, text, now)
    condition = _make_condition(action, ConditionType.FAILED, True, reason, text, now)
    return status.model_copy(update={"conditions": set_condition(status.conditions, condition)})


def _is_idempotent(action: ServiceAction, service: PublishedService | None) -> bool:
    declared = find_declared_action(action, service)
    return declared is not None and declared.idempotent


def _may_run_elsewhere(action: ServiceAction) -> bool:
    return action.spec.target.kind != "Worker" and not action.spec.cancel and action.status.attempts < MAX_ATTEMPTS


def _release_action(action: ServiceAction, message: str, now: datetime) -> ServiceActionStatus:
    cleared: dict[str, Any] = {
        "worker": "",
        "worker_uid": "",
        "revision": "",
        "version": "",
        "percent": None,
        "progress": "",
        "started_time": None,
        "log": [],
    }
    status = action.status.model_copy(update=cleared)
    return _add_complete(action, status, Reason.WAITING_FOR_WORKER, message, now)


def _add_complete(
    action: ServiceAction, status: ServiceActionStatus, reason: str, message: str, now: datetime, *, done: bool = False
) -> ServiceActionStatus:
    condition = _make_condition(action, ConditionType.COMPLETE, done, reason, message, now)
    update = {
        "observed_generation": action.metadata.generation,
        "conditions": set_condition(status.conditions, condition),
    }
    return status.model_copy(update=update)


def _make_condition(
    action: ServiceAction, kind: ConditionType, value: bool, reason: str, message: str, now: datetime
) -> Condition:
    return Condition(
        type=kind,
        status="True" if value else "False",
        reason=reason,
        message=message,
        last_transition_time=now,
        observed_generation=action.metadata.generation,
    )
