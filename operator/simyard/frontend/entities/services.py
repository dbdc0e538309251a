# SPDX-License-Identifier: Apache-2.0
"""Converts SimulationServices into OCCI applications, and their WorkerPools into components. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from simyard.api.names import Reason
from simyard.frontend.entities.catalogue import SCALABLE, SCALE, ServiceCategories
from simyard.occi.model import Link, Resource, Value
from simyard.occi.standard import (
    APPLICATION,
    APPLICATION_ACTION_SCHEME,
    COMPONENT,
    COMPONENT_ACTION_SCHEME,
    COMPONENTLINK,
)
from simyard.serving.objects import CachedCondition, CachedPool, CachedService

APPLICATIONS = "/application/"
COMPONENTS = "/component/"
COMPONENTLINKS = "/componentlink/"
REPLICAS = "org.simyard.replicas"
READY = "org.simyard.ready"


def build_application(
    service: CachedService,
    pools: Sequence[CachedPool],
    links: Sequence[Link],
    categories: ServiceCategories | None,
    mixins: tuple[str, ...],
    endpoint: str = "",
) -> Resource:
    """Return the application of a service; ``endpoint`` is the URL of this frontend.

    The application is active while one of its workers accepts actions. Its actions ``start`` and ``stop`` resume and
    suspend all pools of the service. The numbers of workers do not include computes without a pool.
    """
    path = APPLICATIONS + service.metadata.uid
    actions = []
    if any(pool.suspended for pool in pools):
        actions.append(APPLICATION_ACTION_SCHEME + "start")
    if any(not pool.suspended for pool in pools):
        actions.append(APPLICATION_ACTION_SCHEME + "stop")
    attributes: dict[str, Value] = {
        "occi.app.name": service.display_name or service.metadata.name,
        "occi.app.context": service.metadata.name,
        "occi.app.url": service.url or endpoint + path,
        "occi.app.state": _state(service.state, active=service.ready > 0),
        **_message("occi.app", service.state),
        REPLICAS: sum(pool.replicas for pool in pools),
        READY: sum(pool.ready for pool in pools),
    }
    master = (categories.master.id,) if categories is not None else ()
    start_workers = (categories.start_workers,) if categories is not None else ()
    return Resource(
        APPLICATION,
        service.metadata.uid,
        path,
        (SCALABLE, *master, *mixins),
        attributes,
        (*actions, SCALE.id, *start_workers),
        tuple(links),
        service.display_name or service.metadata.name,
        service.description,
    )


def build_component(pool: CachedPool, mixins: tuple[str, ...]) -> Resource:
    """Return the component of a pool. It is active while the quorum of the pool's workers accepts actions."""
    term = "start" if pool.suspended else "stop"
    return Resource(
        COMPONENT,
        pool.metadata.uid,
        COMPONENTS + pool.metadata.uid,
        (SCALABLE, *mixins),
        {
            "occi.component.state": _state(pool.state, active=pool.state.good and pool.ready > 0),
            **_message("occi.component", pool.state),
            REPLICAS: pool.replicas,
            READY: pool.ready,
        },
        (COMPONENT_ACTION_SCHEME + term, SCALE.id),
        (),
        pool.metadata.name,
    )


def build_componentlink(pool: CachedPool, service: CachedService, mixins: tuple[str, ...]) -> Link:
    """Return the link from a service's application to the component of one of its pools."""
    uid = pool.metadata.uid
    return Link(
        COMPONENTLINK,
        uid,
        COMPONENTLINKS + uid,
        APPLICATIONS + service.metadata.uid,
        COMPONENTS + uid,
        mixins,
        title=pool.metadata.name,
        target_kind=(COMPONENT,),
        source_kind=APPLICATION,
    )


def _state(state: CachedCondition, *, active: bool) -> str:
    if state.reason == Reason.INTERFACE_INVALID:
        return "error"
    return "active" if active else "inactive"


def _message(prefix: str, state: CachedCondition) -> dict[str, Value]:
    return {} if state.good else {f"{prefix}.state.message": str(state)}
