# SPDX-License-Identifier: Apache-2.0
"""Rotation of the broker passwords of pools: when a password changes, and when the former login is deleted.

A worker that has left its pool still knows the password of the pool's broker user. So the operator changes the password
some time after a worker left. The delay lets several workers share one change. It also bounds the time for which the
password in a deleted machine stays valid.

The operator keeps the former login while a worker of the pool uses it. It sends the newest login to each worker through
the worker's queue. The worker connects with the newest login, and also answers the requests that it received under the
former login. Then the operator deletes the former login, and the broker closes all connections that still use it. The
operator derives all decisions from the state of the API server and the broker, so a restarted operator continues the
rotation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from simyard.api.worker_pool import BrokerCredentials, WorkerPoolStatus
from simyard.plan.times import add_seconds, get_seconds_until

DEADLINE_SECONDS = 1800.0
"""Time after which the operator deletes the former login, even if a worker does not use the newest login yet."""
LINGER_SECONDS = 60.0
"""Time in which workers may finish requests of the former login after all of them use the newest login."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the rotation of one broker user.

    Attributes:
        outdated: Uids of workers that consume their queues only with a former login; they must get the newest login.
        finished: True if every worker consumes its queue with the newest login.
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
            finished_seconds: Time for which the rotation has been finished.
            rotating_seconds: Time since the operator first sent the newest login to the workers.
            linger_seconds: Time for which former logins stay valid after the rotation is finished.
            deadline_seconds: Time after which former logins are deleted, even if the rotation is not finished.
        """
        return (self.finished and finished_seconds >= linger_seconds) or rotating_seconds >= deadline_seconds


def measure_progress(newest: str, logins: Mapping[str, Collection[str]]) -> Progress:
    """Return the progress of a rotation.

    Args:
        newest: Newest login.
        logins: Logins of the consumers of each existing worker's queue, by the worker's uid.
    """
    outdated = tuple(uid for uid, found in logins.items() if found and newest not in found)
    return Progress(outdated, all(newest in found for found in logins.values()))


def plan_credentials(
    previous: BrokerCredentials | None, *, worker_left: bool, now: datetime, rotate_after_seconds: float
) -> tuple[BrokerCredentials | None, float | None]:
    """Return a pool's credentials, and the seconds until they change; None if no change is due.

    Args:
        previous: Credentials in the pool's status.
        worker_left: True if a worker that knows the password has left the pool.
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
    """Return the number of changes of this pool's password; changes of the master key do not count."""
    return status.broker_credentials.generation if status.broker_credentials is not None else 0


def was_changed_lately(credentials: BrokerCredentials | None, now: datetime) -> bool:
    """Return whether the pool's password changed so recently that workers may still use the former one."""
    time = credentials.rotated_time if credentials is not None else None
    return time is not None and now < add_seconds(time, DEADLINE_SECONDS)
