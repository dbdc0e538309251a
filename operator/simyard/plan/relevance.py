"""What of Workers, sites and statuses a pool's plan depends on: the rest may change without another pass."""

from __future__ import annotations

from simyard.api.base import find_condition
from simyard.api.cloud_site import CloudSite
from simyard.api.names import LABEL_REVISION, ConditionType, Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPoolStatus


def is_available(status: WorkerPoolStatus) -> bool:
    """Whether the pool is Available, as its status says."""
    condition = find_condition(status.conditions, ConditionType.AVAILABLE)
    return condition is not None and condition.status == "True"


def usable(site: CloudSite) -> list[str | None]:
    """What of a site's status decides whether new workers may go there."""
    conditions = site.status.conditions
    found = [find_condition(conditions, kind) for kind in (ConditionType.READY, ConditionType.CAPACITY_AVAILABLE)]
    return [condition.status if condition is not None else None for condition in found]


def same_for_pool(old: Worker, new: Worker) -> bool:
    """Whether nothing changed that a pool's plan depends on."""
    return _relevant(old) == _relevant(new)


def _relevant(worker: Worker) -> tuple[object, ...]:
    metadata, ready = worker.metadata, find_condition(worker.status.conditions, ConditionType.READY)
    return (
        metadata.uid,
        metadata.generation,
        metadata.deletion_timestamp,
        metadata.labels.get(LABEL_REVISION),
        (ready.status, ready.reason) if ready is not None else None,
        worker.status.stages.registered,
    )


def phase(worker: Worker) -> str:
    """What a worker's time limits depend on: they begin anew when it changes."""
    ready = find_condition(worker.status.conditions, ConditionType.READY)
    return Reason.DRAINING if worker.spec.drain else ready.reason if ready is not None else Reason.STARTING
