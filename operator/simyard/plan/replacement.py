"""Which workers cannot go on and must be replaced, and why.

Time limits are for the time that this process has seen a worker as it is, on a clock that nobody sets, and not counted
from the times in the objects: a wall clock that jumps must not condemn every worker that starts. An operator that
starts anew gives them their time again.
"""

from __future__ import annotations

from simyard.api.base import Condition, find_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker import Worker
from simyard.plan.worker import FATAL

RECONNECT_SECONDS = 60.0
"""So long a worker may be disconnected before it is replaced."""


def time_limit(worker: Worker, ready: Condition | None, deadline_seconds: float) -> float | None:
    """How many seconds a worker may stay as its condition ``Ready`` says: 0 if it cannot mend, None for ever."""
    if ready is not None:
        if ready.status == "True":
            return None
        if ready.reason in FATAL:
            return 0.0
        if ready.reason == Reason.ADAPTER_DISCONNECTED:
            return RECONNECT_SECONDS
    return deadline_seconds if is_starting(worker) else None


def verdict(worker: Worker, ready: Condition | None, deadline_seconds: float) -> tuple[str, str]:
    """Reason and message of a worker whose time limit has passed."""
    if ready is not None and ready.reason in FATAL:
        return ready.reason, ready.message
    if ready is not None and ready.reason == Reason.ADAPTER_DISCONNECTED:
        return ready.reason, f"its adapter did not come back within {RECONNECT_SECONDS:.0f} s"
    state = worker.status.machine_state or "unknown"
    message = f"it did not register within {deadline_seconds:.0f} s; its machine's state is {state}"
    return Reason.READINESS_DEADLINE_EXCEEDED, message


def is_starting(worker: Worker) -> bool:
    """Whether it is on its way to be ready for the first time."""
    return worker.status.stages.registered is None and worker.spec.power_state == "Running"


def is_disconnected(worker: Worker) -> bool:
    """Whether it was ready and may come back by itself."""
    ready = find_condition(worker.status.conditions, ConditionType.READY)
    return ready is not None and ready.reason == Reason.ADAPTER_DISCONNECTED
