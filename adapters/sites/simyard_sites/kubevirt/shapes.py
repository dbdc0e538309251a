"""The instance type and the preference that a CloudSite names, as they are now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from simyard_sites.base import InvalidSpecError
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.errors import NotFoundError
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubevirt.instancetype import applied
from simyard_sites.kubevirt.settings import Reference, Settings

FRESH_SECONDS = 30.0
"""So long an instance type that was read is taken to be the same: a burst of machines reads it once."""
_NAMED = {
    "VirtualMachineInstancetype": "instancetype-name",
    "VirtualMachineClusterInstancetype": "cluster-instancetype-name",
    "VirtualMachinePreference": "preference-name",
    "VirtualMachineClusterPreference": "cluster-preference-name",
}
"""The annotations by which KubeVirt's metrics know what a machine was made from."""


class Shapes:
    """Writes the shape into machines; what it read is kept for some seconds."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._read: dict[tuple[Reference, str], tuple[float, Json]] = {}
        self._reading = asyncio.Lock()

    async def check(self, client: KubeClient) -> None:
        """Read what the CloudSite names, but for what depends on a pool's namespace.

        Raises:
            InvalidSpecError: there is no such instance type or preference.
            ApiError: the API server refuses, or does not answer.
        """
        settings = self._settings
        for reference, field in ((settings.instancetype, "instancetype"), (settings.preference, "preference")):
            if reference is not None and (settings.namespace or "Cluster" in reference.kind):
                await self._get(client, reference, settings.namespace, field)

    async def shaped(self, client: KubeClient, machine: Json) -> Json:
        """The machine with its instance type and its preference written out.

        Raises:
            InvalidSpecError: there is no such instance type or preference, or they do not go with the CloudSite.
            ApiError: the API server refuses, or does not answer.
        """
        settings, namespace = self._settings, machine["metadata"]["namespace"]
        if settings.instancetype is None and settings.preference is None:
            return machine
        instancetype = await self._get(client, settings.instancetype, namespace, "instancetype")
        preference = await self._get(client, settings.preference, namespace, "preference")
        made = applied(machine, instancetype, preference)
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
                message = f"spec.provider.kubevirt.{field}: there is no {reference.kind} {reference.name}{place}"
                raise InvalidSpecError(message) from None
            self._read[reference, where] = (self._clock(), found)
            return found
