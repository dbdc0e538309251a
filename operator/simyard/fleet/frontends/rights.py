# SPDX-License-Identifier: Apache-2.0
"""Applies objects of frontends, and the RoleBinding that permits frontends to write the objects of a namespace."""

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
    """An object of a frontend, as the API server returned it."""

    metadata: Metadata
    raw: Json


def read_part(raw: Json) -> Part:
    """Parse an object of a frontend."""
    raw["metadata"].pop("managedFields", None)
    return Part(Metadata.model_validate(raw["metadata"]), raw)


class FrontendRights:
    """The RoleBindings of frontends, one in each namespace that they serve.

    A RoleBinding names the ServiceAccounts of frontends that exist. So the frontends of a service whose manifest is
    invalid keep their permissions. ``platform`` is the namespace of the ServiceAccounts. ``role`` is the ClusterRole;
    it is empty if this operator creates no frontends, and then it deletes the RoleBindings.

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
        """Return the names of a namespace's services that have frontends, each with the frontends' ServiceAccount."""
        found: dict[str, str] = {}
        for account in self._accounts:
            owner = find_owner(account.metadata.labels)
            if owner is not None and owner[0] == namespace and account.metadata.deletion_timestamp is None:
                found[owner[1]] = account.metadata.name
        return dict(sorted(found.items()))

    async def ensure(self, namespace: str) -> None:
        """Apply or delete the RoleBinding of a namespace if it differs from the desired one.

        The method does nothing for a namespace that this operator does not watch.
        """
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
        """Return the uids of the services that own the RoleBinding, by name.

        The uid of a service that is invalid, and so not in the cache, comes from the existing RoleBinding ``found``.
        """
        owners = found.raw["metadata"].get("ownerReferences", []) if found is not None else []
        uids = {owner["name"]: owner["uid"] for owner in owners if owner["name"] in services}
        known = (self._registry.services.get(namespace, name) for name in services)
        return uids | {service.metadata.name: service.metadata.uid for service in known if service is not None}


async def apply_part(client: KubeClient, cache: Cache[Part], manifest: Json) -> None:
    """Apply a manifest if the object in the cache differs from it."""
    metadata = manifest["metadata"]
    found = cache.get(metadata["namespace"], metadata["name"])
    if found is not None and found.raw.get("roleRef") != manifest.get("roleRef"):  # it is immutable
        await delete_part(client, cache, found)
    elif found is not None:
        # The items of the API server's lists have no kind and no apiVersion.
        content = {name: value for name, value in manifest.items() if name not in ("kind", "apiVersion")}
        if contains(found.raw, content) and found.raw.get("subjects") == manifest.get("subjects"):
            return
    body = await client.patch(cache.resource, metadata["name"], manifest, metadata["namespace"], kind=PatchType.APPLY)
    cache.learn(body)


async def delete_part(client: KubeClient, cache: Cache[Part], part: Part) -> None:
    """Delete an object; if it is missing, do nothing."""
    metadata = part.metadata
    with contextlib.suppress(NotFoundError):
        await client.delete(cache.resource, metadata.name, metadata.namespace, uid=metadata.uid)
    log.info("deleted %s %s in namespace %s", cache.resource.kind, metadata.name, metadata.namespace)
