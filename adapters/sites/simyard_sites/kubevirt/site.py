"""Runs machines as VirtualMachineInstances of KubeVirt, made directly: no VirtualMachine stands behind them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache

from simyard_adapter.bootstrap import shared
from simyard_sites.base import (
    ConflictError,
    ErrorScope,
    InvalidSpecError,
    Machine,
    MachineRequest,
    MachineState,
    SiteConfig,
    SiteError,
    SiteInfo,
    UnavailableError,
)
from simyard_sites.guest import user_data
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.ownership import owner_labels, owner_of
from simyard_sites.kubernetes.refusals import Hint
from simyard_sites.kubernetes.site import KubernetesSite
from simyard_sites.kubevirt.disks import Disks
from simyard_sites.kubevirt.probing import NOT_INSTALLED, SUBRESOURCES, lacks_api, probe_cluster
from simyard_sites.kubevirt.settings import DataVolume, Settings
from simyard_sites.kubevirt.shapes import Shapes
from simyard_sites.kubevirt.states import machine_of
from simyard_sites.kubevirt.vmi import VMIS, machine_instance, secret_of

log = logging.getLogger(__name__)

HINTS = (
    Hint(
        "namespaces ",
        "create the namespace that spec.provider.kubevirt.namespace names"
        " (it is immutable: another one takes a new CloudSite)",
    ),
    Hint("feature gate", "enable it in spec.configuration.developerConfiguration.featureGates of the KubeVirt object"),
)
_REFUSED = (400, 404, 409)
"""virt-api says so when the machine is not in the right state, or its node has no virt-handler."""


class KubevirtSite(KubernetesSite):
    """One cluster with KubeVirt; see :class:`simyard_sites.kubernetes.site.KubernetesSite`.

    A VirtualMachineInstance that is stopped is gone; one that is suspended is paused, and keeps its memory on its node.
    """

    resource = VMIS
    hints = HINTS

    def __init__(self, config: SiteConfig) -> None:
        super().__init__(config, "kubevirt")
        self._settings = Settings.from_provider(config.provider)
        self._shapes = Shapes(self._settings)
        self._user_data = lru_cache(maxsize=64)(user_data)
        disk = self._settings.root_disk
        self._disks = Disks(disk, self._namespace, self._selector) if isinstance(disk, DataVolume) else None

    async def probe(self) -> SiteInfo:
        """See :class:`simyard_sites.base.Site`."""
        client = await self._cluster.client()
        version = await probe_cluster(client, self._settings)
        try:
            await self._shapes.check(client)
        except ApiError as error:
            raise self._error(error) from error
        return SiteInfo(version)

    async def _make(self, client: KubeClient, request: MachineRequest, namespace: str) -> Machine:
        data = self._user_data(shared(request.bootstrap), request.user_data, request.ssh_public_keys)
        name = f"simyard-{request.owner.pool or request.owner.worker}"
        secret = await self._secrets.ensure(client, namespace, name, {"userdata": data})
        labels = self._labels | owner_labels(request.owner)
        body = machine_instance(request, namespace, labels, secret, self._settings)
        body = await self._shapes.shaped(client, body)
        stored, machine = await self._store(client, body, request, namespace)
        if self._disks is not None and machine.state is MachineState.PENDING:
            await self._disks.make(client, stored)
        return machine

    async def _start(self, client: KubeClient, machine_id: str) -> Machine | None:
        return await self._turn(client, machine_id, "unpause", MachineState.RUNNING)

    async def _suspend(self, client: KubeClient, machine_id: str) -> Machine | None:
        return await self._turn(client, machine_id, "pause", MachineState.SUSPENDED)

    async def _turn(self, client: KubeClient, machine_id: str, how: str, reached: MachineState) -> Machine | None:
        await self._own(client, machine_id)
        namespace, _, name = machine_id.partition("/")
        path = f"{SUBRESOURCES}/namespaces/{namespace}/{VMIS.plural}/{name}/{how}"
        try:
            await client.request("PUT", path, body={}, resource=VMIS, verb=how)
        except ApiError as error:
            if error.status not in _REFUSED:
                raise self._error(error, writes=True) from error
            # Only a look tells whether a refusal means that it is so already, is absent, or cannot be done now.
            machine = await self._get(client, machine_id)
            if machine.state is reached:
                return machine
            if error.status == 404:
                raise UnavailableError("KubeVirt's virt-api does not answer") from error
            raise ConflictError(f"KubeVirt cannot {how} the machine now: {error.message}") from error
        return None

    def _machine(self, item: Json) -> Machine | None:
        owner = owner_of(item)
        return machine_of(item, owner) if owner is not None else None

    def _secret(self, item: Json) -> str:
        return secret_of(item)

    async def _mend(self, client: KubeClient, machines: Sequence[Machine] | None) -> None:
        """Give machines their disks that could not be made with them; what still cannot be is tried again later."""
        if self._disks is None:
            return
        try:
            if machines is not None:
                await self._disks.find_missing(client, machines)
            await self._disks.make_missing(client)
        except (ApiError, SiteError) as error:
            log.warning("disks of machines cannot be made for now: %s", error)

    def _error(self, error: ApiError, *, writes: bool = False) -> SiteError:
        if lacks_api(error):
            return InvalidSpecError(NOT_INSTALLED, scope=ErrorScope.SITE)
        return super()._error(error, writes=writes)
