# SPDX-License-Identifier: Apache-2.0
"""Decides when a worker counts as lost, and when a worker is late.

A worker is lost if one of these facts is true. Other parts of the operator observe the facts; this module decides.

- The machine failed, or the site refused to create it (reason ``MachineFailed``). :mod:`simyard.plan.worker` reads this
  from the state of the machine. The worker is replaced at once.
- The site does not have the machine any more (reason ``MachineLost``): :func:`is_machine_lost`. The events of the site
  show this, and :mod:`simyard.plan.machine` finds it in a complete list. The worker is replaced at once.
- The adapter is gone (reason ``AdapterDisconnected``): :func:`is_adapter_gone`. :mod:`simyard.messaging.liveness` sees
  that the worker's queue has no consumer. The worker is replaced after :data:`RECONNECT_SECONDS`.

A worker that never registered is not lost but late: it is replaced after its deadline. While a site is not Ready,
``placement.siteFailure`` can keep its workers from counting as lost (:func:`simyard.plan.workforce.split_workers`).
ServiceActions end by another fact: the Worker object is deleted (:mod:`simyard.plan.actions`).

A limit applies to the time for which this process has seen the worker in its present state, on a steady clock. Times in
the objects are not used: a wall clock that jumps must not make every starting worker late. The consequence is that a
restarted operator gives each worker its full time again.
"""

from __future__ import annotations

from simyard.api.base import Condition, find_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker import Worker

DISCONNECT_GRACE_SECONDS = 10.0
"""Time without a consumer after which a ready worker counts as disconnected; adapters reconnect within it."""

RECONNECT_SECONDS = 60.0
"""Time for which a worker may be disconnected before it is replaced."""

FATAL = frozenset({Reason.MACHINE_FAILED, Reason.MACHINE_LOST})
"""Reasons of ``Ready`` after which a worker cannot become ready any more."""


def is_machine_lost(worker: Worker | None, *, ended_on_request: bool) -> bool:
    """Return whether a Worker is lost because the site does not have its machine any more.

    A Worker that is deleted needs no machine. A machine that a user stopped or restarted is gone ``ended_on_request``.
    """
    return worker is not None and worker.metadata.deletion_timestamp is None and not ended_on_request


def is_adapter_gone(consumer_gone: float, now: float) -> tuple[bool, float]:
    """Return whether an adapter counts as gone, and the seconds until it does.

    Args:
        consumer_gone: Time since which the worker's queue has no consumer, in seconds of a steady clock.
        now: Present time on this clock.
    """
    seconds_left = max(0.0, consumer_gone + DISCONNECT_GRACE_SECONDS - now)
    return seconds_left == 0, seconds_left


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
