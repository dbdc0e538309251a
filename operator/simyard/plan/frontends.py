"""How many OCCI frontends a service has, and what its status says of them.

Scaling is for load that lasts: it looks every some seconds, and a frontend takes some more to start. It goes out at
once, at most to twice as many; it goes in one by one, after the load would have fitted into one frontend less for
:data:`STABILISATION_SECONDS`. Whoever has to take a step in back waits twice as long before the next one, so that a
load that only just does not fit is not tried again and again. What is unknown never takes a frontend away; one that has
told its figures before and is too busy now to tell them counts as above its target.
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

TOLERANCE = 0.1
"""A target counts as exceeded by more than this share, and as kept by so much less (as Kubernetes' HPA does it)."""
STABILISATION_SECONDS = 300.0
LONGEST_STABILISATION_SECONDS = 4 * 3600.0
"""Also: a step in that has lasted so long was right."""
STEP_SECONDS = 60.0
"""Between steps in, while the load still fits."""
BLIND_SECONDS = 60.0
"""For so long the load is unknown before the status says so: a frontend that has just started has no figures yet."""
FEW_READS = 10
"""Their mean says nothing."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one frontend has counted since its process began.

    Attributes:
        reads: requests that only read, which wait for nobody but the frontend (an action's time is the worker's).
        read_seconds: the time they took, in sum, without that in which they waited for adapters.
        ticks: how often the event loop's lateness was measured.
        late_seconds: the sum of that lateness: how long requests wait before they are begun.
    """

    reads: int
    read_seconds: float
    ticks: int
    late_seconds: float


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """The reads of one frontend between two looks, and the mean time in which it begins and answers one."""

    reads: int
    latency_seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """What the frontends of a service have to do; None is unknown, not 0.

    Attributes:
        queue_depth: requests in their AMQP queue that no frontend has taken.
        replicas: one entry for each ready frontend.
        silent: so many of these have told their figures before, and are too busy to tell them now.
    """

    queue_depth: int | None
    replicas: tuple[ReplicaLoad | None, ...] = ()
    silent: int = 0

    @property
    def known(self) -> bool:
        """Whether nothing is missing."""
        return self.queue_depth is not None and bool(self.replicas) and None not in self.replicas

    @property
    def latency_seconds(self) -> float | None:
        """The mean over all reads of the frontends that are known; None when none is."""
        found = [item for item in self.replicas if item is not None]
        weight = sum(item.reads + 1 for item in found)
        return sum((item.reads + 1) * item.latency_seconds for item in found) / weight if found else None


@dataclass(frozen=True, slots=True)
class Scaling:
    """How many frontends there should be, and what is remembered for the next look. Times are of a monotonic clock.

    Attributes:
        replicas: how many.
        quiet_since: since when the load would have fitted into one less, without a gap.
        shrunk_at: when the last step in was.
        patience: how often in succession a step in had to be taken back.
        blind_since: since when the load is not known as a whole.
        limited: the load asks for more than ``maxReplicas``.
        blind: the load is unknown for longer than :data:`BLIND_SECONDS`.
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
        """How long the load must fit into one less before a step in."""
        return float(min(LONGEST_STABILISATION_SECONDS, STABILISATION_SECONDS * 2 ** min(self.patience, 16)))


def replica_load(before: Figures | None, after: Figures | None) -> ReplicaLoad | None:
    """The load between two looks; None when one is missing, or the counters began anew.

    A few reads may be slow for reasons of their own: then only the lateness counts.
    """
    if before is None or after is None or after.reads < before.reads or after.ticks <= before.ticks:
        return None
    late = max(0.0, after.late_seconds - before.late_seconds) / (after.ticks - before.ticks)
    reads = after.reads - before.reads
    took = max(0.0, after.read_seconds - before.read_seconds) / reads if reads >= FEW_READS else 0.0
    return ReplicaLoad(reads, late + took)


def first_scaling(service: SimulationService) -> Scaling | None:
    """Where scaling goes on after a restart: at what the status says; None when the service does not scale by load."""
    frontend, status = service.spec.frontend, service.status.frontends
    if frontend is None or frontend.autoscaling is None:
        return None
    start = status.desired if status is not None else frontend.autoscaling.min_replicas
    return Scaling(_within(start, frontend.autoscaling))


def desired_frontends(service: SimulationService, scaling: Scaling | None) -> int | None:
    """How many frontends the service should have; None: no Deployment at all."""
    frontend = service.spec.frontend
    if frontend is None:
        return None
    if frontend.autoscaling is None:
        return frontend.replicas or 0
    return _within(scaling.replicas if scaling is not None else 0, frontend.autoscaling)


def scale(spec: Autoscaling, before: Scaling, load: Load, now: float) -> Scaling:
    """How many frontends there should be after a look at the load."""
    current = _within(before.replicas, spec)
    wanted = max(current, _by_queue(spec, load, current), _by_latency(spec, load))
    blind_since = None if load.known else before.blind_since if before.blind_since is not None else now
    state = replace(
        before,
        replicas=current,
        quiet_since=None,
        blind_since=blind_since,
        limited=wanted > spec.max_replicas,
        blind=blind_since is not None and now - blind_since >= BLIND_SECONDS,
    )
    more = _within(min(wanted, 2 * current), spec)
    if more > current:
        return replace(state, replicas=more, shrunk_at=None, patience=_patience(before, now))
    if current == spec.min_replicas or not load.known or not _fits(spec, load, current - 1):
        return state
    since = before.quiet_since if before.quiet_since is not None else now
    if now - since < before.stabilisation_seconds:
        return replace(state, quiet_since=since)
    next_step = now - before.stabilisation_seconds + STEP_SECONDS
    return replace(state, replicas=current - 1, quiet_since=next_step, shrunk_at=now)


def explain(spec: Autoscaling, load: Load) -> str:
    """The load in words, for an Event."""
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
    """Why frontends could not be made as they should be."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class FrontendsView:
    """What is seen of a service's frontends.

    Attributes:
        desired: how many there should be; None: none are asked for.
        ready: how many answer.
        endpoint: their URL; empty: this operator offers no frontends.
        problem: why they could not be made as they should be, or not be removed; None: they were.
        scaling: the state of scaling by load.
    """

    desired: int | None = None
    ready: int = 0
    endpoint: str = ""
    problem: Problem | None = None
    scaling: Scaling | None = None

    @property
    def status(self) -> FrontendsStatus | None:
        """For ``status.frontends``: nothing where none are asked for, or none are offered."""
        if self.desired is None or not self.endpoint:
            return None
        return FrontendsStatus(desired=self.desired, ready=self.ready)

    @property
    def endpoints(self) -> list[str]:
        """For ``status.endpoints``."""
        return [self.endpoint] if self.desired and self.endpoint else []


FRONTEND_CONDITIONS = (ConditionType.FRONTENDS_AVAILABLE, ConditionType.SCALING_ACTIVE)


def frontend_conditions(service: SimulationService, view: FrontendsView, now: datetime) -> Sequence[Condition]:
    """The conditions about frontends; none when none are asked for."""
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

    found = [condition(ConditionType.FRONTENDS_AVAILABLE, *_available(view, view.desired))]
    if frontend.autoscaling is not None and view.endpoint:
        found.append(condition(ConditionType.SCALING_ACTIVE, *_active(frontend.autoscaling, view.scaling)))
    return found


def _available(view: FrontendsView, desired: int) -> tuple[bool, Reason, str]:
    if not view.endpoint:
        left = f", but those that are there cannot be removed: {view.problem.message}" if view.problem else ""
        message = f"the operator was started without --frontend-image: it runs none{left}"
        return False, Reason.FRONTENDS_NOT_OFFERED, message
    if view.problem is not None:
        return view.ready > 0, view.problem.reason, view.problem.message
    if not desired:
        return False, Reason.SCALED_TO_ZERO, "spec.frontend.replicas is 0"
    if view.ready < desired:
        return view.ready > 0, Reason.FRONTENDS_STARTING, f"{view.ready} of {desired} are ready"
    return True, Reason.FRONTENDS_READY, ""


def _active(spec: Autoscaling, scaling: Scaling | None) -> tuple[bool, Reason, str]:
    if scaling is not None and scaling.blind:
        return False, Reason.LOAD_UNKNOWN, "the queue's depth or a frontend's figures are unknown: none is taken away"
    if scaling is not None and scaling.limited:
        message = f"the load asks for more than spec.frontend.autoscaling.maxReplicas, {spec.max_replicas}"
        return False, Reason.SCALING_LIMITED, message
    return True, Reason.LOAD_FOLLOWED, ""


def _patience(before: Scaling, now: float) -> int:
    """How often a step in had to be taken back, after more were needed; one that lasted begins the count anew."""
    if before.shrunk_at is None:
        return before.patience
    return before.patience + 1 if now - before.shrunk_at < LONGEST_STABILISATION_SECONDS else 0


def _within(replicas: int, spec: Autoscaling) -> int:
    return min(max(replicas, spec.min_replicas), spec.max_replicas)


def _by_queue(spec: Autoscaling, load: Load, current: int) -> int:
    """How many the queue asks for; 0 when it asks for no change."""
    depth, target = load.queue_depth, spec.target_queue_depth
    if depth is None or depth <= target * current * (1 + TOLERANCE):
        return 0
    return math.ceil(depth / target)


def _by_latency(spec: Autoscaling, load: Load) -> int:
    """How many the latency asks for: of those that are ready, so that those that start are not asked for again."""
    latency, target = load.latency_seconds, spec.target_latency_milliseconds / 1000
    busy = len(load.replicas) + load.silent if load.silent else 0
    if latency is None or latency <= target * (1 + TOLERANCE):
        return busy
    return max(busy, math.ceil(len(load.replicas) * latency / target))


def _fits(spec: Autoscaling, load: Load, replicas: int) -> bool:
    """Whether so many would keep both targets, with something to spare."""
    latency = load.latency_seconds
    if load.queue_depth is None or latency is None:
        return False
    ready = len(load.replicas)
    expected = latency * ready / min(ready, replicas)
    target = spec.target_latency_milliseconds / 1000
    spare = 1 - TOLERANCE
    return load.queue_depth <= spec.target_queue_depth * replicas * spare and expected <= target * spare
