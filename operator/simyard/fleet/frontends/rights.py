# SPDX-License-Identifier: Apache-2.0
"""Applies the objects of frontends, and the RoleBinding that permits frontends to write the objects of a namespace."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from simyard.api.base import Json, Metadata
from simyard.fleet.registry import Registry
from simyard.kube.cache import ALL_NAMESPACES, Cache
from simyard.manifests.frontend import find_owner
from simyard.manifests.frontend_account import BINDING, ROLE_BINDINGS, build_namespace_binding
from simyard.plan.contents import contains
from simyard_sites.kubernetes.client import KubeClient, PatchType
from simyard_sites.kubernetes.errors import NotFoundError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """An object of a frontend, as the API server has it."""

    metadata: Metadata
    raw: Json


def read_part(raw: Json) -> Part:
    """Parse an object of a frontend."""
    raw["metadata"].pop("managedFields", None)
    return Part(Metadata.model_validate(raw["metadata"]), raw)


class FrontendRights:
    """The RoleBindings of frontends, one in each namespace that they serve.

    The existing service accounts decide which frontends are bound; so a service whose manifest cannot be parsed keeps
    its rights. ``platform`` is the namespace of the accounts. ``role`` is the ClusterRole; it is empty if this operator
    creates no frontends, and then there must be no binding.

    Attributes:
        cache: the cache of the RoleBindings.
    """

    def __init__(self, registry: Registry, accounts: Cache[Part], platform: str, role: str) -> None:
        self._registry = registry
        self._accounts = accounts
        self._platform = platform
        self._role = role
        name = f"metadata.name={BINDING}"
        self.cache = Cache(registry.client, ROLE_BINDINGS, read_part, namespaces=registry.namespaces, fields=name)

    def list_services(self, namespace: str) -> dict[str, str]:
        """Return the services of a namespace that have frontends, with the accounts of these frontends."""
        found: dict[str, str] = {}
        for account in self._accounts:
            owner = find_owner(account.metadata.labels)
            if owner is not None and owner[0] == namespace and account.metadata.deletion_timestamp is None:
                found[owner[1]] = account.metadata.name
        return dict(sorted(found.items()))

    async def ensure(self, namespace: str) -> None:
        """Apply or delete the binding of a watched namespace if it differs from the desired one."""
        if self._registry.namespaces != ALL_NAMESPACES and namespace not in self._registry.namespaces:
            return
        found = self.cache.get(namespace, BINDING)
        if services := self.list_services(namespace) if self._role else {}:
            owners = self._owners(namespace, services, found).items()
            wanted = build_namespace_binding(namespace, self._role, services.values(), self._platform, owners)
            await apply_part(self._registry.client, self.cache, wanted)
        elif found is not None:
            await delete_part(self._registry.client, self.cache, found)

    def _owners(self, namespace: str, services: Iterable[str], found: Part | None) -> dict[str, str]:
        """Return the uids of services by name; a service that cannot be parsed remains an owner."""
        owners = found.raw["metadata"].get("ownerReferences", []) if found is not None else []
        uids = {owner["name"]: owner["uid"] for owner in owners if owner["name"] in services}
        known = (self._registry.services.get(namespace, name) for name in services)
        return uids | {service.metadata.name: service.metadata.uid for service in known if service is not None}


async def apply_part(client: KubeClient, cache: Cache[Part], manifest: Json) -> None:
    """Apply an object if it differs from its manifest."""
    metadata = manifest["metadata"]
    found = cache.get(metadata["namespace"], metadata["name"])
    if found is not None and found.raw.get("roleRef") != manifest.get("roleRef"):  # a roleRef is immutable
        await delete_part(client, cache, found)
    elif found is not None:
        # The API server leaves kind and apiVersion out of the items of a list.
        content = {name: value for name, value in manifest.items() if name not in ("kind", "apiVersion")}
        if contains(found.raw, content) and found.raw.get("subjects") == manifest.get("subjects"):
            return
    body = await client.patch(cache.resource, metadata["name"], manifest, metadata["namespace"], kind=PatchType.APPLY)
    cache.learn(body)


async def delete_part(client: KubeClient, cache: Cache[Part], part: Part) -> None:
    """Delete an object; a missing object is no error."""
    metadata = part.metadata
    with contextlib.suppress(NotFoundError):
        await client.delete(cache.resource, metadata.name, metadata.namespace, uid=metadata.uid)
    log.info("deleted %s %s in namespace %s", cache.resource.kind, metadata.name, metadata.namespace)
