"""What each ServiceAction needs now, and its status after each thing that happens to it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from simyard.api.base import Condition, find_condition, from_seconds, set_condition
from simyard.api.names import ANNOTATION_VERSION, LABEL_REVISION, ConditionType, Reason
from simyard.api.service_action import ActionFailure, ServiceAction, ServiceActionStatus
from simyard.api.worker import Worker
from simyard.guest.messages import Begun, Progressed, Resulted
from simyard.guest.values import ClaimedResult, InvalidResultError
from simyard.plan.service import PublishedService
from simyard.plan.times import after
from simyard_adapter import wire
from simyard_adapter.declarations import Action, InvalidValuesError, Json, check_values

WORKER_LOST_GRACE_SECONDS = 5.0
"""So long after its worker is gone an action is not given up: its result may be on the way."""

OVERRUN_SECONDS = 60.0
"""The adapter ends an action that takes too long; only when it does not do so in this time, the operator does."""

RESEND_SECONDS = 30.0
"""Delay after which an action is sent again whose worker has not said that it begins: the request may be lost."""

MAX_BEGIN_SECONDS = 330.0
"""Time in which a worker must begin an action that it was sent: the Sync requests before it end within this time."""

FENCE_LOOK_SECONDS = 1.0

MAX_TIMEOUT_SECONDS = 2_592_000
"""The longest timeout that a service or an action can set."""

MAX_CLOCK_SKEW_SECONDS = 60.0
"""A worker's clock may differ so much from the platform's; times beyond it are not taken over."""

MOST_ATTEMPTS = 5
_NOT_BEGUN = (wire.Reason.DRAINING, wire.Reason.BUSY)
_MESSAGE_CHARACTERS = 16_384


class Need(enum.Enum):
    """What is to be done about an action."""

    NOTHING = enum.auto()
    ASSIGN = enum.auto()
    FENCE = enum.auto()
    PUBLISH = enum.auto()
    CANCEL = enum.auto()
    WRITE = enum.auto()
    DELETE = enum.auto()


@dataclass(frozen=True, slots=True)
class Target:
    """On what an action is called, as far as it exists.

    ``service`` is None when the target or its service does not exist. ``worker_there`` and ``worker_gone`` speak of the
    worker that the action was given to: whether it exists, and since when it is known to be gone. ``fenced``: a gone
    worker can begin nothing more, and everything that it ever said was heard. ``refusal`` has the reason and the
    message of an action that is not taken at all.
    """

    service: PublishedService | None
    worker_there: bool = False
    worker_gone: datetime | None = None
    fenced: bool = False
    refusal: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """For how many seconds an action has been sent, by a clock that nobody sets, since the broker last came back.

    ``first`` and ``last`` count from the first and the last time that it was sent; ``begun`` counts from when it was
    known to be begun, None if it is not.
    """

    first: float = 0.0
    last: float = 0.0
    begun: float | None = None


@dataclass(frozen=True, slots=True)
class ActionPlan:
    """What an action needs. ``status`` is set with WRITE; ``look_again`` is when to plan again in any case.

    ``revokes``: the worker is told first that it must not run it any more.
    """

    need: Need
    status: ServiceActionStatus | None = None
    look_again: datetime | None = None
    revokes: bool = False


def is_finished(action: ServiceAction) -> bool:
    """Whether it is Complete or Failed."""
    return any(
        condition is not None and condition.status == "True"
        for condition in (
            find_condition(action.status.conditions, ConditionType.COMPLETE),
            find_condition(action.status.conditions, ConditionType.FAILED),
        )
    )


def invocation_id(action: ServiceAction) -> str:
    """The key under which a worker runs it at most once: another one for each worker that gets it."""
    uid, attempts = action.metadata.uid, action.status.attempts
    return uid if attempts <= 1 else f"{uid}.{attempts}"


def uid_of_invocation(invocation: str) -> str:
    """The uid of the ServiceAction that an invocation id belongs to."""
    return invocation.partition(".")[0]


def declared_action(action: ServiceAction, service: PublishedService | None) -> Action | None:
    """The declaration of the action that is called."""
    return service.interface.action(action.spec.action) if service is not None else None


def timeout_seconds(action: ServiceAction, declared: Action) -> int:
    """How long it may run: what is asked for, up to what the service allows."""
    return min(action.spec.timeout_seconds or declared.timeout_seconds, declared.timeout_seconds)


def plan_action(action: ServiceAction, target: Target, *, sent: Sent | None, now: datetime) -> ActionPlan:
    """Return what the action needs; ``sent`` is None if this process has not sent it since the broker came back."""
    if action.metadata.deletion_timestamp is not None:
        return ActionPlan(Need.NOTHING)
    if is_finished(action):
        finished = action.status.finished_time or now
        ends = after(finished, action.spec.ttl_seconds_after_finished)
        return ActionPlan(Need.DELETE) if ends <= now else ActionPlan(Need.NOTHING, look_again=ends)
    if not action.status.worker_uid:
        return _plan_unassigned(action, target, now)
    if not target.worker_there:
        return _plan_lost(action, target, now)
    if sent is None:
        return ActionPlan(Need.PUBLISH)
    return _plan_sent(action, target, sent, now)


def _plan_sent(action: ServiceAction, target: Target, sent: Sent, now: datetime) -> ActionPlan:
    """Return what an action needs that was sent to a worker: every wait for the worker has an end.

    Sending again asks the adapter: it begins what it does not know, and sends the result of what has ended again.
    """
    if sent.begun is None:
        ends, resend = MAX_BEGIN_SECONDS - sent.first, RESEND_SECONDS - sent.last
        if ends <= 0:
            message = f"worker {action.status.worker} did not begin it within {MAX_BEGIN_SECONDS:.0f} s"
            if _is_idempotent(action, target.service) and _may_run_elsewhere(action):
                return ActionPlan(Need.WRITE, _run_elsewhere(action, message, now), revokes=True)
            return ActionPlan(Need.WRITE, failed(action, wire.Reason.TIMED_OUT.value, message, now), revokes=True)
    else:
        declared = declared_action(action, target.service)
        limit = timeout_seconds(action, declared) if declared is not None else MAX_TIMEOUT_SECONDS
        ends = limit + OVERRUN_SECONDS - sent.begun
        if ends <= 0:
            message = f"no result within {limit} s"
            return ActionPlan(Need.WRITE, failed(action, wire.Reason.TIMED_OUT.value, message, now), revokes=True)
        half = OVERRUN_SECONDS / 2
        resend = max(ends - half, half - sent.last)
    if resend <= 0:
        return ActionPlan(Need.PUBLISH)
    return ActionPlan(Need.CANCEL if action.spec.cancel else Need.NOTHING, look_again=after(now, min(ends, resend)))


def _plan_unassigned(action: ServiceAction, target: Target, now: datetime) -> ActionPlan:
    if action.spec.cancel:
        message = "it was cancelled before it began"
        return ActionPlan(Need.WRITE, failed(action, wire.Reason.CANCELLED.value, message, now))
    if target.refusal is not None:
        return ActionPlan(Need.WRITE, failed(action, *target.refusal, now))
    if target.service is None:
        message = f"{action.spec.target.kind} {action.spec.target.name} or its service does not exist"
        return ActionPlan(Need.WRITE, failed(action, Reason.TARGET_NOT_FOUND, message, now))
    declared = declared_action(action, target.service)
    if declared is None:
        names = ", ".join(item.name for item in target.service.interface.actions) or "none"
        message = f"spec.action: {action.spec.action} is not declared; declared are: {names}"
        return ActionPlan(Need.WRITE, failed(action, wire.Reason.UNKNOWN_ACTION.value, message, now))
    try:
        check_values(action.spec.parameters, declared.parameters, "spec.parameters")
    except InvalidValuesError as error:
        return ActionPlan(Need.WRITE, failed(action, wire.Reason.INVALID_PARAMETERS.value, str(error), now))
    return ActionPlan(Need.ASSIGN)


def _plan_lost(action: ServiceAction, target: Target, now: datetime) -> ActionPlan:
    """Its worker is gone: another one runs it if that does no harm."""
    if target.worker_gone is not None:
        ends = after(target.worker_gone, WORKER_LOST_GRACE_SECONDS)
        if ends > now:
            return ActionPlan(Need.NOTHING, look_again=ends)
    if _is_idempotent(action, target.service) and _may_run_elsewhere(action):
        message = f"worker {action.status.worker} is gone; another one runs it"
        return ActionPlan(Need.WRITE, _run_elsewhere(action, message, now))
    if action.status.started_time is None and _may_run_elsewhere(action):
        if not target.fenced:
            return ActionPlan(Need.FENCE, look_again=after(now, FENCE_LOOK_SECONDS))
        message = f"worker {action.status.worker} is gone and had not begun it; another one runs it"
        return ActionPlan(Need.WRITE, _run_elsewhere(action, message, now))
    message = f"worker {action.status.worker} is gone; whether the action was done is not known"
    return ActionPlan(Need.WRITE, failed(action, Reason.WORKER_LOST, message, now))


def waiting(action: ServiceAction, message: str, now: datetime) -> ServiceActionStatus:
    """No worker is free."""
    return _with_complete(action, action.status, Reason.WAITING_FOR_WORKER, message, now)


def assigned(action: ServiceAction, worker: Worker, now: datetime) -> ServiceActionStatus:
    """It is given to a worker."""
    given = {
        "worker": worker.metadata.name,
        "worker_uid": worker.metadata.uid,
        "attempts": action.status.attempts + 1,
        "revision": worker.metadata.labels.get(LABEL_REVISION, ""),
        "version": worker.metadata.annotations.get(ANNOTATION_VERSION, "")[:64],
    }
    status = action.status.model_copy(update=given)
    return _with_complete(action, status, Reason.RUNNING, "", now)


def progressed(action: ServiceAction, progress: Begun | Progressed, now: datetime) -> ServiceActionStatus:
    """Its worker told how far it is; the first such message says that it started."""
    update: dict[str, Any] = {"started_time": action.status.started_time or now}
    if isinstance(progress, Progressed) and progress.percent is not None:
        update["percent"] = progress.percent
    if isinstance(progress, Progressed) and progress.message is not None:
        update["progress"] = progress.message
    return action.status.model_copy(update=update)


def resulted(
    action: ServiceAction, service: PublishedService | None, ended: Resulted, now: datetime
) -> ServiceActionStatus:
    """Its worker gave the result, or the error; what was not begun, or does no harm twice, is run by another worker."""
    seen = action.model_copy(update={"status": action.status.model_copy(update=_run_times(action, ended, now))})
    result: dict[str, Json] = {}
    error = ended.outcome if isinstance(ended.outcome, wire.WireError) else None
    if isinstance(ended.outcome, ClaimedResult):
        try:
            result = ended.outcome.checked(declared_action(action, service))
        except InvalidResultError as invalid:
            error = invalid.error
    if error is not None:
        interrupted = error.reason is wire.Reason.INTERRUPTED and _is_idempotent(action, service)
        if (interrupted or error.reason in _NOT_BEGUN) and _may_run_elsewhere(action):
            return _run_elsewhere(action, f"worker {action.status.worker}: {error.message}", now)
        message = f"{error.field}: {error.message}" if error.field else error.message
        return failed(seen, error.reason.value, message, now)
    done = {"result": result, "percent": 100, "finished_time": now}
    status = seen.status.model_copy(update=done)
    return _with_complete(action, status, Reason.SUCCEEDED, "", now, done=True)


def _run_times(action: ServiceAction, ended: Resulted, now: datetime) -> dict[str, Any]:
    """When it started and how long it ran, as far as the worker's clock can be right.

    It cannot have started before it was asked for or in the future, nor have run for longer than it exists.
    """
    update: dict[str, Any] = {}
    created = action.metadata.creation_timestamp or now
    if ended.started_at is not None:
        started = from_seconds(ended.started_at)
        if after(created, -MAX_CLOCK_SKEW_SECONDS) <= started <= after(now, MAX_CLOCK_SKEW_SECONDS):
            update["started_time"] = started
    if ended.seconds is not None and ended.seconds <= (now - created).total_seconds() + MAX_CLOCK_SKEW_SECONDS:
        update["run_milliseconds"] = round(ended.seconds * 1000)
    return update


def failed(action: ServiceAction, reason: str, message: str, now: datetime) -> ServiceActionStatus:
    """It is over, without a result."""
    text = message[:_MESSAGE_CHARACTERS]
    update = {"finished_time": now, "failure": ActionFailure(reason=reason, message=text)}
    status = _with_complete(action, action.status.model_copy(update=update), reason, text, now)
    condition = _condition(action, ConditionType.FAILED, True, reason, text, now)
    return status.model_copy(update={"conditions": set_condition(status.conditions, condition)})


def _is_idempotent(action: ServiceAction, service: PublishedService | None) -> bool:
    declared = declared_action(action, service)
    return declared is not None and declared.idempotent


def _may_run_elsewhere(action: ServiceAction) -> bool:
    return action.spec.target.kind != "Worker" and not action.spec.cancel and action.status.attempts < MOST_ATTEMPTS


def _run_elsewhere(action: ServiceAction, message: str, now: datetime) -> ServiceActionStatus:
    cleared = {
        "worker": "",
        "worker_uid": "",
        "revision": "",
        "version": "",
        "percent": None,
        "progress": "",
        "started_time": None,
    }
    status = action.status.model_copy(update=cleared)
    return _with_complete(action, status, Reason.WAITING_FOR_WORKER, message, now)


def _with_complete(
    action: ServiceAction, status: ServiceActionStatus, reason: str, message: str, now: datetime, *, done: bool = False
) -> ServiceActionStatus:
    condition = _condition(action, ConditionType.COMPLETE, done, reason, message, now)
    update = {
        "observed_generation": action.metadata.generation,
        "conditions": set_condition(status.conditions, condition),
    }
    return status.model_copy(update=update)


def _condition(
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
