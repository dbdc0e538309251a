# SPDX-License-Identifier: Apache-2.0
"""Assignment of waiting ServiceActions to workers."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime

from simyard.api.service_action import ServiceAction
from simyard.api.worker import Worker

MAX_CONCURRENT = 16
"""Maximum number of concurrent actions on one worker; an adapter refuses further actions only at twice this number."""

_EPOCH = datetime.fromtimestamp(0, UTC)


def assign_actions(
    actions: Sequence[ServiceAction],
    workers: Sequence[Worker],
    busy: Container[str],
    concurrent: Container[str],
    load: Mapping[str, int],
) -> dict[str, Worker]:
    """Assign waiting actions to workers, the oldest action first, and return the worker of each assigned action by uid.

    An exclusive action gets a worker that is not busy and to which no other exclusive action is assigned. A concurrent
    action gets the worker with the fewest concurrent actions, if that worker has fewer than ``MAX_CONCURRENT``.

    Args:
        actions: Waiting actions.
        workers: Ready workers.
        busy: Uids of workers that run an exclusive action.
        concurrent: Uids of the actions whose declarations say that they are concurrent.
        load: Number of running concurrent actions, by the worker's uid.
    """
    free = [worker for worker in reversed(workers) if worker.metadata.uid not in busy]
    matched: dict[str, Worker] = {}
    running = {worker.metadata.uid: load.get(worker.metadata.uid, 0) for worker in workers}
    for action in sorted(actions, key=_get_age_key):
        if action.metadata.uid in concurrent:
            least = min(workers, key=lambda worker: running[worker.metadata.uid], default=None)
            if least is not None and running[least.metadata.uid] < MAX_CONCURRENT:
                matched[action.metadata.uid] = least
                running[least.metadata.uid] += 1
        elif free:
            matched[action.metadata.uid] = free.pop()
    return matched


def reserve_for_sync(ready: Sequence[Worker], busy: Container[str], reserved: str | int | None) -> frozenset[str]:
    """Return the uids of the workers of a pool that are reserved for Sync calls.

    The function reserves free workers in the order of their names, so that repeated passes reserve the same workers.
    If too few workers are free, it reserves all free workers.

    Args:
        ready: Ready workers of one pool.
        busy: Uids of workers that run an exclusive action.
        reserved: ``spec.reservedForSync`` of the pool: a number, or a percentage of the ready workers, rounded down.
    """
    if reserved is None:
        return frozenset()
    count = reserved if isinstance(reserved, int) else len(ready) * int(reserved.removesuffix("%")) // 100
    free = sorted((worker for worker in ready if worker.metadata.uid not in busy), key=lambda it: it.metadata.name)
    return frozenset(worker.metadata.uid for worker in free[:count])


def _get_age_key(action: ServiceAction) -> tuple[datetime, str]:
    return action.metadata.creation_timestamp or _EPOCH, action.metadata.uid
