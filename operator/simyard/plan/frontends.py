# SPDX-License-Identifier: Apache-2.0
"""Plan of a service's OCCI frontends: their desired number, and the conditions of the service about them.

The operator measures the load every few seconds. If the load is above a target, it scales out at once, at most to twice
the number of frontends. It scales in by one frontend at a time, when one frontend less would have been enough for
:data:`STABILISATION_SECONDS`. If it has to scale out again soon after a scale-in, the next scale-in waits twice as
long. Otherwise, a load close to a target would cause scale-outs and scale-ins without end. While a part of the load is
unknown, the operator does not scale in. If a frontend reported figures before and is now too busy to report, it counts
as a frontend above its target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from simyard.api.base import Condition
from simyard.api.frontend import Autoscaling, FrontendsStatus
from simyard.api.names import ConditionType, Reason
from simyard.api.simulation_service import SimulationService
from simyard_adapter.backoff import compute_delay

TOLERANCE = 0.1
"""Share of a target by which the load must differ from the target before a change (as in Kubernetes' HPA)."""
STABILISATION_SECONDS = 300.0
MAX_STABILISATION_SECONDS = 4 * 3600.0
"""Maximum wait before a scale-in. A scale-in that lasts this long counts as right and resets the wait."""
STEP_SECONDS = 60.0
"""Time between two scale-ins while one frontend less is still enough."""
BLIND_SECONDS = 60.0
"""The status reports unknown load after this time, because a frontend that has just started has no figures yet."""
MIN_READS = 10
"""Minimum number of reads from which a mean duration is computed."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Counters of one frontend since its process started.

    Attributes:
        reads: Number of read requests. Actions do not count, because they also wait for workers.
        read_seconds: Sum of the durations of these reads, without waits for adapters.
        ticks: Number of measurements of the event loop's delay.
        late_seconds: Sum of the measured delays. Each delay is the time for which a request would have waited.
    """

    reads: int
    read_seconds: float
    ticks: int
    late_seconds: float


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """Number of reads of a frontend between two measurements, and the mean latency with the wait before each read."""

    reads: int
    latency_seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """Load of the frontends of a service; None means unknown, not 0.

    Attributes:
        queue_depth: Number of requests in the AMQP queue that no frontend has received.
        replicas: Load of each ready frontend.
        silent: Number of ready frontends that reported figures before, and do not report now because they are busy.
    """

    queue_depth: int | None
    replicas: tuple[ReplicaLoad | None, ...] = ()
    silent: int = 0

    @property
    def is_complete(self) -> bool:
        """True if the load of the queue and of every frontend is known."""
        return self.queue_depth is not None and bool(self.replicas) and None not in self.replicas

    @property
    def latency_seconds(self) -> float | None:
        """Mean latency over all known reads; None if no load is known."""
        found = [item for item in self.replicas if item is not None]
        weight = sum(item.reads + 1 for item in found)
        return sum((item.reads + 1) * item.latency_seconds for item in found) / weight if found else None


@dataclass(frozen=True, slots=True)
class Scaling:
    """State of the scaling of one service. All times are seconds of a monotonic clock.

    Attributes:
        replicas: Desired number of frontends.
        quiet_since: Time since which one frontend less would have been enough; None if it is not enough now.
        shrunk_at: Time of the last scale-in; None if a scale-out followed it.
        patience: Number of successive scale-ins that a scale-out has undone.
        blind_since: Time since which a part of the load is unknown; None if the load is known.
        limited: True if the load asks for more than ``maxReplicas``.
        blind: True if the load has been unknown for longer than :data:`BLIND_SECONDS`.
    """

    replicas: int
    quiet_since: float | None = None
    shrunk_at: float | None = None
    patience: int = 0
    blind_since: float | None = None
    limited: bool = False
    blind: bool = False

    @property
    def stabilisation_seconds(self) -> float:
        """Time for which one frontend less must have been enough before the next scale-in."""
        return compute_delay(self.patience, STABILISATION_SECONDS, MAX_STABILISATION_SECONDS)


def measure_replica_load(before: Figures | None, after: Figures | None) -> ReplicaLoad | None:
    """Return the load of a frontend between two measurements; None if one is missing, or the counters were reset.

    With fewer than :data:`MIN_READS` reads, the latency contains only the delay of the event loop, because a single
    read can be slow for other reasons.
    """
    if before is None or after is None or after.reads < before.reads or after.ticks <= before.ticks:
        return None
    late = max(0.0, after.late_seconds - before.late_seconds) / (after.ticks - before.ticks)
    reads = after.reads - before.reads
    took = max(0.0, after.read_seconds - before.read_seconds) / reads if reads >= MIN_READS else 0.0
    return ReplicaLoad(reads, late + took)


def resume_scaling(service: SimulationService) -> Scaling | None:
    """Return the state with which a restarted operator continues the scaling; None without ``autoscaling``."""
    frontend, status = service.spec.frontend, service.status.frontends
    if frontend is None or frontend.autoscaling is None:
        return None
    start = status.desired if status is not None else frontend.autoscaling.min_replicas
    return Scaling(_limit_replicas(start, frontend.autoscaling))


def count_desired_frontends(service: SimulationService, scaling: Scaling | None) -> int | None:
    """Return the desired number of frontends; None if the service has no Deployment."""
    frontend = service.spec.frontend
    if frontend is None:
        return None
    if frontend.autoscaling is None:
        return frontend.replicas or 0
    return _limit_replicas(scaling.replicas if scaling is not None else 0, frontend.autoscaling)


def plan_scaling(spec: Autoscaling, before: Scaling, load: Load, now: float) -> Scaling:
    """Return the scaling state after a measurement of the load."""
    current = _limit_replicas(before.replicas, spec)
    wanted = max(current, _count_for_queue(spec, load, current), _count_for_latency(spec, load))
    blind_since = None if load.is_complete else before.blind_since if before.blind_since is not None else now
    state = replace(
        before,
        replicas=current,
        quiet_since=None,
        blind_since=blind_since,
        limited=wanted > spec.max_replicas,
        blind=blind_since is not None and now - blind_since >= BLIND_SECONDS,
    )
    more = _limit_replicas(min(wanted, 2 * current), spec)
    if more > current:
        return replace(state, replicas=more, shrunk_at=None, patience=_get_patience(before, now))
    if current == spec.min_replicas or not load.is_complete or not _would_fit(spec, load, current - 1):
        return state
    since = before.quiet_since if before.quiet_since is not None else now
    if now - since < before.stabilisation_seconds:
        return replace(state, quiet_since=since)
    next_step = now - before.stabilisation_seconds + STEP_SECONDS
    return replace(state, replicas=current - 1, quiet_since=next_step, shrunk_at=now)


def describe_load(spec: Autoscaling, load: Load) -> str:
    """Return a description of the load for an Event."""
    depth = "an unknown number of" if load.queue_depth is None else str(load.queue_depth)
    latency = load.latency_seconds
    took = "unknown" if latency is None else f"{1000 * latency:.0f} ms"
    return (
        f"{depth} requests wait (target {spec.target_queue_depth} for each frontend),"
        f" mean latency {took} (target {spec.target_latency_milliseconds} ms)"
        + (f", {load.silent} do not answer" if load.silent else "")
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """Reason why the frontends could not be reconciled."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class FrontendsView:
    """Observed state of a service's frontends.

    Attributes:
        desired: Desired number of frontends; None if the service has no ``spec.frontend``.
        ready: Number of frontends that answer.
        endpoint: URL of the frontends; empty if this operator offers no frontends.
        problem: Reason why they could not be created, changed or deleted; None if they could.
        scaling: State of the scaling by load.
    """

    desired: int | None = None
    ready: int = 0
    endpoint: str = ""
    problem: Problem | None = None
    scaling: Scaling | None = None

    @property
    def status(self) -> FrontendsStatus | None:
        """Value of ``status.frontends``; None if the service asks for no frontends, or this operator offers none."""
        if self.desired is None or not self.endpoint:
            return None
        return FrontendsStatus(desired=self.desired, ready=self.ready)

    @property
    def endpoints(self) -> list[str]:
        """Value of ``status.endpoints``."""
        return [self.endpoint] if self.desired and self.endpoint else []


FRONTEND_CONDITIONS = (ConditionType.FRONTENDS_AVAILABLE, ConditionType.SCALING_ACTIVE)


def plan_frontend_conditions(service: SimulationService, view: FrontendsView, now: datetime) -> Sequence[Condition]:
    """Return the conditions about frontends; the result is empty if the service asks for no frontends."""
    frontend = service.spec.frontend
    if frontend is None or view.desired is None:
        return ()

    def condition(kind: ConditionType, good: bool, reason: Reason, message: str) -> Condition:
        return Condition(
            type=kind,
            status="True" if good else "False",
            reason=reason,
            message=message[:32768],
            last_transition_time=now,
            observed_generation=service.metadata.generation,
        )

    found = [condition(ConditionType.FRONTENDS_AVAILABLE, *_get_availability(view, view.desired))]
    if frontend.autoscaling is not None and view.endpoint:
        found.append(
            condition(ConditionType.SCALING_ACTIVE, *_get_scaling_activity(frontend.autoscaling, view.scaling))
        )
    return found


def _get_availability(view: FrontendsView, desired: int) -> tuple[bool, Reason, str]:
    if not view.endpoint:
        left = f", but the existing ones cannot be deleted: {view.problem.message}" if view.problem else ""
        message = f"the operator runs no frontends, because it was started without --frontend-image{left}"
        return False, Reason.FRONTENDS_NOT_OFFERED, message
    if view.problem is not None:
        return view.ready > 0, view.problem.reason, view.problem.message
    if not desired:
        return False, Reason.SCALED_TO_ZERO, "spec.frontend.replicas is 0"
    if view.ready < desired:
        return view.ready > 0, Reason.FRONTENDS_STARTING, f"{view.ready} of {desired} are ready"
    return True, Reason.FRONTENDS_READY, ""


def _get_scaling_activity(spec: Autoscaling, scaling: Scaling | None) -> tuple[bool, Reason, str]:
    if scaling is not None and scaling.blind:
        return (
            False,
            Reason.LOAD_UNKNOWN,
            "the depth of the queue or the figures of a frontend are unknown: no frontend is removed",
        )
    if scaling is not None and scaling.limited:
        message = f"the load asks for more than spec.frontend.autoscaling.maxReplicas, {spec.max_replicas}"
        return False, Reason.SCALING_LIMITED, message
    return True, Reason.LOAD_FOLLOWED, ""


def _get_patience(before: Scaling, now: float) -> int:
    """Return the number of successive undone scale-ins, at the time of a scale-out.

    The number is 0 if the last scale-in lasted for ``MAX_STABILISATION_SECONDS``.
    """
    if before.shrunk_at is None:
        return before.patience
    return before.patience + 1 if now - before.shrunk_at < MAX_STABILISATION_SECONDS else 0


def _limit_replicas(replicas: int, spec: Autoscaling) -> int:
    return min(max(replicas, spec.min_replicas), spec.max_replicas)


def _count_for_queue(spec: Autoscaling, load: Load, current: int) -> int:
    """Return the number of frontends that the queue's depth requires; 0 if it requires no scale-out."""
    depth, target = load.queue_depth, spec.target_queue_depth
    if depth is None or depth <= target * current * (1 + TOLERANCE):
        return 0
    return math.ceil(depth / target)


def _count_for_latency(spec: Autoscaling, load: Load) -> int:
    """Return the number of frontends that the latency requires; 0 if it requires no scale-out.

    The basis is the number of ready frontends, because starting frontends do not lower the latency yet.
    """
    latency, target = load.latency_seconds, spec.target_latency_milliseconds / 1000
    busy = len(load.replicas) + load.silent if load.silent else 0
    if latency is None or latency <= target * (1 + TOLERANCE):
        return busy
    return max(busy, math.ceil(len(load.replicas) * latency / target))


def _would_fit(spec: Autoscaling, load: Load, replicas: int) -> bool:
    """Return whether ``replicas`` frontends would be enough for both targets, with a margin of ``TOLERANCE``."""
    latency = load.latency_seconds
    if load.queue_depth is None or latency is None:
        return False
    ready = len(load.replicas)
    expected = latency * ready / min(ready, replicas)
    target = spec.target_latency_milliseconds / 1000
    spare = 1 - TOLERANCE
    return load.queue_depth <= spec.target_queue_depth * replicas * spare and expected <= target * spare
