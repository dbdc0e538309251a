"""The status of a site: from its last probe, its stream of events and its machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from simyard.api.base import Condition, find_condition, set_condition
from simyard.api.cloud_site import CallTuning, CloudSite, CloudSiteStatus, SiteBreaker, SiteWorkers, StageMedians
from simyard.api.names import ANNOTATION_ABANDON, ConditionType, Reason
from simyard.plan.texts import count_of
from simyard.plan.tuner import Setting
from simyard_sites.base import (
    Machine,
    MachineState,
    PermissionDeniedError,
    QuotaExhaustedError,
    SiteError,
    ThrottledError,
    UnauthenticatedError,
)

CallName = Literal["Create", "Delete", "Look", "Start", "Stop", "Suspend", "Restart"]
BreakerName = Literal["Closed", "Open", "HalfOpen"]
_Status = Literal["True", "False", "Unknown"]
_Row = tuple[ConditionType, _Status, str, str]
_MOST_MESSAGE = 1024
_MOST_NAMES = 20
_STARTING = (MachineState.PENDING, MachineState.PROLOG, MachineState.BOOT)


@dataclass(frozen=True, slots=True)
class CallObservation:
    """What was learned of one kind of call.

    Attributes:
        call: which, as ``status.tuning[].call`` names it.
        growing: no limit was met yet.
        bound: only the declared limits keep it from asking more.
        idle: nothing waits and nothing is under way.
        rate: requests per second answered when it was last busy.
        throttled: requests refused as too many.
        pace: requests per second that the site bears, None while it refuses none.
    """

    call: CallName
    setting: Setting
    growing: bool
    bound: bool
    idle: bool
    rate: float
    median_seconds: float
    high_seconds: float
    throttled: int = 0
    pace: float | None = None


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Medians of the newest machines: in each stage, and from acceptance to running. None: unknown."""

    pending: float | None = None
    prolog: float | None = None
    boot: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True)
class BreakerObservation:
    """The breaker: its state, since when, what failed, and when the site is probed next."""

    state: BreakerName = "Closed"
    since: datetime | None = None
    cause: SiteError | None = None
    probes: datetime | None = None


@dataclass(frozen=True, slots=True)
class SiteObservation:
    """What is known of a site.

    Attributes:
        version: what answered the last probe.
        error: why the site cannot be used; None when it can, as far as the last probe and the stream say.
        setup_problem: why the provider could not even be made (reason and message), None when it was.
        capacity: how many machines fit there in all, as the site says; None when it does not.
        exhausted: why no new machines are asked for there, None when they may be.
        paused_until: before then nothing is sent, because the site asked for it; None when it did not.
        probed: when the last probe ended; None when there was none yet.
    """

    workers: SiteWorkers
    desired: int = 0
    version: str = ""
    error: SiteError | None = None
    setup_problem: tuple[str, str] | None = None
    capacity: int | None = None
    exhausted: SiteError | None = None
    paused_until: datetime | None = None
    probed: datetime | None = None
    calls: tuple[CallObservation, ...] = ()
    stages: StageSeconds = StageSeconds()
    breaker: BreakerObservation = BreakerObservation()


def count_machines(states: Iterable[MachineState]) -> SiteWorkers:
    """Machines by what they do."""
    counts = Counter(states)
    return SiteWorkers(
        total=counts.total(),
        starting=sum(counts[state] for state in _STARTING),
        running=counts[MachineState.RUNNING],
        failed=counts[MachineState.FAILED],
    )


def is_ready(site: CloudSite) -> bool:
    """Whether the CloudSite can be used, as its status says."""
    ready = find_condition(site.status.conditions, ConditionType.READY)
    return ready is not None and ready.status == "True"


def is_abandoned(site: CloudSite) -> bool:
    """Whether somebody said that nobody will ever clean up there."""
    return site.metadata.annotations.get(ANNOTATION_ABANDON) == "true"


def left_behind(machines: Iterable[Machine]) -> str:
    """What to tell of a site that is given up with these machines known there."""
    names = sorted(machine.name for machine in machines)
    more = [f"and {len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    known = f"{count_of(len(names), 'machine')} known ({', '.join([*names[:_MOST_NAMES], *more])})" if names else ""
    what = f"there may be {known or 'machines'} left, which may cost money"
    return f"given up, as its annotation {ANNOTATION_ABANDON} asks: {what}"


@dataclass(frozen=True, slots=True)
class Turn:
    """A site has become Ready, or ceased to be: what is told of it."""

    reason: Reason
    note: str
    warning: bool


def turned(old: CloudSiteStatus, new: CloudSiteStatus) -> Turn | None:
    """What changed of whether the site can be used, if that is worth an Event: no end of what is being deleted."""
    before, now = (find_condition(status.conditions, ConditionType.READY) for status in (old, new))
    if now is None or (before is not None and before.status == now.status) or now.reason == Reason.WORKERS_REMAIN:
        return None
    if now.status == "True":
        return Turn(Reason.SITE_READY, f"{new.version} answers, workers can be started there", warning=False)
    return Turn(Reason.SITE_NOT_READY, f"{now.reason}: {now.message}", warning=True)


def plan_site(site: CloudSite, seen: SiteObservation, now: datetime) -> CloudSiteStatus:
    """The site's status. The time of a probe is kept unless something else changed: an idle site costs no writes."""
    conditions = site.status.conditions
    for kind, value, reason, message in _conditions(site, seen):
        new = Condition(
            type=kind,
            status=value,
            reason=reason,
            message=message,
            last_transition_time=now,
            observed_generation=site.metadata.generation,
        )
        conditions = set_condition(conditions, new)
    status = CloudSiteStatus(
        observed_generation=site.metadata.generation,
        version=seen.version or site.status.version,
        workers=seen.workers,
        last_probe_time=site.status.last_probe_time,
        tuning=[_tuning(item, seen.paused_until) for item in seen.calls] or site.status.tuning,
        stages=_stages(seen.stages) if seen.stages.total is not None else site.status.stages,
        breaker=_breaker(seen.breaker),
        conditions=conditions,
    )
    return status if status == site.status else status.model_copy(update={"last_probe_time": seen.probed})


def _conditions(site: CloudSite, seen: SiteObservation) -> list[_Row]:
    """Type, status, reason and message of each condition."""
    reachable, credentials, ready = ConditionType.REACHABLE, ConditionType.CREDENTIALS_VALID, ConditionType.READY
    if site.metadata.deletion_timestamp is not None:
        workers, machines = count_of(seen.desired, "worker"), count_of(seen.workers.total, "known machine")
        message = f"still there: {workers} and {machines}"
        if seen.setup_problem is not None or seen.error is not None:
            message += f"; whether there are others cannot be seen: {seen.error or ': '.join(seen.setup_problem or ())}"
            message += f"; if it is gone for good, annotate it with {ANNOTATION_ABANDON}=true"
        return [(ready, "False", Reason.WORKERS_REMAIN, message)]
    if seen.setup_problem is not None:
        return [(ready, "False", *seen.setup_problem), _unknown_capacity(*seen.setup_problem)]
    error = seen.error
    if error is not None:
        refused = isinstance(error, UnauthenticatedError | PermissionDeniedError)
        return [
            (reachable, "True" if refused else "False", error.reason, str(error)),
            (credentials, "False" if refused else "Unknown", error.reason, str(error)),
            (ready, "False", error.reason, str(error)),
            _unknown_capacity(error.reason if refused else Reason.SITE_UNREACHABLE, str(error)),
        ]
    if seen.probed is None:
        return []
    if seen.breaker.state != "Closed":
        cause = str(seen.breaker.cause)[:_MOST_MESSAGE]
        return [(ready, "False", Reason.BREAKER_OPEN, cause), _unknown_capacity(Reason.BREAKER_OPEN, cause)]
    return [
        (reachable, "True", Reason.PROBE_SUCCEEDED, ""),
        (credentials, "True", Reason.PROBE_SUCCEEDED, ""),
        (ready, "True", Reason.PROBE_SUCCEEDED, ""),
        _capacity(site, seen),
    ]


def _unknown_capacity(reason: str, message: str) -> _Row:
    """While a site cannot be used, what it last said of its room is no news of today."""
    return ConditionType.CAPACITY_AVAILABLE, "Unknown", reason, message


def _capacity(site: CloudSite, seen: SiteObservation) -> _Row:
    kind, most = ConditionType.CAPACITY_AVAILABLE, site.spec.limits.max_workers
    if seen.exhausted is not None:
        reason, message = Reason.CAPACITY_EXHAUSTED, str(seen.exhausted)
        if isinstance(seen.exhausted, QuotaExhaustedError):
            reason = Reason.QUOTA_EXHAUSTED
        elif isinstance(seen.exhausted, ThrottledError):
            reason = Reason.THROTTLED
        if seen.paused_until is not None:
            message = f"{_pause(seen.paused_until)}: {message}"[:_MOST_MESSAGE]
        return kind, "False", reason, message
    if seen.desired >= most:
        return kind, "False", Reason.MAX_WORKERS_REACHED, f"spec.limits.maxWorkers is {most}"
    if seen.capacity is not None and seen.desired >= seen.capacity:
        return kind, "False", Reason.QUOTA_EXHAUSTED, f"the site has room for {count_of(seen.capacity, 'machine')}"
    return kind, "True", Reason.CAPACITY_LEFT, ""


def _pause(until: datetime) -> str:
    return f"the site asked for a pause, nothing is sent until {until:%Y-%m-%dT%H:%M:%SZ}"


def _tuning(seen: CallObservation, paused_until: datetime | None) -> CallTuning:
    setting = seen.setting
    at_once = f"{setting.calls} calls of {setting.batch}"
    limit: Literal["Idle", "Growing", "Latency", "Throttled", "Bound"]
    if paused_until is not None:
        limit, message = "Throttled", _pause(paused_until)
    elif seen.idle:
        limit, message = "Idle", f"{at_once} were enough"
    elif seen.pace is not None:
        limit, message = "Throttled", f"the site refuses more than about {_rounded(seen.pace)} requests per second"
    elif seen.growing:
        limit, message = "Growing", f"{at_once} at once, and no limit met yet"
    elif seen.bound:
        limit, message = "Bound", f"{at_once} at once are what spec.limits permits"
    else:
        limit, message = "Latency", f"more than {at_once} at once only wait longer"
    return CallTuning(
        call=seen.call,
        in_flight=setting.in_flight,
        batch_size=setting.batch,
        requests_per_second=_rounded(seen.rate),
        latency_milliseconds=_rounded(seen.median_seconds * 1000),
        high_latency_milliseconds=_rounded(seen.high_seconds * 1000),
        throttled=seen.throttled,
        limited_by=limit,
        message=message,
    )


def _stages(seen: StageSeconds) -> StageMedians:
    return StageMedians(
        pending_milliseconds=_rounded((seen.pending or 0.0) * 1000),
        prolog_milliseconds=_rounded((seen.prolog or 0.0) * 1000),
        boot_milliseconds=_rounded((seen.boot or 0.0) * 1000),
        total_milliseconds=_rounded((seen.total or 0.0) * 1000),
    )


def _breaker(seen: BreakerObservation) -> SiteBreaker:
    if seen.state == "Closed":
        return SiteBreaker()
    return SiteBreaker(
        state=seen.state,
        since=seen.since,
        reason=seen.cause.reason if seen.cause is not None else "",
        message=str(seen.cause or "")[:_MOST_MESSAGE],
        next_probe_time=seen.probes,
    )


def _rounded(value: float) -> int:
    """To two digits: what varies less is no news, and costs no write."""
    return int(float(f"{max(0.0, value):.2g}"))
