# SPDX-License-Identifier: Apache-2.0
"""Decision when a worker counts as lost, and when a worker is late.

A worker is lost if one of three facts is true. Other modules of the operator observe the facts; this module decides
what follows from them.

- The machine failed, or the site will never create it (reason ``MachineFailed``). :mod:`simyard.plan.worker` reads this
  from the state of the machine or the answer of the site. The operator replaces the worker at once.
- The site does not have the machine any more (reason ``MachineLost``): :func:`is_machine_lost`. The events of the site
  show this, and :mod:`simyard.plan.machine` finds it in a complete list. The operator replaces the worker at once.
- The adapter is gone (reason ``AdapterDisconnected``): :func:`is_adapter_gone`. :mod:`simyard.messaging.liveness` sees
  that the worker's queue has no consumer. After :data:`DISCONNECT_GRACE_SECONDS`, the adapter counts as gone. If it
  does not reconnect within another :data:`RECONNECT_SECONDS`, the operator replaces the worker.

Other rules apply in three cases:

- A worker that never registered is not lost but late. The operator replaces it after its registration deadline.
- The limits do not apply to a draining worker: :func:`simyard.plan.workforce.split_workers` skips it, and
  :func:`simyard.plan.scale_in.get_drain_seconds_left` decides when the operator deletes it.
- While a site is not Ready, its workers do not count as lost or late in pools with ``placement.siteFailure: Wait``.

ServiceActions do not use these rules: for them, a worker is gone when its Worker object is deleted
(:mod:`simyard.plan.actions`).

The limits apply to the time for which this process has seen the worker in its present state, on a steady clock. The
times in the objects are not used, because a wall clock that jumps would make every starting worker late. Therefore, a
restarted operator gives each worker its full time again.
"""

from __future__ import annotations

from simyard.api.base import Condition, find_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker import Worker

DISCONNECT_GRACE_SECONDS = 10.0
"""Time without a consumer after which a ready worker counts as disconnected. Most adapters reconnect in this time."""

RECONNECT_SECONDS = 60.0
"""Time for which a worker may be disconnected before the operator replaces it."""

FATAL = frozenset({Reason.MACHINE_FAILED, Reason.MACHINE_LOST})
"""Reasons of ``Ready`` with which a worker can never become ready again."""


def is_machine_lost(worker: Worker | None, *, ended_on_request: bool) -> bool:
    """Return whether a Worker is lost because the site does not have its machine any more.

    A Worker that is being deleted is not lost, because it needs no machine. ``ended_on_request`` is True if the
    machine is gone because a user stopped or restarted the worker; then the Worker is not lost either.
    """
    return worker is not None and worker.metadata.deletion_timestamp is None and not ended_on_request


def is_adapter_gone(consumer_gone: float, now: float) -> tuple[bool, float]:
    """Return whether an adapter counts as gone, and the seconds until it counts as gone.

    Args:
        consumer_gone: Time since which the worker's queue has no consumer, in seconds of a steady clock.
        now: Present time on this clock.
    """
    seconds_left = max(0.0, consumer_gone + DISCONNECT_GRACE_SECONDS - now)
    return seconds_left == 0, seconds_left


def get_time_limit(worker: Worker, ready: Condition | None, deadline_seconds: float) -> float | None:
    """Return the seconds for which a worker may stay in its present state.

    The result is 0 if the worker cannot become ready again, and None if there is no limit.
    """
    if ready is not None:
        if ready.status == "True":
            return None
        if ready.reason in FATAL:
            return 0.0
        if ready.reason == Reason.ADAPTER_DISCONNECTED:
            return RECONNECT_SECONDS
    return deadline_seconds if is_starting(worker) else None


def explain_removal(worker: Worker, ready: Condition | None, deadline_seconds: float) -> tuple[str, str]:
    """Return the reason and the message with which a worker is removed after its time limit."""
    if ready is not None and ready.reason in FATAL:
        return ready.reason, ready.message
    if ready is not None and ready.reason == Reason.ADAPTER_DISCONNECTED:
        return ready.reason, f"the adapter did not reconnect within {RECONNECT_SECONDS:.0f} s"
    state = worker.status.machine_state or "unknown"
    message = f"the adapter did not register within {deadline_seconds:.0f} s; the state of the machine is {state}"
    return Reason.READINESS_DEADLINE_EXCEEDED, message


def is_starting(worker: Worker) -> bool:
    """Return whether a worker is starting: it has not registered yet, and its ``spec.powerState`` is Running."""
    return worker.status.stages.registered is None and worker.spec.power_state == "Running"


def is_disconnected(worker: Worker) -> bool:
    """Return whether a worker's adapter is disconnected; it may still reconnect."""
    ready = find_condition(worker.status.conditions, ConditionType.READY)
    return ready is not None and ready.reason == Reason.ADAPTER_DISCONNECTED
