"""Which waiting ServiceAction goes to which worker."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime

from simyard.api.service_action import ServiceAction
from simyard.api.worker import Worker

MOST_CONCURRENT = 16
"""Concurrent actions on one worker at the same time: half of what an adapter takes before it says that it is busy."""

_EPOCH = datetime.fromtimestamp(0, UTC)


def match(
    actions: Sequence[ServiceAction],
    workers: Sequence[Worker],
    busy: Container[str],
    concurrent: Container[str],
    load: Mapping[str, int],
) -> dict[str, Worker]:
    """The worker of each action that gets one, by the action's uid; the oldest action first.

    An exclusive action needs a worker that is not busy, and no two of them get the same; one that is declared
    concurrent runs beside others, on the worker that has the fewest of them, up to ``MOST_CONCURRENT``.

    Args:
        actions: those that wait.
        workers: those that are ready.
        busy: uids of workers that run an exclusive action.
        concurrent: uids of the actions that are declared concurrent.
        load: how many concurrent actions run, by the worker's uid.
    """
    free = [worker for worker in reversed(workers) if worker.metadata.uid not in busy]
    matched: dict[str, Worker] = {}
    running = {worker.metadata.uid: load.get(worker.metadata.uid, 0) for worker in workers}
    for action in sorted(actions, key=_age):
        if action.metadata.uid in concurrent:
            least = min(workers, key=lambda worker: running[worker.metadata.uid], default=None)
            if least is not None and running[least.metadata.uid] < MOST_CONCURRENT:
                matched[action.metadata.uid] = least
                running[least.metadata.uid] += 1
        elif free:
            matched[action.metadata.uid] = free.pop()
    return matched


def kept_free(ready: Sequence[Worker], busy: Container[str], reserved: str | int | None) -> frozenset[str]:
    """Return the uids of the workers of a pool that ServiceActions leave free for Sync calls.

    Args:
        ready: the ready workers of one pool.
        busy: uids of workers that run an exclusive action.
        reserved: ``spec.reservedForSync`` of the pool: a number, or a percentage of the ready workers, rounded down.

    The free workers with the first names are kept, so that repeated passes keep the same workers. With fewer free
    workers than are reserved, all of them are kept.
    """
    if reserved is None:
        return frozenset()
    count = reserved if isinstance(reserved, int) else len(ready) * int(reserved.removesuffix("%")) // 100
    free = sorted((worker for worker in ready if worker.metadata.uid not in busy), key=lambda it: it.metadata.name)
    return frozenset(worker.metadata.uid for worker in free[:count])


def _age(action: ServiceAction) -> tuple[datetime, str]:
    return action.metadata.creation_timestamp or _EPOCH, action.metadata.uid
