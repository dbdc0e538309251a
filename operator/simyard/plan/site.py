"""The status of a site: from its last probe, its stream of events and its machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from simyard.api.base import Condition, set_condition
from simyard.api.cloud_site import CloudSite, CloudSiteStatus, SiteWorkers
from simyard.api.names import ConditionType, Reason
from simyard_sites.base import (
    MachineState,
    PermissionDeniedError,
    QuotaExhaustedError,
    SiteError,
    UnauthenticatedError,
)

_Status = Literal["True", "False", "Unknown"]
_Row = tuple[ConditionType, _Status, str, str]
_STARTING = (MachineState.PENDING, MachineState.PROLOG, MachineState.BOOT)


@dataclass(frozen=True, slots=True)
class SiteObservation:
    """What is known of a site.

    Attributes:
        version: what answered the last probe.
        error: why the site cannot be used; None when it can, as far as the last probe and the stream say.
        setup_problem: why the provider could not even be made (reason and message), None when it was.
        exhausted: why no more machines fit, None when more may.
        probed: when the last probe ended; None when there was none yet.
    """

    workers: SiteWorkers
    desired: int = 0
    version: str = ""
    error: SiteError | None = None
    setup_problem: tuple[str, str] | None = None
    exhausted: SiteError | None = None
    probed: datetime | None = None


def count_machines(states: Iterable[MachineState]) -> SiteWorkers:
    """Machines by what they do."""
    counts = Counter(states)
    return SiteWorkers(
        total=counts.total(),
        starting=sum(counts[state] for state in _STARTING),
        running=counts[MachineState.RUNNING],
        failed=counts[MachineState.FAILED],
    )


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
        conditions=conditions,
    )
    return status if status == site.status else status.model_copy(update={"last_probe_time": seen.probed})


def _conditions(site: CloudSite, seen: SiteObservation) -> list[_Row]:
    """Type, status, reason and message of each condition."""
    reachable, credentials, ready = ConditionType.REACHABLE, ConditionType.CREDENTIALS_VALID, ConditionType.READY
    if site.metadata.deletion_timestamp is not None:
        message = f"{seen.desired} workers and {seen.workers.total} known machines are left"
        if seen.setup_problem is not None or seen.error is not None:
            message += f"; whether there are others cannot be seen: {seen.error or ': '.join(seen.setup_problem or ())}"
        return [(ready, "False", Reason.WORKERS_REMAIN, message)]
    if seen.setup_problem is not None:
        return [(ready, "False", *seen.setup_problem)]
    error = seen.error
    if error is not None:
        refused = isinstance(error, UnauthenticatedError | PermissionDeniedError)
        return [
            (reachable, "True" if refused else "False", error.reason, str(error)),
            (credentials, "False" if refused else "Unknown", error.reason, str(error)),
            (ready, "False", error.reason, str(error)),
        ]
    if seen.probed is None:
        return []
    return [
        (reachable, "True", Reason.PROBE_SUCCEEDED, ""),
        (credentials, "True", Reason.PROBE_SUCCEEDED, ""),
        (ready, "True", Reason.PROBE_SUCCEEDED, ""),
        _capacity(site, seen),
    ]


def _capacity(site: CloudSite, seen: SiteObservation) -> _Row:
    kind, most = ConditionType.CAPACITY_AVAILABLE, site.spec.limits.max_workers
    if seen.exhausted is not None:
        quota = isinstance(seen.exhausted, QuotaExhaustedError)
        return kind, "False", Reason.QUOTA_EXHAUSTED if quota else Reason.CAPACITY_EXHAUSTED, str(seen.exhausted)
    if seen.desired >= most:
        return kind, "False", Reason.MAX_WORKERS_REACHED, f"spec.limits.maxWorkers is {most}"
    return kind, "True", Reason.CAPACITY_LEFT, ""
