# SPDX-License-Identifier: Apache-2.0
"""Checks the rights of users over OCCI: the rights of their Kubernetes identity to the objects behind the entities.

To read, a user needs ``get`` or ``list`` on the objects; for the model, on SimulationServices. To create, change or
delete a compute, a user needs ``create``, ``patch`` or ``delete`` on Workers. Power actions need ``patch`` on Workers,
and scaling actions ``patch`` on WorkerPools. The actions and attributes of a service need the same rights as in the
aggregated API: ``create`` on ``workers/actions/NAME`` and ``update`` on ``workers/attributes/NAME`` in
``subresources.simyard.dev``.

Before the frontend looks up an entity, :meth:`Access.may` checks the right that follows from verb and path. Some rights
depend on the content of the request or on the state of the entities. :meth:`Access.check` checks these rights later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from simyard.api.names import (
    OCCI_LINKS,
    OCCI_MIXINS,
    SIMULATION_SERVICES,
    SUBRESOURCES_GROUP,
    WORKER_POOLS,
    WORKERS,
)
from simyard.frontend.backend import Verb
from simyard.frontend.entities.computes import AMQPLINKS, COMPUTES
from simyard.frontend.entities.links import OTHER_LINKS
from simyard.frontend.entities.services import APPLICATIONS, COMPONENTLINKS, COMPONENTS
from simyard.frontend.entities.targets import DISCOVERY, DISCOVERY_PATH, split_path
from simyard.frontend.entities.view import View
from simyard.frontend.exchange import Identity
from simyard.occi.definitions import is_users_action
from simyard.occi.errors import OcciError
from simyard.occi.model import Mixin
from simyard.occi.standard import COMPUTE_ACTION_SCHEME
from simyard.serving.authorization import Authorizer
from simyard.serving.calls import ResourceCall
from simyard.serving.status import StatusError
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.resource import Resource

_VERBS = {
    Verb.GET: "get",
    Verb.LIST: "list",
    Verb.CREATE: "create",
    Verb.UPDATE: "patch",
    Verb.DELETE: "delete",
    Verb.ACT: "patch",
}
PLAIN_SECONDS = 1.0
"""Seconds for which this class caches an answer for a permission of ``_PLAIN``.

The authorizer caches for ten seconds.
"""
MAX_CACHED_PERMISSIONS = 10_000
_CREATABLE = (COMPUTES, AMQPLINKS)
_RESOURCES = {APPLICATIONS: SIMULATION_SERVICES, COMPONENTS: WORKER_POOLS, COMPONENTLINKS: WORKER_POOLS}


@dataclass(frozen=True, slots=True)
class Permission:
    """A right in Kubernetes: a verb on a resource.

    Attributes:
        verb: the verb of RBAC.
        resource: the kind of object.
        name: the name of one object; "" for all objects of the namespace.
        subresource: the words after the name, such as ``("actions", "solve")``.
    """

    verb: str
    resource: Resource
    name: str = ""
    subresource: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The API group of the resource, or of its subresource."""
        return SUBRESOURCES_GROUP if self.subresource else self.resource.group


_PLAIN = {
    (Verb.GET, COMPUTES): Permission("get", WORKERS),
    (Verb.LIST, COMPUTES): Permission("list", WORKERS),
    (Verb.LIST, DISCOVERY_PATH): Permission("list", SIMULATION_SERVICES),
}
"""The permissions that depend only on verb and location. Nearly all requests need one of these permissions."""


class Access:
    """A checker of the rights of users. It asks kube-apiserver, and caches each answer for some seconds."""

    def __init__(self, client: KubeClient, view: View, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._authorizer = Authorizer(client, clock=clock)
        self._view = view
        self._clock = clock
        self._plain: dict[tuple[Identity, Verb, str], float] = {}

    async def may(self, identity: Identity, verb: Verb, path: str, action: str = "") -> None:
        """Raise an error if a user lacks the permission for a verb on an entity or location: see :class:`Backend`."""
        location = path[: path.rfind("/") + 1]
        if verb is Verb.CREATE and location not in _CREATABLE and path not in DISCOVERY:
            return  # the 501 that follows is the same for every user
        if self._plain.get((identity, verb, location), 0.0) > self._clock():
            return
        if verb is Verb.LIST and path == AMQPLINKS and len(self._view.links):  # the listing also contains OcciLinks
            await self.check(identity, Permission("list", OCCI_LINKS))
        plain = _PLAIN.get((verb, location))
        if plain is None or not await self._allowed(identity, plain, ""):
            await self.check(identity, self.find_required_permission(verb, path, action))
            return
        if len(self._plain) >= MAX_CACHED_PERMISSIONS:
            self._plain.clear()
        self._plain[identity, verb, location] = self._clock() + PLAIN_SECONDS

    async def check(self, identity: Identity, permission: Permission) -> None:
        """Raise an error unless a user has a permission for the named object, or for all objects of the resource.

        The method first asks about all objects. Most users have a permission for all objects or for none, so one answer
        is enough for thousands of entities.

        Raises:
            OcciError: 403, or 503 if the Kubernetes API does not answer now.
        """
        for name in dict.fromkeys(("", permission.name)):
            if await self._allowed(identity, permission, name):
                return
        group = permission.group
        resource = "/".join((f"{permission.resource.plural}.{group}", *permission.subresource))
        one = f" {permission.name}" if permission.name else ""
        namespace = self._view.namespace
        raise OcciError(
            403, f'user "{identity.user}" may not {permission.verb} {resource}{one} in namespace {namespace}'
        )

    async def _allowed(self, identity: Identity, permission: Permission, name: str) -> bool:
        call = ResourceCall(
            permission.verb, self._view.namespace, permission.resource, name, permission.subresource, permission.group
        )
        try:
            await self._authorizer.check(identity, call)
        except StatusError as error:
            if error.code != 403:
                raise OcciError(error.code, error.message) from None
            return False
        return True

    def find_required_permission(self, verb: Verb, path: str, action: str = "") -> Permission:
        """Return the permission in Kubernetes that a request over OCCI needs."""
        if path in DISCOVERY:
            return Permission(_VERBS[verb], SIMULATION_SERVICES if verb in (Verb.GET, Verb.LIST) else OCCI_MIXINS)
        if verb is Verb.ACT:
            return self._action_permission(path, action)
        location, entity_id = split_path(path)
        if not entity_id and isinstance(self._view.model.find_by_location(location), Mixin):
            return Permission(_VERBS[verb], OCCI_MIXINS)
        if (worker := self._view.find_worker(path)) is not None:
            # EntityChanges.update checks the permission for the fields that change.
            return Permission("get" if verb is Verb.UPDATE else _VERBS[verb], WORKERS, worker.metadata.name)
        if location == OTHER_LINKS or (location == AMQPLINKS and (entity_id or verb not in (Verb.GET, Verb.LIST))):
            link = self._view.link(path)
            return Permission(_VERBS[verb], OCCI_LINKS, link.metadata.name if link is not None else "")
        if location == COMPUTES and verb is Verb.UPDATE:
            return Permission("get", WORKERS)
        resource = _RESOURCES.get(location, WORKERS)
        named = self._view.find_service(path) or self._view.find_pool(path)
        return Permission(_VERBS[verb], resource, named.metadata.name if named is not None else "")

    def _action_permission(self, path: str, action: str) -> Permission:
        """Return the permission for an action. For a collection, the permission depends only on the action."""
        worker = self._view.find_worker(path)
        name = worker.metadata.name if worker is not None else ""
        if (declared := self._view.catalogue.find_declared_action(action)) is not None:
            return Permission("create", WORKERS, name, ("actions", declared[1]))
        if action.startswith(COMPUTE_ACTION_SCHEME):
            return Permission("patch", WORKERS, name)
        if self._view.model.find_action(action) is not None and is_users_action(action, self._view.model):
            link = self._view.link(path)
            return Permission("patch", OCCI_LINKS, link.metadata.name if link is not None else "")
        pool = self._view.find_pool(path)
        return Permission("patch", WORKER_POOLS, pool.metadata.name if pool is not None else "")
