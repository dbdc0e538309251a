# SPDX-License-Identifier: Apache-2.0
"""Declares which parts of the operator a change calls. Only this module connects the parts.

A part has a method for each kind of object that concerns it, such as ``worker_changed(old, new)``. The method updates
the part's data and asks for passes of its queue; it does not wait. No part subscribes to a cache itself. So
:data:`FLOWS` is the complete list of the methods that a change of an object calls. :data:`SIGNALS` is the complete list
of the calls from one part to another part.

For each kind of object, a change calls the parts in the order of the table. Three subscriptions are not in the table,
because only one part needs each of them: the objects of frontends
(:class:`~simyard.fleet.frontends.reconciler.Frontends`), the master key's Secret
(:class:`~simyard.fleet.broker.master_key.MasterKey`), and the registry's own record of deleted Workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from simyard.api.cloud_site import CloudSite
from simyard.api.licence import Licence
from simyard.api.study import Study
from simyard.api.usage import Usage
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.actions.reconciler import Actions
from simyard.fleet.actions.retention import Retention
from simyard.fleet.broker.provisioning import Broker
from simyard.fleet.broker.quarantine import Quarantine
from simyard.fleet.broker.rotation import Rotation
from simyard.fleet.frontends.reconciler import Frontends
from simyard.fleet.metering import Metering
from simyard.fleet.platform_health import PlatformHealth
from simyard.fleet.pools.drains import Drains
from simyard.fleet.pools.licences import Licences
from simyard.fleet.pools.reconciler import Pools
from simyard.fleet.pools.takers import Takers
from simyard.fleet.pools.uses import Uses
from simyard.fleet.registry import Registry
from simyard.fleet.services import Services
from simyard.fleet.sites.reconciler import Sites
from simyard.fleet.studies.reconciler import Studies
from simyard.fleet.worker_statuses import WorkerStatuses
from simyard.kube.cache import Cache, HasMetadata
from simyard.plan.queued_action import QueuedAction
from simyard.plan.service import PublishedService

Part = TypeVar("Part")
Other = TypeVar("Other")
Object = TypeVar("Object", bound=HasMetadata)


@dataclass(frozen=True, slots=True)
class Flow:
    """A line of the table :data:`FLOWS`: a change in a cache calls a method of a part."""

    cache: Callable[[Registry], Cache[Any]]
    part: type
    method: Callable[[Any, Any, Any], None]


@dataclass(frozen=True, slots=True)
class Signal:
    """A line of the table :data:`SIGNALS`: one part calls another part about a change that is not one of an object."""

    source: type
    target: type
    attach: Callable[[Any, Any], None]


def _flow(
    cache: Callable[[Registry], Cache[Object]],
    part: type[Part],
    method: Callable[[Part, Object | None, Object | None], None],
) -> Flow:
    return Flow(cache, part, method)


def _signal(source: type[Part], target: type[Other], attach: Callable[[Part, Other], None]) -> Signal:
    return Signal(source, target, attach)


SITE: Callable[[Registry], Cache[CloudSite]] = attrgetter("sites")
SERVICE: Callable[[Registry], Cache[PublishedService]] = attrgetter("services")
POOL: Callable[[Registry], Cache[WorkerPool]] = attrgetter("pools")
WORKER: Callable[[Registry], Cache[Worker]] = attrgetter("workers")
ACTION: Callable[[Registry], Cache[QueuedAction]] = attrgetter("actions")
STUDY: Callable[[Registry], Cache[Study]] = attrgetter("studies")
LICENCE: Callable[[Registry], Cache[Licence]] = attrgetter("licences")
USAGE: Callable[[Registry], Cache[Usage]] = attrgetter("usages")

FLOWS = (
    # A changed  calls the part                       which then
    _flow(WORKER, Broker, Broker.worker_changed),  # deletes the queue of a deleted Worker
    _flow(WORKER, Quarantine, Quarantine.worker_changed),  # forgets the allowance of a deleted Worker
    _flow(WORKER, WorkerStatuses, WorkerStatuses.worker_changed),  # writes the Worker's status
    _flow(WORKER, Sites, Sites.worker_changed),  # has the site's runner create or delete the Worker's machine
    _flow(WORKER, Licences, Licences.worker_changed),  # counts the seats that are occupied
    _flow(WORKER, Pools, Pools.worker_changed),  # plans the Worker's pool
    _flow(WORKER, Services, Services.worker_changed),  # counts the service's Workers
    _flow(WORKER, Drains, Drains.worker_changed),  # sends the adapter the request to drain
    _flow(WORKER, Takers, Takers.worker_changed),  # chooses the workers that take from the pool's queue
    _flow(WORKER, Actions, Actions.worker_changed),  # assigns ServiceActions, or ends those of a lost Worker
    _flow(
        WORKER, Studies, Studies.worker_changed
    ),  # gives chunks of studies to the Worker, or those of a lost one away
    _flow(POOL, Quarantine, Quarantine.pool_changed),  # forgets the allowance of a deleted pool
    _flow(POOL, Licences, Licences.pool_changed),  # releases the seats of a deleted pool
    _flow(POOL, Uses, Uses.pool_changed),  # forgets when the pool was used
    _flow(POOL, Pools, Pools.pool_changed),  # plans the pool: creates, drains and deletes Workers
    _flow(POOL, Services, Services.pool_changed),  # counts the service's pools
    _flow(POOL, Takers, Takers.pool_changed),  # forgets the takers of a deleted pool
    _flow(POOL, Rotation, Rotation.pool_changed),  # replaces the pool's password
    _flow(POOL, Actions, Actions.pool_changed),  # ends the ServiceActions on a deleted pool
    _flow(POOL, Studies, Studies.pool_changed),  # gives chunks to workers that the pool reserves no more
    _flow(SERVICE, Licences, Licences.service_changed),  # allots the seats of the service's licence
    _flow(SERVICE, Pools, Pools.service_changed),  # plans the pools of the service
    _flow(SERVICE, Frontends, Frontends.service_changed),  # creates or deletes the service's frontends
    _flow(SERVICE, Services, Services.service_changed),  # writes the service's status
    _flow(SERVICE, Actions, Actions.service_changed),  # ends the ServiceActions on a deleted service
    _flow(SITE, Metering, Metering.site_changed),  # uses the site's new price
    _flow(SITE, Sites, Sites.site_changed),  # starts, adjusts or stops the site's runner
    _flow(SITE, Pools, Pools.site_changed),  # plans all pools: they may use other sites now
    _flow(ACTION, Uses, Uses.action_changed),  # notes that the pool is used
    _flow(ACTION, Takers, Takers.action_changed),  # chooses takers among the workers that are free
    _flow(ACTION, Retention, Retention.action_changed),  # deletes the oldest finished ServiceActions
    _flow(ACTION, Actions, Actions.action_changed),  # assigns, sends, finishes the ServiceAction
    _flow(STUDY, Pools, Pools.study_changed),  # plans the pool: the study asks for workers
    _flow(STUDY, Uses, Uses.study_changed),  # notes that the pool is used
    _flow(STUDY, Studies, Studies.study_changed),  # gives its chunks to workers, and ends or deletes it
    _flow(LICENCE, Licences, Licences.licence_changed),  # allots the seats of the licence
    _flow(USAGE, Metering, Metering.usage_changed),  # continues from the rows that another operator wrote
)

SIGNALS = (
    # When a licence has free seats, the pools that wait for one are planned.
    _signal(Licences, Pools, lambda licences, pools: licences.on_pool_due.append(pools.wake)),
    # When the seats of a licence change, the status of its services is written.
    _signal(Licences, Services, lambda licences, services: licences.on_change.append(services.licence_changed)),
    # When the view of a service's frontends changes, the status of the service is written.
    _signal(Frontends, Services, lambda frontends, services: frontends.on_change.append(services.frontends_changed)),
    # When the operator's work stands still or its clock is wrong, every CloudSite reports that.
    _signal(PlatformHealth, Sites, lambda health, sites: health.on_change.append(sites.platform_changed)),
    # After a sweep of the broker, former logins are known, and a rotation can go on.
    _signal(Broker, Rotation, lambda broker, rotation: broker.on_swept.append(rotation.wake)),
)


def connect(registry: Registry, *parts: object) -> None:
    """Connect these parts to the caches and to each other, as the tables say. Tests connect only a few parts."""
    for flow in FLOWS:
        for part in parts:
            if isinstance(part, flow.part):
                flow.cache(registry).subscribe(partial(flow.method, part))
    for signal in SIGNALS:
        for source in parts:
            for target in parts:
                if isinstance(source, signal.source) and isinstance(target, signal.target):
                    signal.attach(source, target)
