# SPDX-License-Identifier: Apache-2.0
"""Selection of the fields on which a pool's plan depends; a change of another field needs no pass."""

from __future__ import annotations

from simyard.api.base import find_condition
from simyard.api.cloud_site import CloudSite
from simyard.api.names import LABEL_REVISION, ConditionType, Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPoolStatus


def is_available(status: WorkerPoolStatus) -> bool:
    """Return whether the pool's status says that the pool is Available."""
    condition = find_condition(status.conditions, ConditionType.AVAILABLE)
    return condition is not None and condition.status == "True"


def get_usability(site: CloudSite) -> list[str | None]:
    """Return the statuses of the site's conditions that decide whether new workers may be placed there."""
    conditions = site.status.conditions
    found = [find_condition(conditions, kind) for kind in (ConditionType.READY, ConditionType.CAPACITY_AVAILABLE)]
    return [condition.status if condition is not None else None for condition in found]


def is_same_for_pool(old: Worker, new: Worker) -> bool:
    """Return whether two versions of a Worker lead to the same plan of their pool."""
    return _select_relevant(old) == _select_relevant(new)


def _select_relevant(worker: Worker) -> tuple[object, ...]:
    metadata, ready = worker.metadata, find_condition(worker.status.conditions, ConditionType.READY)
    return (
        metadata.uid,
        metadata.generation,
        metadata.deletion_timestamp,
        metadata.labels.get(LABEL_REVISION),
        (ready.status, ready.reason) if ready is not None else None,
        worker.status.stages.registered,
    )


def get_phase(worker: Worker) -> str:
    """Return the phase of a worker. When the phase changes, the time limits of the worker begin again."""
    ready = find_condition(worker.status.conditions, ConditionType.READY)
    return Reason.DRAINING if worker.spec.drain else ready.reason if ready is not None else Reason.STARTING
