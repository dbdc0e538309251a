# SPDX-License-Identifier: Apache-2.0
"""Plan of a CloudSite's status, from the site's last probe, its stream of events and its machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from simyard.api.base import Condition, find_condition, set_condition
from simyard.api.cloud_site import CallTuning, CloudSite, CloudSiteStatus, SiteBreaker, SiteWorkers, StageMedians
from simyard.api.names import ANNOTATION_ABANDON, ConditionType, Reason
from simyard.plan.platform import PlatformProblem
from simyard.plan.texts import format_count
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
_MAX_MESSAGE_CHARACTERS = 1024
_MAX_NAMED_MACHINES = 20
_STARTING = (MachineState.PENDING, MachineState.PROLOG, MachineState.BOOT)


@dataclass(frozen=True, slots=True)
class CallObservation:
    """Measurements of one kind of call to a site.

    Attributes:
        call: Kind of call, as in ``status.tuning[].call``.
        growing: True if the tuner has not found a limit yet.
        bound: True if only ``spec.limits`` prevents more parallel requests.
        idle: True if no request waits or is under way.
        rate: Requests per second that the site answered when it was last busy.
        throttled: Number of requests that the site has refused because there were too many.
        pace: Requests per second that the site accepts; None if it accepts the declared rate.
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
    """Median durations of the stages of the newest machines, in seconds; None if unknown.

    ``total`` is the time from the site's acceptance of the request until the machine runs.
    """

    pending: float | None = None
    prolog: float | None = None
    boot: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True)
class BreakerObservation:
    """State of a site's breaker, the begin of this state, the error that caused it, and the time of the next probe."""

    state: BreakerName = "Closed"
    since: datetime | None = None
    cause: SiteError | None = None
    probes: datetime | None = None


@dataclass(frozen=True, slots=True)
class SiteObservation:
    """Observed state of a site.

    Attributes:
        workers: Numbers of machines by state.
        desired: Number of Workers at the site.
        version: Product and version of the site, from the last probe.
        error: Error of the last probe or of the stream of events; None if the site is usable.
        setup_problem: Reason and message if the provider could not be created; else None.
        capacity: Number of machines for which the site reports room; None if the site does not report it.
        exhausted: Error because of which the operator requests no new machines; None if there is no such error.
        paused_until: End of a pause that the site asked for; None if there is no pause.
        probed: End of the last probe; None before the first probe has ended.
        platform: Problem of the platform itself; None if there is none.
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
    platform: PlatformProblem | None = None


def count_machines(states: Iterable[MachineState]) -> SiteWorkers:
    """Return the numbers of machines by state."""
    counts = Counter(states)
    return SiteWorkers(
        total=counts.total(),
        starting=sum(counts[state] for state in _STARTING),
        running=counts[MachineState.RUNNING],
        failed=counts[MachineState.FAILED],
    )


def is_ready(site: CloudSite) -> bool:
    """Return whether the CloudSite is Ready, as its status says."""
    ready = find_condition(site.status.conditions, ConditionType.READY)
    return ready is not None and ready.status == "True"


def is_abandoned(site: CloudSite) -> bool:
    """Return whether a user has annotated the CloudSite as abandoned."""
    return site.metadata.annotations.get(ANNOTATION_ABANDON) == "true"


def describe_left_behind(machines: Iterable[Machine]) -> str:
    """Describe the machines that may remain at an abandoned site, for an Event."""
    names = sorted(machine.name for machine in machines)
    more = [f"and {len(names) - _MAX_NAMED_MACHINES} more"] if len(names) > _MAX_NAMED_MACHINES else []
    known = (
        f"{format_count(len(names), 'machine')} known ({', '.join([*names[:_MAX_NAMED_MACHINES], *more])})"
        if names
        else ""
    )
    what = f"there may be {known or 'machines'} left, which may cost money"
    return f"deleted without cleaning up, because of its annotation {ANNOTATION_ABANDON}: {what}"


@dataclass(frozen=True, slots=True)
class Turn:
    """Event that says that a site has become Ready, or is not Ready any more."""

    reason: Reason
    note: str
    warning: bool


def find_turn(old: CloudSiteStatus, new: CloudSiteStatus) -> Turn | None:
    """Return the Event for a change of the condition Ready; None if it did not change or the site is being deleted."""
    before, now = (find_condition(status.conditions, ConditionType.READY) for status in (old, new))
    if now is None or (before is not None and before.status == now.status) or now.reason == Reason.WORKERS_REMAIN:
        return None
    if now.status == "True":
        return Turn(Reason.SITE_READY, f"{new.version} answers: workers can start at the site", warning=False)
    return Turn(Reason.SITE_NOT_READY, f"{now.reason}: {now.message}", warning=True)


def plan_site(site: CloudSite, seen: SiteObservation, now: datetime) -> CloudSiteStatus:
    """Return the new status of a site.

    The time of the last probe changes only together with another field, so that an idle site causes no writes.
    """
    conditions = site.status.conditions
    rows = _list_conditions(site, seen)
    if rows:  # before the first probe of a site, this condition is not worth a write
        rows.append(_make_platform_healthy(seen.platform))
    for kind, value, reason, message in rows:
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
        tuning=[_make_tuning(item, seen.paused_until) for item in seen.calls] or site.status.tuning,
        stages=_make_stages(seen.stages) if seen.stages.total is not None else site.status.stages,
        breaker=_make_breaker(seen.breaker),
        conditions=conditions,
    )
    return status if status == site.status else status.model_copy(update={"last_probe_time": seen.probed})


def _list_conditions(site: CloudSite, seen: SiteObservation) -> list[_Row]:
    """Return the type, status, reason and message of each condition of a site, except PlatformHealthy."""
    reachable, credentials, ready = ConditionType.REACHABLE, ConditionType.CREDENTIALS_VALID, ConditionType.READY
    if site.metadata.deletion_timestamp is not None:
        workers, machines = format_count(seen.desired, "worker"), format_count(seen.workers.total, "known machine")
        message = f"the site still has {workers} and {machines}"
        if seen.setup_problem is not None or seen.error is not None:
            message += f"; other machines cannot be seen: {seen.error or ': '.join(seen.setup_problem or ())}"
            message += f"; if the site is gone for good, annotate the CloudSite with {ANNOTATION_ABANDON}=true"
        return [(ready, "False", Reason.WORKERS_REMAIN, message)]
    if seen.setup_problem is not None:
        return [(ready, "False", *seen.setup_problem), _make_unknown_capacity(*seen.setup_problem)]
    error = seen.error
    if error is not None:
        refused = isinstance(error, UnauthenticatedError | PermissionDeniedError)
        return [
            (reachable, "True" if refused else "False", error.reason, str(error)),
            (credentials, "False" if refused else "Unknown", error.reason, str(error)),
            (ready, "False", error.reason, str(error)),
            _make_unknown_capacity(error.reason if refused else Reason.SITE_UNREACHABLE, str(error)),
        ]
    if seen.probed is None:
        return []
    if seen.breaker.state != "Closed":
        cause = str(seen.breaker.cause)[:_MAX_MESSAGE_CHARACTERS]
        return [(ready, "False", Reason.BREAKER_OPEN, cause), _make_unknown_capacity(Reason.BREAKER_OPEN, cause)]
    return [
        (reachable, "True", Reason.PROBE_SUCCEEDED, ""),
        (credentials, "True", Reason.PROBE_SUCCEEDED, ""),
        (ready, "True", Reason.PROBE_SUCCEEDED, ""),
        _get_capacity(site, seen),
    ]


def _make_platform_healthy(problem: PlatformProblem | None) -> _Row:
    if problem is None:
        return ConditionType.PLATFORM_HEALTHY, "True", Reason.PLATFORM_WORKS, ""
    return ConditionType.PLATFORM_HEALTHY, "False", problem.reason, problem.message


def _make_unknown_capacity(reason: str, message: str) -> _Row:
    """Return CapacityAvailable with status Unknown, for a site that cannot be used now."""
    return ConditionType.CAPACITY_AVAILABLE, "Unknown", reason, message


def _get_capacity(site: CloudSite, seen: SiteObservation) -> _Row:
    kind, most = ConditionType.CAPACITY_AVAILABLE, site.spec.limits.max_workers
    if seen.exhausted is not None:
        reason, message = Reason.CAPACITY_EXHAUSTED, str(seen.exhausted)
        if isinstance(seen.exhausted, QuotaExhaustedError):
            reason = Reason.QUOTA_EXHAUSTED
        elif isinstance(seen.exhausted, ThrottledError):
            reason = Reason.THROTTLED
        if seen.paused_until is not None:
            message = f"{_describe_pause(seen.paused_until)}: {message}"[:_MAX_MESSAGE_CHARACTERS]
        return kind, "False", reason, message
    if seen.desired >= most:
        return kind, "False", Reason.MAX_WORKERS_REACHED, f"spec.limits.maxWorkers is {most}"
    if seen.capacity is not None and seen.desired >= seen.capacity:
        return kind, "False", Reason.QUOTA_EXHAUSTED, f"the site has room for {format_count(seen.capacity, 'machine')}"
    return kind, "True", Reason.CAPACITY_LEFT, ""


def _describe_pause(until: datetime) -> str:
    return f"the site asked for a pause: no requests until {until:%Y-%m-%dT%H:%M:%SZ}"


def _make_tuning(seen: CallObservation, paused_until: datetime | None) -> CallTuning:
    setting = seen.setting
    at_once = f"{setting.calls} calls of {setting.batch}"
    limit: Literal["Idle", "Growing", "Latency", "Throttled", "Bound"]
    if paused_until is not None:
        limit, message = "Throttled", _describe_pause(paused_until)
    elif seen.idle:
        limit, message = "Idle", f"{at_once} were enough"
    elif seen.pace is not None:
        limit, message = "Throttled", f"the site refuses more than about {_round(seen.pace)} requests per second"
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
        requests_per_second=_round(seen.rate),
        latency_milliseconds=_round(seen.median_seconds * 1000),
        high_latency_milliseconds=_round(seen.high_seconds * 1000),
        throttled=seen.throttled,
        limited_by=limit,
        message=message,
    )


def _make_stages(seen: StageSeconds) -> StageMedians:
    return StageMedians(
        pending_milliseconds=_round((seen.pending or 0.0) * 1000),
        prolog_milliseconds=_round((seen.prolog or 0.0) * 1000),
        boot_milliseconds=_round((seen.boot or 0.0) * 1000),
        total_milliseconds=_round((seen.total or 0.0) * 1000),
    )


def _make_breaker(seen: BreakerObservation) -> SiteBreaker:
    if seen.state == "Closed":
        return SiteBreaker()
    return SiteBreaker(
        state=seen.state,
        since=seen.since,
        reason=seen.cause.reason if seen.cause is not None else "",
        message=str(seen.cause or "")[:_MAX_MESSAGE_CHARACTERS],
        next_probe_time=seen.probes,
    )


def _round(value: float) -> int:
    """Round a number to two significant digits, so that small variations cause no write."""
    return int(float(f"{max(0.0, value):.2g}"))
