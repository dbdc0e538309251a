"""When pools that have an idle time-out were used: by ServiceActions, and by Sync requests as the adapters tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from simyard.api import names
from simyard.api.base import from_seconds
from simyard.api.service_action import ServiceAction
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.registry import Registry, gone, now, pool_uid_of, service_key, target_key
from simyard.guest.messages import Active
from simyard.messaging.events import ReceivedEvent
from simyard.plan.actions import is_finished
from simyard.plan.idleness import Use
from simyard_adapter.wire import ACTIVE_SECONDS


class Uses:
    """``used`` is called with a pool whenever something is heard of an action on it."""

    def __init__(self, registry: Registry, used: Callable[[WorkerPool], None]) -> None:
        self._registry = registry
        self._used = used
        self._last: dict[str, datetime] = {}
        registry.actions.subscribe(self._action_changed)
        registry.pools.subscribe(self._pool_changed)

    def look_back(self) -> None:
        """Take what is in the caches: actions may have been listed before the pools that they were for."""
        for action in self._registry.actions:
            self._action_changed(None, action)

    def take(self, event: ReceivedEvent) -> None:
        """Apply an event from a worker. An active worker may be active until its next event would come."""
        if isinstance(event.message, Active) and (worker := self._registry.worker(event.worker_uid)) is not None:
            for pool in self._registry.pools.by("uid", pool_uid_of(worker)):
                self._note(pool, from_seconds(event.received_at + ACTIVE_SECONDS))

    def of(self, pool: WorkerPool, *, busy: bool) -> Use:
        """The use of a pool; ``busy``: some worker of it runs a ServiceAction.

        An action on the service counts while no pool of it has any worker.
        """
        if pool.spec.idle_timeout_seconds is None:
            return Use()
        registry, namespace, service = self._registry, pool.metadata.namespace, service_key(pool)
        on_pool = registry.actions.count("target", target_key(names.WORKER_POOLS.kind, namespace, pool.metadata.name))
        on_service = not registry.workers.count("service", service) and registry.actions.count(
            "target", target_key(names.SIMULATION_SERVICES.kind, namespace, pool.spec.service_ref.name)
        )
        return Use(now=bool(busy or on_pool or on_service), last=self._last.get(pool.metadata.uid))

    def _action_changed(self, old: ServiceAction | None, new: ServiceAction | None) -> None:
        action = new or old
        if action is None:
            return
        time = action.status.finished_time if is_finished(action) else now()
        for pool in self._pools_of(action):
            self._note(pool, time or now())

    def _pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        if (left := gone(old, new)) is not None:
            self._last.pop(left.metadata.uid, None)

    def _pools_of(self, action: ServiceAction) -> Iterable[WorkerPool]:
        """The pools that an action uses: its target, that of its worker, or those that could serve it."""
        registry, namespace, target = self._registry, action.metadata.namespace, action.spec.target
        worker = registry.worker(action.status.worker_uid) if action.status.worker_uid else None
        if worker is None and target.kind == names.WORKERS.kind:
            worker = registry.workers.get(namespace, target.name)
        if worker is not None:
            return registry.pools.by("uid", pool_uid_of(worker))
        if target.kind == names.WORKER_POOLS.kind:
            pool = registry.pools.get(namespace, target.name)
            return [pool] if pool is not None else []
        if target.kind == names.SIMULATION_SERVICES.kind and not is_finished(action):
            return registry.pools.by("service", f"{namespace}/{target.name}")
        return []

    def _note(self, pool: WorkerPool, time: datetime) -> None:
        if pool.spec.idle_timeout_seconds is None:
            return
        uid = pool.metadata.uid
        self._last[uid] = max(time, self._last.get(uid, time))
        self._used(pool)
