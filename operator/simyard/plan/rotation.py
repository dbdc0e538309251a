"""When a pool's password at the broker changes, and when the former one may go.

A worker that leaves its pool knows the password of the pool's user. So the password changes some time after a worker
left: the delay gathers what leaves together, and bounds for how long the password of a machine that is gone is of use.

The former login stays while a worker of the pool uses it. Each worker is told the newest one over its queue, connects
with it and answers under it what it began under the former one; then the former login is deleted, which ends whatever
is still connected with it. Everything here is decided from what the API server and the broker say, so a new operator
goes on where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from simyard.api.worker_pool import BrokerCredentials, WorkerPoolStatus
from simyard.plan.times import after, seconds_until

DEADLINE_SECONDS = 1800.0
"""A worker that does not consume under the newest login by then is cut off, and replaced when it does not come back."""
LINGER_SECONDS = 60.0
"""A worker that has connected anew may finish so long what it was asked under the former login: Sync takes 30 s."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the workers of one broker user are.

    Attributes:
        outdated: uids of workers that consume under a former login alone: they are to be told the newest one.
        finished: every worker consumes under the newest login.
    """

    outdated: tuple[str, ...]
    finished: bool

    def may_delete(self, *, finished_seconds: float, rotating_seconds: float) -> bool:
        """Whether the former logins may go.

        Args:
            finished_seconds: for how long it has been finished.
            rotating_seconds: for how long workers have been told the newest login.
        """
        return (self.finished and finished_seconds >= LINGER_SECONDS) or rotating_seconds >= DEADLINE_SECONDS


def progress(newest: str, logins: Mapping[str, Collection[str]]) -> Progress:
    """Return how far the workers are.

    Args:
        newest: the newest login.
        logins: under which each worker's queue is consumed, by the worker's uid; of every worker that exists.
    """
    outdated = tuple(uid for uid, found in logins.items() if found and newest not in found)
    return Progress(outdated, all(newest in found for found in logins.values()))


def plan_credentials(
    previous: BrokerCredentials | None, *, worker_left: bool, now: datetime, rotate_after_seconds: float
) -> tuple[BrokerCredentials | None, float | None]:
    """Return a pool's credentials, and after how many seconds to look again.

    Args:
        previous: the credentials of its status.
        worker_left: a worker has left that knew the password.
        now: the time.
        rotate_after_seconds: the password changes so long after a worker left; 0: never.
    """
    if not rotate_after_seconds:
        return previous, None
    credentials = previous or BrokerCredentials()
    left = credentials.worker_left_time or (now if worker_left else None)
    if left is None:
        return previous, None
    if waits := seconds_until(now, [after(left, rotate_after_seconds)]):
        return credentials.model_copy(update={"worker_left_time": left}), waits
    generation = credentials.generation + 1
    return BrokerCredentials(generation=generation, rotated_time=now), None


def generation_of(status: WorkerPoolStatus) -> int:
    """Return how often the password of the pool was changed for it alone."""
    return status.broker_credentials.generation if status.broker_credentials is not None else 0


def changed_lately(credentials: BrokerCredentials | None, now: datetime) -> bool:
    """Whether workers may still use the password before the newest of the pool."""
    time = credentials.rotated_time if credentials is not None else None
    return time is not None and now < after(time, DEADLINE_SECONDS)
