# SPDX-License-Identifier: Apache-2.0
"""Time limits after which a worker is replaced, and the reasons for the replacement.

A limit applies to the time for which this process has seen the worker in its present state, on a steady clock. Times in
the objects are not used: a wall clock that jumps must not make every starting worker late. The consequence is that a
restarted operator gives each worker its full time again.
"""

from __future__ import annotations

from simyard.api.base import Condition, find_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker import Worker
from simyard.plan.worker import FATAL

RECONNECT_SECONDS = 60.0
"""Time for which a worker may be disconnected before it is replaced."""


def get_time_limit(worker: Worker, ready: Condition | None, deadline_seconds: float) -> float | None:
    """Return the seconds for which a worker may stay in its state: 0 if it cannot recover, None without a limit."""
    if ready is not None:
        if ready.status == "True":
            return None
        if ready.reason in FATAL:
            return 0.0
        if ready.reason == Reason.ADAPTER_DISCONNECTED:
            return RECONNECT_SECONDS
    return deadline_seconds if is_starting(worker) else None


def explain_removal(worker: Worker, ready: Condition | None, deadline_seconds: float) -> tuple[str, str]:
    """Return reason and message for the removal of a worker whose time limit has passed."""
    if ready is not None and ready.reason in FATAL:
        return ready.reason, ready.message
    if ready is not None and ready.reason == Reason.ADAPTER_DISCONNECTED:
        return ready.reason, f"the adapter did not reconnect within {RECONNECT_SECONDS:.0f} s"
    state = worker.status.machine_state or "unknown"
    message = f"the adapter did not register within {deadline_seconds:.0f} s; the state of the machine is {state}"
    return Reason.READINESS_DEADLINE_EXCEEDED, message


def is_starting(worker: Worker) -> bool:
    """Return whether a worker is starting: it has not registered yet, and it is not to be stopped."""
    return worker.status.stages.registered is None and worker.spec.power_state == "Running"


def is_disconnected(worker: Worker) -> bool:
    """Return whether a worker was ready and its adapter may reconnect."""
    ready = find_condition(worker.status.conditions, ConditionType.READY)
    return ready is not None and ready.reason == Reason.ADAPTER_DISCONNECTED
