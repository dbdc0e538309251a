# SPDX-License-Identifier: Apache-2.0
"""Describes calls of an object or one of its subresources, independent of the API that received them."""

from __future__ import annotations

from dataclasses import dataclass

from simyard.api.names import SIMULATION_SERVICES, SUBRESOURCES_GROUP, WORKER_POOLS, WORKERS
from simyard_sites.kubernetes.resource import Resource

TARGETS: dict[str, Resource] = {item.plural: item for item in (WORKERS, WORKER_POOLS, SIMULATION_SERVICES)}


@dataclass(frozen=True, slots=True)
class ResourceCall:
    """A call of a target object or one of its subresources, with the attributes that RBAC checks.

    ``path`` contains the words after the target's name, such as ``("actions", "solve")``; joined by slashes, they are
    the subresource of RBAC. ``group`` is the API group of the access review.
    """

    verb: str
    namespace: str
    resource: Resource
    name: str
    path: tuple[str, ...] = ()
    group: str = SUBRESOURCES_GROUP

    @property
    def subresource(self) -> str:
        """The subresource in RBAC, such as ``actions/solve``; empty for the target itself."""
        return "/".join(self.path)
