# SPDX-License-Identifier: Apache-2.0
"""Records when pools with an idle timeout were used.

ServiceActions, Studies and Sync requests use a pool. Adapters report Sync requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from simyard.api import names
from simyard.api.base import from_seconds
from simyard.api.service_action import ServiceAction
from simyard.api.study import Study
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.registry import Registry, find_removed, format_service_key, format_target_key, get_pool_uid, get_time
from simyard.guest.messages import Active
from simyard.messaging.events import ReceivedEvent
from simyard.plan.actions import is_finished
from simyard.plan.idleness import Use
from simyard_adapter.wire import ACTIVE_SECONDS


class Uses:
    """Record of the last use of each pool. It calls ``used`` with a pool at each use."""

    def __init__(self, registry: Registry, used: Callable[[WorkerPool], None]) -> None:
        self._registry = registry
        self._used = used
        self._last: dict[str, datetime] = {}

    def look_back(self) -> None:
        """Apply the actions and studies in the caches, because the caches may have listed them before their pools."""
        for action in self._registry.actions:
            self.action_changed(None, action)
        for study in self._registry.studies:
            self.study_changed(None, study)

    def apply_event(self, event: ReceivedEvent) -> None:
        """Record that an active worker uses its pool, until the time at which its next message would arrive."""
        if isinstance(event.message, Active) and (worker := self._registry.find_worker(event.worker_uid)) is not None:
            for pool in self._registry.pools.list_by("uid", get_pool_uid(worker)):
                self._note(pool, from_seconds(event.received_at + ACTIVE_SECONDS))

    def get_use(self, pool: WorkerPool, *, busy: bool) -> Use:
        """Return the use of a pool; ``busy`` is True if one of its workers runs a ServiceAction.

        An action on the service counts as a use of the pool only while no pool of the service has a worker.
        """
        if pool.spec.idle_timeout_seconds is None:
            return Use()
        registry, namespace, service = self._registry, pool.metadata.namespace, format_service_key(pool)
        on_pool = registry.actions.count(
            "target", format_target_key(names.WORKER_POOLS.kind, namespace, pool.metadata.name)
        )
        on_service = not registry.workers.count("service", service) and registry.actions.count(
            "target", format_target_key(names.SIMULATION_SERVICES.kind, namespace, pool.spec.service_ref.name)
        )
        return Use(
            now=bool(busy or on_pool or on_service or self._has_study(pool)), last=self._last.get(pool.metadata.uid)
        )

    def action_changed(self, old: ServiceAction | None, new: ServiceAction | None) -> None:
        """Record that an action uses the pools that could run it."""
        action = new or old
        if action is None:
            return
        time = action.status.finished_time if is_finished(action) else get_time()
        for pool in self._pools_of(action):
            self._note(pool, time or get_time())

    def study_changed(self, old: Study | None, new: Study | None) -> None:
        """Record that a study uses the pools whose workers run its tasks."""
        study = new or old
        if study is None or (study.spec.suspend and study.status.finished_time is None):
            return
        target = study.spec.target
        workers = self._registry.list_target_workers(target.kind, study.metadata.namespace, target.name)
        uids = {get_pool_uid(worker) for worker in workers}
        if target.kind == names.WORKER_POOLS.kind:
            pool = self._registry.pools.get(study.metadata.namespace, target.name)
            uids = {pool.metadata.uid} if pool is not None else set()
        for pool in (pool for uid in uids for pool in self._registry.pools.list_by("uid", uid)):
            self._note(pool, study.status.finished_time or get_time())

    def pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        """Forget a deleted pool."""
        if (left := find_removed(old, new)) is not None:
            self._last.pop(left.metadata.uid, None)

    def _has_study(self, pool: WorkerPool) -> bool:
        """Return whether a running study, or one that waits for workers, can use the workers of a pool."""
        namespace = pool.metadata.namespace
        targets = (
            format_target_key(names.WORKER_POOLS.kind, namespace, pool.metadata.name),
            format_target_key(names.SIMULATION_SERVICES.kind, namespace, pool.spec.service_ref.name),
        )
        return any(not study.spec.suspend for key in targets for study in self._registry.studies.list_by("target", key))

    def _pools_of(self, action: ServiceAction) -> Iterable[WorkerPool]:
        """Return the pools that an action uses: the pool of its worker, its target, or all pools that could run it."""
        registry, namespace, target = self._registry, action.metadata.namespace, action.spec.target
        worker = registry.find_worker(action.status.worker_uid) if action.status.worker_uid else None
        if worker is None and target.kind == names.WORKERS.kind:
            worker = registry.workers.get(namespace, target.name)
        if worker is not None:
            return registry.pools.list_by("uid", get_pool_uid(worker))
        if target.kind == names.WORKER_POOLS.kind:
            pool = registry.pools.get(namespace, target.name)
            return [pool] if pool is not None else []
        if target.kind == names.SIMULATION_SERVICES.kind and not is_finished(action):
            return registry.pools.list_by("service", f"{namespace}/{target.name}")
        return []

    def _note(self, pool: WorkerPool, time: datetime) -> None:
        if pool.spec.idle_timeout_seconds is None:
            return
        uid = pool.metadata.uid
        self._last[uid] = max(time, self._last.get(uid, time))
        self._used(pool)
