"""Which workers cannot go on and must be replaced, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from simyard.api.base import find_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker import Worker
from simyard.plan.times import after
from simyard.plan.worker import FATAL, requested_time

RECONNECT_SECONDS = 60.0
"""So long a worker may be disconnected before it is replaced."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a worker must go, or (no reason) when to look at it again."""

    reason: str = ""
    message: str = ""
    look_again: datetime | None = None


def judge(worker: Worker, deadline_seconds: float, now: datetime) -> Verdict:
    """Whether a worker must be replaced now."""
    ready = find_condition(worker.status.conditions, ConditionType.READY)
    if ready is not None and ready.reason in FATAL:
        return Verdict(ready.reason, ready.message)
    if ready is not None and ready.reason == Reason.ADAPTER_DISCONNECTED:
        until = after(ready.last_transition_time, RECONNECT_SECONDS)
        if until <= now:
            return Verdict(ready.reason, f"its adapter did not come back within {RECONNECT_SECONDS:.0f} s")
        return Verdict(look_again=until)
    if worker.status.stages.registered is not None or worker.spec.power_state != "Running":
        return Verdict()
    requested = requested_time(worker)
    if requested is None:
        return Verdict()
    until = after(requested, deadline_seconds)
    if until <= now:
        state = worker.status.machine_state or "unknown"
        return Verdict(
            Reason.READINESS_DEADLINE_EXCEEDED,
            f"it did not register within {deadline_seconds:.0f} s; its machine's state is {state}",
        )
    return Verdict(look_again=until)
