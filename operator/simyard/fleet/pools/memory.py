# SPDX-License-Identifier: Apache-2.0
"""Data of a pool that the operator keeps between two passes."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from functools import partial

from simyard.api.worker_pool import WorkerPoolStatus
from simyard.plan.backoff import Backoff

MAX_SENT = 8
"""Maximum number of remembered statuses whose writes got no answer."""


@dataclass(slots=True)
class PoolMemory:
    """Data of a pool that the operator keeps between two passes, and that are not in the object.

    Attributes:
        status: the status of the last plan; the operator may not have written it yet.
        active_at: the time of the last use of the pool, or the time at which this process first saw the pool.
        written_at: the time of the last write of the status.
        turned_at: the time of the last write that changed whether the pool is Available.
        due_at: the time at which the status must be written; None if no write is necessary.
        taken: names of Workers in the namespace that do not belong to the pool.
        unsure: names of Workers whose creation got no answer from the API server.
        refused: the message with which the API server refused a Worker.
        sent: statuses whose write got no answer from the API server.
        worker_left: True if a worker that knows the broker password has left the pool.
        planned: True if this process has planned the pool.
        torn_down: event that is set when the Workers, machines, queues and user of a deleted pool are gone.
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
