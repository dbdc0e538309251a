# SPDX-License-Identifier: Apache-2.0
"""Workers with room for a chunk of a study.

A pass that looked at all workers of its target would cost as much as the target is large, for each chunk that ends. So
each study keeps the workers that may have room. The invariant: a worker that can take a chunk is among them. A worker
joins them when its state, its presence, or its number of chunks changes. It leaves them when a pass finds no room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice

from simyard.api import names
from simyard.api.study import Study
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.actions.assignment import Presence, list_reserved
from simyard.fleet.registry import Registry, get_pool_uid, get_queue
from simyard.fleet.studies.assigned import Assigned
from simyard.plan.studies.assignment import choose_workers
from simyard.plan.worker import is_ready
from simyard_adapter.wire import ErrorReason, WireError

RESERVED_SECONDS = 1.0
"""Time for which the set of reserved workers of a pool is used again. A pass over all workers of the pool finds it."""
REFUSAL_SECONDS = 5.0
"""Time for which a worker that has refused a chunk, because it is busy or drains, gets no chunk of any study."""
LOOKS_PER_PLACE = 8
"""Number of workers that are compared for each place that ``parallelism`` leaves; the least loaded one is chosen."""


class Room:
    """The workers that may have room for a chunk of one study."""

    def __init__(self) -> None:
        self.complete = False
        self._own: dict[str, None] = {}
        self._former: dict[str, None] = {}
        self._fresh: dict[str, None] = {}

    def add(self, worker_uid: str, chunks: int, *, former: bool = False) -> None:
        """Add a worker that has this number of chunks of the study; ``former`` is True if it had some before."""
        self.remove(worker_uid)
        (self._own if chunks else self._former if former else self._fresh)[worker_uid] = None

    def remove(self, worker_uid: str) -> None:
        """Remove a worker."""
        for workers in (self._own, self._former, self._fresh):
            workers.pop(worker_uid, None)

    def forget(self) -> None:
        """Have the next pass look at all workers of the target."""
        self.complete = False

    def list_own(self) -> list[str]:
        """Return the workers that have chunks of the study."""
        return list(self._own)

    def list_fresh(self) -> list[str]:
        """Return the workers that have none; first those that had some, because they have the files of the study."""
        return [*self._former, *self._fresh]


class Capacity:
    """The workers of all targets of studies, with the work that they have."""

    def __init__(self, registry: Registry, presence: Presence, time: Callable[[], float] | None = None) -> None:
        """Set up; ``time`` returns the seconds of a clock, by default those of the loop."""
        self._registry = registry
        self._presence = presence
        self._time = time or asyncio.get_running_loop().time
        self._paused: dict[str, float] = {}
        self._reserved: dict[str, tuple[float, frozenset[str]]] = {}

    def pool_changed(self, pool: WorkerPool) -> None:
        """Find the reserved workers of a pool again."""
        self._reserved.pop(pool.metadata.uid, None)

    def note_error(self, worker_uid: str, error: WireError) -> None:
        """Give a worker no chunks for a while if it has refused one; each try costs an object in the store."""
        if error.reason in (ErrorReason.BUSY, ErrorReason.DRAINING):
            self._paused[worker_uid] = self._time() + REFUSAL_SECONDS

    def find_pause_end(self) -> float | None:
        """Return the seconds until a worker that has refused a chunk may get one; None without such a worker."""
        now = self._time()
        self._paused = {uid: end for uid, end in self._paused.items() if end > now}
        return min((end - now for end in self._paused.values()), default=None)

    def count_workers(self, study: Study) -> int:
        """Return the number of workers that can run tasks of a study."""
        return sum(self._takes_tasks(worker) and not self._is_reserved(study, worker) for worker in self._list(study))

    def choose(self, study: Study, assigned: Assigned, room: Room, chunks: int, per_worker: int) -> list[str]:
        """Return the uids of the workers that get the next chunks of a study, one chunk for each entry."""
        if not room.complete:
            room.complete = True
            for worker in self._list(study):
                room.add(worker.metadata.uid, assigned.count(worker.metadata.uid))
        limit = study.spec.parallelism
        places = chunks if limit is None else max(0, min(chunks, limit - assigned.workers))
        own = {uid: assigned.count(uid) for uid in self._look(study, assigned, room, room.list_own(), per_worker)}
        fresh: list[str] = []
        if places:
            looks = self._look(study, assigned, room, room.list_fresh(), per_worker)
            fresh = sorted(islice(looks, places * LOOKS_PER_PLACE), key=self._count_work)[:places]
        return choose_workers(own, fresh, chunks, per_worker=per_worker)

    def _list(self, study: Study) -> list[Worker]:
        target = study.spec.target
        return self._registry.list_target_workers(target.kind, study.metadata.namespace, target.name)

    def _look(self, study: Study, assigned: Assigned, room: Room, workers: list[str], per_worker: int) -> Iterator[str]:
        """Yield the workers that have room now, and remove those from the room that have none."""
        for uid in workers:
            worker = self._registry.find_worker(uid)
            if worker is None or assigned.count(uid) >= per_worker or not self._takes_tasks(worker):
                room.remove(uid)
            elif self._paused.get(uid, 0.0) <= self._time() and not self._is_reserved(study, worker):
                yield uid

    def _takes_tasks(self, worker: Worker) -> bool:
        return is_ready(worker) and not worker.spec.drain and self._presence(get_queue(worker)) is not False

    def _count_work(self, worker_uid: str) -> int:
        return self._registry.chunks.get(worker_uid, 0) + self._registry.actions.count("worker", worker_uid)

    def _is_reserved(self, study: Study, worker: Worker) -> bool:
        """Return whether the pool of a worker reserves it for Sync calls; a study of the worker itself may use it."""
        pool_uid = get_pool_uid(worker)
        if study.spec.target.kind == names.WORKERS.kind or not pool_uid:
            return False
        since, reserved = self._reserved.get(pool_uid, (float("-inf"), frozenset[str]()))
        if self._time() - since >= RESERVED_SECONDS:
            pool = next(iter(self._registry.pools.list_by("uid", pool_uid)), None)
            reserved = frozenset()
            if pool is not None and pool.spec.reserved_for_sync is not None:
                workers = [it for it in self._registry.workers.list_by("pool", pool_uid) if self._takes_tasks(it)]
                count = self._registry.actions.count
                busy = frozenset(it.metadata.uid for it in workers if count("worker", it.metadata.uid))
                reserved = list_reserved(self._registry, workers, busy)
            self._reserved[pool_uid] = self._time(), reserved
        return worker.metadata.uid in reserved
