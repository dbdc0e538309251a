# SPDX-License-Identifier: Apache-2.0
"""Reads the instance type and the preference that a CloudSite names, and applies them to machines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from simyard_sites.base import InvalidSpecError
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.errors import NotFoundError
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubevirt.instancetype import apply_instancetype
from simyard_sites.kubevirt.settings import Reference, Settings

FRESH_SECONDS = 30.0
"""The time for which an instance type is cached, so that the site reads it once for a burst of machines."""
_NAMED = {
    "VirtualMachineInstancetype": "instancetype-name",
    "VirtualMachineClusterInstancetype": "cluster-instancetype-name",
    "VirtualMachinePreference": "preference-name",
    "VirtualMachineClusterPreference": "cluster-preference-name",
}
"""The annotations with which KubeVirt's metrics identify the instance type and preference of a machine."""


class Shapes:
    """The reader of the instance type and the preference; it caches them for some seconds."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._read: dict[tuple[Reference, str], tuple[float, Json]] = {}
        self._reading = asyncio.Lock()

    async def check(self, client: KubeClient) -> None:
        """Read the objects that the CloudSite names, except objects in a pool's own namespace.

        Raises:
            InvalidSpecError: The instance type or the preference does not exist.
            ApiError: The API server refuses the request or does not answer.
        """
        settings = self._settings
        for reference, field in ((settings.instancetype, "instancetype"), (settings.preference, "preference")):
            if reference is not None and (settings.namespace or "Cluster" in reference.kind):
                await self._get(client, reference, settings.namespace, field)

    async def apply_shape(self, client: KubeClient, machine: Json) -> Json:
        """Return the machine with the fields of its instance type and its preference.

        Raises:
            InvalidSpecError: The instance type or the preference does not exist or contradicts the CloudSite.
            ApiError: The API server refuses the request or does not answer.
        """
        settings, namespace = self._settings, machine["metadata"]["namespace"]
        if settings.instancetype is None and settings.preference is None:
            return machine
        instancetype = await self._get(client, settings.instancetype, namespace, "instancetype")
        preference = await self._get(client, settings.preference, namespace, "preference")
        made = apply_instancetype(machine, instancetype, preference)
        for reference in (settings.instancetype, settings.preference):
            if reference is not None:
                annotations = made["metadata"].setdefault("annotations", {})
                annotations[f"kubevirt.io/{_NAMED[reference.kind]}"] = reference.name
        return made

    async def _get(self, client: KubeClient, reference: Reference | None, namespace: str, field: str) -> Json | None:
        if reference is None:
            return None
        namespaced = "Cluster" not in reference.kind
        where = namespace if namespaced else ""
        async with self._reading:
            known = self._read.get((reference, where))
            if known is not None and known[0] + FRESH_SECONDS > self._clock():
                return known[1]
            plural = f"{reference.kind.lower()}s"
            resource = Resource("instancetype.kubevirt.io", "v1beta1", plural, reference.kind, namespaced)
            try:
                found = await client.get(resource, reference.name, where)
            except NotFoundError:
                place = f" in namespace {where}" if where else ""
                message = (
                    f"spec.provider.kubevirt.{field}: the {reference.kind} {reference.name} does not exist{place}; "
                )
                "create it or name another"
                raise InvalidSpecError(message) from None
            self._read[reference, where] = (self._clock(), found)
            return found
