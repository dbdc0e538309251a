# SPDX-License-Identifier: Apache-2.0
"""Rotation of the broker passwords of pools: the time of a change, and the time to delete the former login.

A worker that leaves its pool knows the password of the pool's broker user. So the password changes some time after a
worker left. The delay covers several workers with one change, and limits the time for which the password of a deleted
machine is usable.

The former login is kept while a worker of the pool uses it. The operator sends the newest login to each worker over its
queue. The worker connects with the newest login. Under the newest login it also answers the requests that it received
under the former login. Then the operator deletes the former login, and the broker closes all connections that still use
it. All decisions are derived from the state of the API server and the broker, so a new operator continues where the
last one stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from simyard.api.worker_pool import BrokerCredentials, WorkerPoolStatus
from simyard.plan.times import add_seconds, get_seconds_until

DEADLINE_SECONDS = 1800.0
"""Time in which a worker must begin to use the newest login; then the former login is deleted."""
LINGER_SECONDS = 60.0
"""Time in which a worker may finish requests of the former login after it has connected with the newest one."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the rotation of one broker user.

    Attributes:
        outdated: Uids of workers that consume only under a former login; they must get the newest one.
        finished: True if every worker consumes under the newest login.
    """

    outdated: tuple[str, ...]
    finished: bool

    def may_delete(
        self,
        *,
        finished_seconds: float,
        rotating_seconds: float,
        linger_seconds: float = LINGER_SECONDS,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> bool:
        """Return whether the former logins may be deleted.

        Args:
            finished_seconds: Time since the rotation is finished.
            rotating_seconds: Time since the newest login was first sent to the workers.
            linger_seconds: Time for which the former logins stay valid.
            deadline_seconds: Time in which every worker must use the newest login.
        """
        return (self.finished and finished_seconds >= linger_seconds) or rotating_seconds >= deadline_seconds


def measure_progress(newest: str, logins: Mapping[str, Collection[str]]) -> Progress:
    """Return the progress of a rotation.

    Args:
        newest: Newest login.
        logins: Logins under which each existing worker's queue is consumed, by the worker's uid.
    """
    outdated = tuple(uid for uid, found in logins.items() if found and newest not in found)
    return Progress(outdated, all(newest in found for found in logins.values()))


def plan_credentials(
    previous: BrokerCredentials | None, *, worker_left: bool, now: datetime, rotate_after_seconds: float
) -> tuple[BrokerCredentials | None, float | None]:
    """Return a pool's credentials, and the seconds until they may change; None if no change is due.

    Args:
        previous: Credentials in the pool's status.
        worker_left: True if a worker that knew the password has left.
        now: Present time.
        rotate_after_seconds: Delay between the exit of a worker and the change of the password; 0: no change.
    """
    if not rotate_after_seconds:
        return previous, None
    credentials = previous or BrokerCredentials()
    left = credentials.worker_left_time or (now if worker_left else None)
    if left is None:
        return previous, None
    if waits := get_seconds_until(now, [add_seconds(left, rotate_after_seconds)]):
        return credentials.model_copy(update={"worker_left_time": left}), waits
    generation = credentials.generation + 1
    return BrokerCredentials(generation=generation, rotated_time=now), None


def get_generation(status: WorkerPoolStatus) -> int:
    """Return the number of password changes for this pool alone."""
    return status.broker_credentials.generation if status.broker_credentials is not None else 0


def was_changed_lately(credentials: BrokerCredentials | None, now: datetime) -> bool:
    """Return whether workers may still use the former password of the pool."""
    time = credentials.rotated_time if credentials is not None else None
    return time is not None and now < add_seconds(time, DEADLINE_SECONDS)
