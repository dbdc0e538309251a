# SPDX-License-Identifier: Apache-2.0
"""The provider ``kubevirt``: machines are VirtualMachineInstances without a VirtualMachine."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache

from simyard_adapter.bootstrap import remove_worker
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
from simyard_sites.guest import build_user_data
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.ownership import build_owner_labels, read_owner
from simyard_sites.kubernetes.refusals import Hint
from simyard_sites.kubernetes.site import KubernetesSite
from simyard_sites.kubevirt.disks import Disks
from simyard_sites.kubevirt.probing import NOT_INSTALLED, SUBRESOURCES, lacks_api, probe_cluster
from simyard_sites.kubevirt.settings import DataVolume, Settings
from simyard_sites.kubevirt.shapes import Shapes
from simyard_sites.kubevirt.states import read_machine
from simyard_sites.kubevirt.vmi import VMIS, build_machine_instance, read_secret_name

log = logging.getLogger(__name__)

HINTS = (
    Hint(
        "namespaces ",
        "create the namespace of spec.provider.kubevirt.namespace"
        " (an immutable field: another namespace needs a new CloudSite)",
    ),
    Hint("feature gate", "enable it in spec.configuration.developerConfiguration.featureGates of the KubeVirt object"),
)
_REFUSED = (400, 404, 409)
"""The HTTP statuses of virt-api for a machine in an unsuitable state, or on a node without a virt-handler."""


class KubevirtSite(KubernetesSite):
    """A site of virtual machines in one cluster with KubeVirt.

    To stop a machine, the site deletes its VirtualMachineInstance. To suspend a machine, it pauses the guest, which
    keeps its memory on its node.
    """

    resource = VMIS
    hints = HINTS

    def __init__(self, config: SiteConfig) -> None:
        super().__init__(config, "kubevirt")
        self._settings = Settings.from_provider(config.provider)
        self._shapes = Shapes(self._settings)
        self._user_data = lru_cache(maxsize=64)(build_user_data)
        disk = self._settings.root_disk
        self._disks = Disks(disk, self._namespace, self._selector) if isinstance(disk, DataVolume) else None

    async def probe(self) -> SiteInfo:
        """Return the versions of Kubernetes and KubeVirt, after a check of the rights and the named objects."""
        client = await self._cluster.get_client()
        version = await probe_cluster(client, self._settings)
        try:
            await self._shapes.check(client)
        except ApiError as error:
            raise self._error(error) from error
        return SiteInfo(version)

    async def _make(self, client: KubeClient, request: MachineRequest, namespace: str) -> Machine:
        data = self._user_data(remove_worker(request.bootstrap), request.user_data, request.ssh_public_keys)
        name = f"simyard-{request.owner.pool or request.owner.worker}"
        secret = await self._secrets.ensure(client, namespace, name, {"userdata": data})
        labels = self._labels | build_owner_labels(request.owner)
        body = build_machine_instance(request, namespace, labels, secret, self._settings)
        body = await self._shapes.apply_shape(client, body)
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
            # A refusal may mean that the machine has this state already, is absent, or cannot do it now: read it.
            machine = await self._get(client, machine_id)
            if machine.state is reached:
                return machine
            if error.status == 404:
                raise UnavailableError("KubeVirt's virt-api does not answer: check its pods in the cluster") from error
            raise ConflictError(f"KubeVirt cannot {how} the machine now: {error.message}") from error
        return None

    def _machine(self, item: Json) -> Machine | None:
        owner = read_owner(item)
        return read_machine(item, owner) if owner is not None else None

    def _secret(self, item: Json) -> str:
        return read_secret_name(item)

    async def _repair(self, client: KubeClient, machines: Sequence[Machine] | None) -> None:
        """Create missing disks. After a failure, try again later."""
        if self._disks is None:
            return
        try:
            if machines is not None:
                await self._disks.find_missing(client, machines)
            await self._disks.make_missing(client)
        except (ApiError, SiteError) as error:
            log.warning("cannot create the disks of machines now; trying again later: %s", error)

    def _error(self, error: ApiError, *, writes: bool = False) -> SiteError:
        if lacks_api(error):
            return InvalidSpecError(NOT_INSTALLED, scope=ErrorScope.SITE)
        return super()._error(error, writes=writes)
