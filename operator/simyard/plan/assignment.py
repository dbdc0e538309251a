# SPDX-License-Identifier: Apache-2.0
"""Assignment of waiting ServiceActions to workers."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime

from simyard.api.service_action import ServiceAction
from simyard.api.worker import Worker

MAX_CONCURRENT = 16
"""Maximum number of concurrent actions on one worker. An adapter answers that it is busy from twice this number on."""

_EPOCH = datetime.fromtimestamp(0, UTC)


def assign_actions(
    actions: Sequence[ServiceAction],
    workers: Sequence[Worker],
    busy: Container[str],
    concurrent: Container[str],
    load: Mapping[str, int],
) -> dict[str, Worker]:
    """Return the worker of each action that gets one, by the action's uid; older actions come first.

    Each exclusive action needs a worker of its own that is not busy. A concurrent action runs beside others, on the
    worker with the fewest concurrent actions, up to ``MAX_CONCURRENT``.

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
    """Return the uids of a pool's workers that ServiceActions leave free for Sync calls.

    The free workers with the first names are reserved, so that repeated passes reserve the same workers. If fewer
    workers are free than reserved, all of them are reserved.

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
