# SPDX-License-Identifier: Apache-2.0
"""The memory of a pool between two passes."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from functools import partial

from simyard.api.worker_pool import WorkerPoolStatus
from simyard.plan.backoff import Backoff

MAX_SENT = 8
"""Maximum number of statuses to remember while their writes are not answered."""


@dataclass(slots=True)
class PoolMemory:
    """The memory of a pool between two passes, beside its object.

    Attributes:
        status: the newest planned status; it may not be written yet.
        active_at: the time of the last use of the pool, or the time at which this process first saw it.
        written_at: the time of the last status write.
        turned_at: the time of the last write with which the pool became Available or ceased to be.
        due_at: the time at which the status is to be written; None while nothing is to be written.
        taken: names of Workers that belong to other owners.
        unsure: names of Workers whose creation was not answered.
        refused: the message with which the API server refused a Worker.
        sent: statuses whose write was not answered.
        worker_left: whether a worker that knew the broker password has left the pool.
        planned: whether this process has planned the pool.
        torn_down: set once nothing is left of a pool that is being deleted.
    """

    status: WorkerPoolStatus
    active_at: float
    backoff: Backoff = field(default_factory=Backoff)
    written_at: float = float("-inf")
    turned_at: float = float("-inf")
    due_at: float | None = None
    asleep: bool = False
    taken: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    refused: str = ""
    refused_until: float = 0.0
    sent: deque[WorkerPoolStatus] = field(default_factory=partial(deque, maxlen=MAX_SENT))
    worker_left: bool = False
    planned: bool = False
    torn_down: asyncio.Event = field(default_factory=asyncio.Event)
