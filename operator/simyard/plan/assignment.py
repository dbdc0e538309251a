"""Which waiting ServiceAction goes to which worker."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import UTC, datetime

from simyard.api.service_action import ServiceAction
from simyard.api.worker import Worker

_EPOCH = datetime.fromtimestamp(0, UTC)


def match(
    actions: Sequence[ServiceAction], workers: Sequence[Worker], busy: Container[str], concurrent: Container[str]
) -> dict[str, Worker]:
    """The worker of each action that gets one, by the action's uid; the oldest action first.

    An exclusive action needs a worker that is not busy, and no two of them get the same; one that is declared
    concurrent runs beside others.

    Args:
        actions: those that wait.
        workers: those that are ready.
        busy: uids of workers that run an exclusive action.
        concurrent: uids of the actions that are declared concurrent.
    """
    free = [worker for worker in reversed(workers) if worker.metadata.uid not in busy]
    matched: dict[str, Worker] = {}
    shared = 0
    for action in sorted(actions, key=_age):
        if action.metadata.uid in concurrent:
            if workers:
                matched[action.metadata.uid] = workers[shared % len(workers)]
                shared += 1
        elif free:
            matched[action.metadata.uid] = free.pop()
    return matched


def _age(action: ServiceAction) -> tuple[datetime, str]:
    return action.metadata.creation_timestamp or _EPOCH, action.metadata.uid
