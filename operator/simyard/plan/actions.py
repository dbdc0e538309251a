"""What each ServiceAction needs now, and its status after each thing that happens to it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from simyard.api.base import Condition, find_condition, from_seconds, set_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.service_action import ActionFailure, ServiceAction, ServiceActionStatus
from simyard.api.worker import Worker
from simyard.plan.service import PublishedService
from simyard.plan.times import after
from simyard_adapter import wire
from simyard_adapter.declarations import Action, InvalidValuesError, Json, check_values

WORKER_LOST_GRACE_SECONDS = 5.0
"""So long after its worker is gone an action is not given up: its result may be on the way."""

OVERRUN_SECONDS = 60.0
"""The adapter ends an action that takes too long; only when it does not do so in this time, the operator does."""

MOST_ATTEMPTS = 5
_NOT_BEGUN = (wire.Reason.DRAINING, wire.Reason.BUSY)
_MESSAGE_CHARACTERS = 16_384


class Need(enum.Enum):
    """What is to be done about an action."""

    NOTHING = enum.auto()
    ASSIGN = enum.auto()
    PUBLISH = enum.auto()
    CANCEL = enum.auto()
    WRITE = enum.auto()
    DELETE = enum.auto()


@dataclass(frozen=True, slots=True)
class Target:
    """On what an action is called, as far as it exists.

    ``service`` is None when the target or its service does not exist. ``worker_there`` and ``worker_gone`` speak of the
    worker that the action was given to: whether it exists, and since when it is known to be gone.
    """

    service: PublishedService | None
    worker_there: bool = False
    worker_gone: datetime | None = None


@dataclass(frozen=True, slots=True)
class ActionPlan:
    """What an action needs. ``status`` is set with WRITE; ``look_again`` is when to plan again in any case."""

    need: Need
    status: ServiceActionStatus | None = None
    look_again: datetime | None = None


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


def plan_action(action: ServiceAction, target: Target, *, published: bool, now: datetime) -> ActionPlan:
    """What the action needs. ``published``: this process has sent it to its worker since the broker last came back."""
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
    if not published:
        return ActionPlan(Need.PUBLISH)
    declared = declared_action(action, target.service)
    overrun: datetime | None = None
    if declared is not None and action.status.started_time is not None:
        overrun = after(action.status.started_time, timeout_seconds(action, declared) + OVERRUN_SECONDS)
        if overrun <= now:
            message = f"no result within {timeout_seconds(action, declared)} s"
            return ActionPlan(Need.WRITE, failed(action, wire.Reason.TIMED_OUT.value, message, now))
    return ActionPlan(Need.CANCEL if action.spec.cancel else Need.NOTHING, look_again=overrun)


def _plan_unassigned(action: ServiceAction, target: Target, now: datetime) -> ActionPlan:
    if action.spec.cancel:
        message = "it was cancelled before it began"
        return ActionPlan(Need.WRITE, failed(action, wire.Reason.CANCELLED.value, message, now))
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
    }
    status = action.status.model_copy(update=given)
    return _with_complete(action, status, Reason.RUNNING, "", now)


def progressed(action: ServiceAction, body: Mapping[str, Json], now: datetime) -> ServiceActionStatus:
    """Its worker told how far it is; the first such message says that it started."""
    percent, message = body.get("percent"), body.get("message")
    known = isinstance(percent, int | float)
    update: dict[str, Any] = {"started_time": action.status.started_time or now}
    if known and isinstance(percent, int | float):
        update["percent"] = max(0, min(100, int(percent)))
    if isinstance(message, str):
        update["progress"] = message[:1024]
    return action.status.model_copy(update=update)


def resulted(
    action: ServiceAction, service: PublishedService | None, body: Mapping[str, Json], now: datetime
) -> ServiceActionStatus:
    """Its worker gave the result, or the error; what was not begun, or does no harm twice, is run by another worker."""
    started, seconds, error = body.get("startedAt"), body.get("seconds"), body.get("error")
    update: dict[str, Any] = {}
    if isinstance(started, int | float):
        update["started_time"] = from_seconds(started)
    if isinstance(seconds, int | float):
        update["run_milliseconds"] = max(0, round(seconds * 1000))
    seen = action.model_copy(update={"status": action.status.model_copy(update=update)})
    if isinstance(error, dict):
        read = wire.WireError.from_json(error)
        interrupted = read.reason is wire.Reason.INTERRUPTED and _is_idempotent(action, service)
        if (interrupted or read.reason in _NOT_BEGUN) and _may_run_elsewhere(action):
            return _run_elsewhere(action, f"worker {action.status.worker}: {read.message}", now)
        message = f"{read.field}: {read.message}" if read.field else read.message
        return failed(seen, read.reason.value, message, now)
    done = {"result": body.get("result"), "percent": 100, "finished_time": now}
    status = seen.status.model_copy(update=done)
    return _with_complete(action, status, Reason.SUCCEEDED, "", now, done=True)


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
    cleared = {"worker": "", "worker_uid": "", "percent": None, "progress": "", "started_time": None}
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
