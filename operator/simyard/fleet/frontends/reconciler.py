# SPDX-License-Identifier: Apache-2.0
"""Reconciles the OCCI frontends of every service: creates, repairs, scales and deletes them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import NoReturn

from prometheus_client import Counter, Gauge

from simyard.api import names
from simyard.api.frontend import Autoscaling
from simyard.api.simulation_service import SimulationService
from simyard.fleet.frontends.load import FrontendLoads
from simyard.fleet.frontends.occi_broker import OcciBroker
from simyard.fleet.frontends.rights import FrontendRights, Part, apply_part, delete_part, read_part
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry, find_removed
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.fleet.work_queue import KeyQueue
from simyard.kube.cache import Cache, Key, make_key
from simyard.manifests.frontend import (
    DEPLOYMENTS,
    KINDS,
    FrontendTemplate,
    build_frontend,
    find_owner,
    get_endpoint,
    make_object_name,
)
from simyard.manifests.frontend_account import SERVICE_ACCOUNTS
from simyard.messaging.errors import MessagingError
from simyard.messaging.occi_topology import name_request_queue
from simyard.plan.frontends import (
    FrontendsView,
    Load,
    Problem,
    Scaling,
    count_desired_frontends,
    describe_load,
    plan_scaling,
    resume_scaling,
)
from simyard.plan.service import PublishedService
from simyard_sites.kubernetes.errors import ApiError, NotFoundError

log = logging.getLogger(__name__)

FRONTENDS = Gauge("simyard_frontends", "OCCI frontends of a service that scales by load.", ["service", "state"])
DEPTH = Gauge("simyard_frontend_queue_depth", "OCCI requests that wait for a frontend; NaN while unknown.",
              ["service"])  # fmt: skip
LATENCY = Gauge("simyard_frontend_latency_seconds",
                "Mean time until a service's frontends have answered a read; NaN while unknown.",
                ["service"])  # fmt: skip
SCALINGS = Counter(
    "simyard_frontend_scalings_total", "Changes of the number of frontends because of load.", ["direction"]
)


class Frontends:
    """Reconciler of the objects of all services' frontends; ``manifests/frontend.py`` builds the desired objects.

    A pass over a service compares the existing objects with the desired objects, and applies each object that differs.
    It runs after a change of the service, of its load, or of the objects themselves. The labels of each object name
    its service. So a later operator can delete the objects of a service that was deleted while no operator ran, and
    services need no finalizer for their frontends. ``namespace`` is the platform's namespace, which contains the
    objects. ``template`` is None if this operator has no image for frontends; then it deletes existing frontends.

    Attributes:
        on_change: functions to call with each service whose :meth:`get_view` has changed.
        caches: the caches of the objects.
    """

    def __init__(
        self,
        registry: Registry,
        recorder: Recorder,
        broker: OcciBroker,
        loads: FrontendLoads,
        namespace: str,
        template: FrontendTemplate | None,
        timing: Timing = PRODUCTION,
    ) -> None:
        self.on_change: list[Callable[[Key], None]] = []
        self._registry = registry
        self._recorder = recorder
        self._broker = broker
        self._loads = loads
        self._namespace = namespace
        self._template = template
        self._look_seconds = timing.frontend_look_seconds
        self._scalings: dict[str, Scaling] = {}
        self._problems: dict[Key, Problem] = {}
        self._broker_reachable = False
        self._queues: set[str] = set()
        spacing = timing.frontend_spacing_seconds
        self._queue = KeyQueue("frontend", self._reconcile, concurrency=4, spacing_seconds=spacing)
        self._of_kind: dict[str, Cache[Part]] = {}
        for kind in template.kinds if template is not None else KINDS:
            cache = Cache(registry.client, kind, read_part, namespaces=(namespace,))
            cache.subscribe(self._part_changed)
            self._of_kind[kind.kind] = cache
        role = template.pod.role if template is not None else ""
        self._rights = FrontendRights(registry, self._of_kind[SERVICE_ACCOUNTS.kind], namespace, role)
        self._rights.cache.subscribe(self._rights_changed)
        self.caches = (*self._of_kind.values(), self._rights.cache)

    async def run(self) -> NoReturn:
        """Reconcile until cancelled; the registry must be synced."""
        async with asyncio.TaskGroup() as group, self._loads:
            for cache in self.caches:
                group.create_task(cache.run(), name=f"cache of {cache.resource.plural}")
            for cache in self.caches:
                await cache.synced.wait()
            for service in self._registry.services:
                self._notify(make_key(service))
            if self._template is not None:
                group.create_task(self._scale(self._template), name="scaling of frontends")
            await self._queue.run()
        raise AssertionError("the tasks do not end")

    def broker_changed(self, *, reachable: bool) -> None:
        """Record whether the operator can reach the broker. When the broker is back, declare all queues again."""
        self._broker_reachable = reachable
        self._queues.clear()
        if reachable:
            for service in self._registry.services:
                self._queue.add(make_key(service))

    def get_view(self, service: SimulationService) -> FrontendsView:
        """Return the state of a service's frontends, for the service's status."""
        desired = count_desired_frontends(service, self._scaling(service))
        if desired is None:
            return FrontendsView()
        key = make_key(service)
        if self._template is None:
            return FrontendsView(desired, problem=self._problems.get(key))
        return FrontendsView(
            desired,
            ready=self._ready(service),
            endpoint=get_endpoint(*key, self._template),
            problem=self._problems.get(key),
            scaling=self._scaling(service),
        )

    def _scaling(self, service: SimulationService) -> Scaling | None:
        return self._scalings.get(service.metadata.uid) or resume_scaling(service)

    def _ready(self, service: SimulationService) -> int:
        """Return the number of ready frontends; until the cache has the Deployments, the number in the status."""
        if not all(cache.synced.is_set() for cache in self.caches):
            return service.status.frontends.ready if service.status.frontends is not None else 0
        deployment = self._part(DEPLOYMENTS.kind, make_object_name(*make_key(service)))
        status = deployment.raw.get("status") if deployment is not None else None
        return int(status.get("readyReplicas") or 0) if status else 0

    def _part(self, kind: str, name: str) -> Part | None:
        return self._of_kind[kind].get(self._namespace, name)

    def service_changed(self, old: PublishedService | None, new: PublishedService | None) -> None:
        """Reconcile the frontends of a service that is new, changed or deleted."""
        if (left := find_removed(old, new)) is not None:
            self._scalings.pop(left.metadata.uid, None)
            self._queue.add(make_key(left))
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            if new.service.spec.frontend is None or new.service.spec.frontend.autoscaling is None:
                self._scalings.pop(new.metadata.uid, None)
            self._queue.add(make_key(new))

    def _part_changed(self, old: Part | None, new: Part | None) -> None:
        owners = {find_owner(part.metadata.labels) for part in (old, new) if part is not None}
        for key in owners - {None}:
            assert key is not None
            if old is None or new is None or _content(old) != _content(new):
                self._queue.add(key)
            if old is None or new is None or old.raw.get("status") != new.raw.get("status"):
                self._notify(key)

    def _rights_changed(self, old: Part | None, new: Part | None) -> None:
        [namespace] = {part.metadata.namespace for part in (old, new) if part is not None}
        for service in self._rights.list_services(namespace):
            self._queue.add((namespace, service))

    def _notify(self, key: Key) -> None:
        for changed in self.on_change:
            changed(key)

    async def _reconcile(self, key: Key) -> None:
        published = self._registry.services.get(*key)
        service = published.service if published is not None else None
        try:
            await self._reconcile_objects(key, service)
            await self._rights.ensure(key[0])
            await self._reconcile_queue(key, service)
        except MessagingError as error:
            self._note_problem(key, Problem(names.Reason.BROKER_UNREACHABLE, str(error)))
            raise
        except ApiError as error:
            if not error.retryable:
                self._note_problem(key, Problem(names.Reason.FRONTENDS_REFUSED, str(error)))
            raise
        if service is not None:
            self._note_problem(key, None)

    async def _reconcile_objects(self, key: Key, service: SimulationService | None) -> None:
        """Apply the objects of a service's frontends; delete all objects if the service wants no frontends."""
        if service is None:
            return await self._remove_left(key)
        desired = count_desired_frontends(service, self._scaling(service))
        if desired is None or self._template is None:
            return await self._remove_all(key)
        wanted = build_frontend(*key, desired, self._template)
        for manifest in wanted:
            await apply_part(self._registry.client, self._of_kind[manifest["kind"]], manifest)
        await self._remove(key, keep={manifest["kind"] for manifest in wanted})

    async def _reconcile_queue(self, key: Key, service: SimulationService | None) -> None:
        """Declare the queue of a service's frontends, unless it is declared or the operator cannot reach the broker."""
        if (
            self._template is None
            or service is None
            or count_desired_frontends(service, self._scaling(service)) is None
        ):
            return
        url = get_endpoint(*key, self._template)
        if self._broker_reachable and url not in self._queues:
            await self._broker.ensure_queue(url)
            self._queues.add(url)

    async def _remove_left(self, key: Key) -> None:
        """Delete the objects of a deleted service's frontends.

        A service that exists but is invalid is not in the cache either. It keeps its frontends, unless this operator
        has no image for frontends.
        """
        if any(self._parts(key)):
            if self._template is not None and await self._exists(key):
                return
            await self._remove_all(key)
        self._problems.pop(key, None)
        self._queue.forget(key)
        _forget_metrics(key)

    async def _exists(self, key: Key) -> bool:
        try:
            await self._registry.client.get(names.SIMULATION_SERVICES, key[1], key[0])
        except NotFoundError:
            return False
        return True

    async def _remove_all(self, key: Key) -> None:
        """Delete the queue and all objects of a service's frontends.

        The queue is deleted first, because a later operator finds the service only by its remaining objects. Without a
        template, the name of the queue is unknown, and the queue stays in the virtual host of OCCI clients.
        """
        if not any(self._parts(key)):
            return
        if self._template is not None:
            url = get_endpoint(*key, self._template)
            await self._broker.remove_queue(url)
            self._queues.discard(url)
        await self._remove(key, keep=())

    async def _remove(self, key: Key, keep: Iterable[str]) -> None:
        for cache, part in list(self._parts(key)):
            if cache.resource.kind in keep and part.metadata.name == make_object_name(*key):
                continue
            await delete_part(self._registry.client, cache, part)

    def _parts(self, key: Key) -> Iterable[tuple[Cache[Part], Part]]:
        for cache in self._of_kind.values():
            for part in cache:
                if find_owner(part.metadata.labels) == key and part.metadata.deletion_timestamp is None:
                    yield cache, part

    def _note_problem(self, key: Key, problem: Problem | None) -> None:
        if self._problems.get(key) == problem:
            return
        if problem is None:
            del self._problems[key]
        else:
            self._problems[key] = problem
        self._notify(key)

    async def _scale(self, template: FrontendTemplate) -> NoReturn:
        """Scale services by their load, and declare missing queues again, until cancelled."""
        while True:
            await asyncio.sleep(self._look_seconds)
            await self._look_for_queues(template)
            asked = {
                make_key(item): get_endpoint(*make_key(item), template)
                for item in self._registry.services
                if item.service.spec.frontend is not None and item.service.spec.frontend.autoscaling is not None
            }
            for key, load in (await self._loads.look(asked) if asked else {}).items():
                self._scale_one(key, load)

    async def _look_for_queues(self, template: FrontendTemplate) -> None:
        """Ask for a pass over each service whose queue is missing at the broker."""
        if not self._queues or not self._broker.vhost:
            return
        try:
            there = await self._broker.list_queues()
        except MessagingError as error:
            log.warning("the OCCI queues cannot be listed: %s", error)
            return
        for service in self._registry.services:
            url = get_endpoint(*make_key(service), template)
            if url in self._queues and name_request_queue(url) not in there:
                self._queues.discard(url)
                self._queue.add(make_key(service))

    def _scale_one(self, key: Key, load: Load) -> None:
        published = self._registry.services.get(*key)
        spec = published.service.spec.frontend if published is not None else None
        if published is None or spec is None or spec.autoscaling is None:
            return
        service = published.service
        before = self._scaling(service)
        current = count_desired_frontends(service, before)
        assert before is not None, "the service scales by load"
        assert current is not None, "the service has frontends"
        after = plan_scaling(spec.autoscaling, before, load, asyncio.get_running_loop().time())
        self._scalings[service.metadata.uid] = after
        self._measure(service, load, after)
        if after.replicas != current:
            self._scaled(service, spec.autoscaling, current, after.replicas, load)
        if (after.replicas, after.limited, after.blind) != (current, before.limited, before.blind):
            self._notify(key)

    def _scaled(self, service: SimulationService, spec: Autoscaling, before: int, after: int, load: Load) -> None:
        SCALINGS.labels("out" if after > before else "in").inc()
        note = f"frontends from {before} to {after}: {describe_load(spec, load)}"
        self._recorder.emit(names.SIMULATION_SERVICES, service.metadata, names.Reason.FRONTENDS_SCALED, note)
        self._queue.add(make_key(service))

    def _measure(self, service: SimulationService, load: Load, scaling: Scaling) -> None:
        label, unknown = "/".join(make_key(service)), float("nan")
        FRONTENDS.labels(label, "desired").set(scaling.replicas)
        FRONTENDS.labels(label, "ready").set(self._ready(service))
        DEPTH.labels(label).set(unknown if load.queue_depth is None else load.queue_depth)
        LATENCY.labels(label).set(unknown if load.latency_seconds is None else load.latency_seconds)


def _content(part: Part) -> tuple[object, ...]:
    content = {name: value for name, value in part.raw.items() if name not in ("metadata", "status")}
    return part.metadata.labels, part.metadata.annotations, content


def _forget_metrics(key: Key) -> None:
    service = "/".join(key)
    for gauge, values in ((FRONTENDS, (service, "desired")), (FRONTENDS, (service, "ready")), (DEPTH, (service,)),
                          (LATENCY, (service,))):  # fmt: skip
        with contextlib.suppress(KeyError):
            gauge.remove(*values)
