"""Runs machines as VirtualMachineInstances of KubeVirt, made directly: no VirtualMachine stands behind them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from functools import lru_cache, partial

from simyard_adapter.bootstrap import shared
from simyard_sites.base import (
    ConflictError,
    ErrorScope,
    Gone,
    InvalidSpecError,
    Machine,
    MachineNotFoundError,
    MachineRequest,
    MachineState,
    Outcome,
    PowerAction,
    SiteConfig,
    SiteError,
    SiteEvent,
    SiteInfo,
    Snapshot,
    UnavailableError,
)
from simyard_sites.guest import user_data
from simyard_sites.kubernetes.bulk import each
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.cluster import Cluster
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError, ForbiddenError, NotFoundError
from simyard_sites.kubernetes.ownership import LABEL_WORKER_UID, owner_labels, owner_of, selector, site_labels
from simyard_sites.kubernetes.refusals import Hint, site_error
from simyard_sites.kubernetes.secrets import SharedSecrets
from simyard_sites.kubernetes.watching import follow, listed
from simyard_sites.kubevirt.probing import NO_CDI, NOT_INSTALLED, SUBRESOURCES, probe_cluster
from simyard_sites.kubevirt.settings import DataVolume, Settings
from simyard_sites.kubevirt.shapes import Shapes
from simyard_sites.kubevirt.states import machine_of
from simyard_sites.kubevirt.vmi import ANNOTATION_DISK, DATA_VOLUMES, VMIS, data_volume, machine_instance

HINTS = (
    Hint("namespaces ", "spec.provider.kubevirt.namespace: create the namespace, or name another one"),
    Hint("feature gate", "enable it in spec.configuration.developerConfiguration.featureGates of the KubeVirt object"),
    Hint("networkName", "spec.provider.kubevirt.network.multus: name a NetworkAttachmentDefinition that is there"),
    Hint("PriorityClass", "spec.provider.kubevirt.priorityClassName: name a PriorityClass that is there"),
)
QUOTA = "exceeded quota"
_NO_API = ("could not find the requested resource", "404 page not found")
_SUBRESOURCE = {PowerAction.START: "unpause", PowerAction.SUSPEND: "pause"}
_REACHED = {PowerAction.START: MachineState.RUNNING, PowerAction.SUSPEND: MachineState.SUSPENDED}


class KubevirtSite:
    """One cluster with KubeVirt. A machine's id is ``NAMESPACE/NAME``.

    A VirtualMachineInstance that is stopped is gone; one that is suspended is paused, and keeps its memory on its node.
    """

    stop_ends = True

    def __init__(self, config: SiteConfig) -> None:
        self._settings = Settings.from_provider(config.provider)
        self._cluster = Cluster(config, "kubevirt")
        self._labels = site_labels(config.installation, config.name)
        self._selector = selector(self._labels)
        self._secrets = SharedSecrets(self._labels)
        self._shapes = Shapes(self._settings)
        self._user_data = lru_cache(maxsize=64)(user_data)

    async def probe(self) -> SiteInfo:
        """See :class:`simyard_sites.base.Site`."""
        client = await self._cluster.client()
        version = await probe_cluster(client, self._settings)
        try:
            await self._shapes.check(client)
        except ApiError as error:
            raise self._error(error) from error
        return SiteInfo(version)

    async def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        client = await self._cluster.client()
        async with aclosing(each(requests, partial(self._create, client), self._cluster.slots)) as outcomes:
            async for outcome in outcomes:
                yield outcome

    async def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        client = await self._cluster.client()
        async with aclosing(each(ids, partial(self._delete, client), self._cluster.slots)) as outcomes:
            async for outcome in outcomes:
                yield outcome

    async def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        client = await self._cluster.client()
        async with aclosing(each(ids, partial(self._get, client), self._cluster.slots)) as outcomes:
            async for outcome in outcomes:
                yield outcome

    async def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        client = await self._cluster.client()
        ends = action in (PowerAction.STOP, PowerAction.RESTART)
        call = self._end if ends else partial(self._act, action)
        async with aclosing(each(ids, partial(call, client), self._cluster.slots)) as outcomes:
            async for outcome in outcomes:
                yield outcome

    async def list_owned(self) -> Sequence[Machine]:
        """See :class:`simyard_sites.base.Site`."""
        client = await self._cluster.client()
        machines, _ = await listed(client, VMIS, self._read, namespace=self._settings.namespace, labels=self._selector)
        return machines

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        """See :class:`simyard_sites.base.Site`."""
        client, namespace = await self._cluster.client(), self._settings.namespace
        stream = follow(client, VMIS, self._read, namespace=namespace, labels=self._selector)
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, Gone):
                    self._secrets.gone(event.id)
                if event is not None:
                    yield event
                if isinstance(event, Snapshot):
                    self._secrets.forget_others({machine.id for machine in event.machines})
                    await self._mend(client, event.machines)
                if isinstance(event, Snapshot) or event is None:
                    await self._tidy(client, anyway=event is not None)

    async def aclose(self) -> None:
        """See :class:`simyard_sites.base.Site`."""
        await self._cluster.aclose()

    # One machine

    async def _create(self, client: KubeClient, request: MachineRequest) -> Outcome:
        namespace = self._settings.namespace or request.owner.namespace
        try:
            machine = await self._make(client, request, namespace)
        except SiteError as error:
            return Outcome(request.name, error=error)
        except ApiError as error:
            return Outcome(request.name, error=self._error(error, writes=True))
        return Outcome(request.name, machine=machine)

    async def _make(self, client: KubeClient, request: MachineRequest, namespace: str) -> Machine:
        data = self._user_data(shared(request.bootstrap), request.user_data, request.ssh_public_keys)
        name = f"simyard-{request.owner.pool or request.owner.worker}"
        secret = await self._secrets.ensure(client, namespace, name, {"userdata": data})
        labels = self._labels | owner_labels(request.owner)
        body = machine_instance(request, namespace, labels, secret, self._settings)
        body = await self._shapes.shaped(client, body)
        stored = await self._store(client, body)
        machine = self._read(stored)
        if machine is None or machine.owner.worker_uid != request.owner.worker_uid:
            raise InvalidSpecError(
                f"{VMIS.kind} {namespace}/{request.name} belongs to somebody else: remove it", scope=ErrorScope.ITEM
            )
        if isinstance(self._settings.root_disk, DataVolume) and machine.state is MachineState.PENDING:
            await self._make_disk(client, stored, self._settings.root_disk)
        return machine

    async def _store(self, client: KubeClient, body: Json) -> Json:
        """Create it, or find the one of that name. A quota refuses one that exists as well, so it is looked for."""
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        try:
            return await client.create(VMIS, body, namespace)
        except (AlreadyExistsError, ForbiddenError) as error:
            if isinstance(error, ForbiddenError) and QUOTA not in error.message:
                raise
            try:
                return await client.get(VMIS, name, namespace)
            except NotFoundError:
                if isinstance(error, ForbiddenError):
                    raise error from None
                raise ConflictError(f"{VMIS.kind} {namespace}/{name} is just going") from None

    async def _make_disk(self, client: KubeClient, stored: Json, disk: DataVolume) -> None:
        try:
            await client.create(DATA_VOLUMES, data_volume(stored, disk), stored["metadata"]["namespace"])
        except AlreadyExistsError:
            return
        except NotFoundError as error:
            if not _lacks_api(error):
                raise
            raise InvalidSpecError(NO_CDI) from error

    async def _delete(self, client: KubeClient, machine_id: str) -> Outcome:
        namespace, _, name = machine_id.partition("/")
        try:
            if name:
                await client.delete(VMIS, name, namespace)
        except ApiError as error:
            if not isinstance(error, NotFoundError) or _lacks_api(error):
                return Outcome(machine_id, error=self._error(error, writes=True))
        return Outcome(machine_id)

    async def _end(self, client: KubeClient, machine_id: str) -> Outcome:
        outcome = await self._get(client, machine_id)
        return outcome if outcome.error is not None else await self._delete(client, machine_id)

    async def _get(self, client: KubeClient, machine_id: str) -> Outcome:
        namespace, _, name = machine_id.partition("/")
        try:
            machine = self._read(await client.get(VMIS, name, namespace)) if name else None
        except ApiError as error:
            if not isinstance(error, NotFoundError) or _lacks_api(error):
                return Outcome(machine_id, error=self._error(error))
            machine = None
        if machine is None:
            return Outcome(machine_id, error=MachineNotFoundError(f"there is no {VMIS.kind} {machine_id}"))
        return Outcome(machine_id, machine=machine)

    async def _act(self, action: PowerAction, client: KubeClient, machine_id: str) -> Outcome:
        namespace, _, name = machine_id.partition("/")
        path = f"{SUBRESOURCES}/namespaces/{namespace}/{VMIS.plural}/{name}/{_SUBRESOURCE[action]}"
        try:
            await client.request("PUT", path, body={}, resource=VMIS, verb=_SUBRESOURCE[action])
        except ApiError as error:
            # Only a look tells whether a refusal means that it is so already, is absent, or cannot be done now.
            seen = await self._get(client, machine_id) if error.status in (404, 409) else None
            if seen is None:
                return Outcome(machine_id, error=self._error(error, writes=True))
            if seen.machine is None:
                return seen
            if seen.machine.state is _REACHED.get(action):
                return seen
            if error.status == 404:
                return Outcome(machine_id, error=UnavailableError("KubeVirt's virt-api does not answer"))
            return Outcome(machine_id, error=ConflictError(error.message))
        return Outcome(machine_id)

    # What is around machines

    def _read(self, raw: Json) -> Machine | None:
        owner = owner_of(raw)
        if owner is None:
            return None
        machine = machine_of(raw, owner)
        for volume in raw["spec"].get("volumes") or ():
            if (source := volume.get("cloudInitNoCloud")) is not None:
                self._secrets.refer(machine.id, raw["metadata"]["namespace"], source["secretRef"]["name"])
        return machine

    async def _tidy(self, client: KubeClient, *, anyway: bool) -> None:
        """Remove Secrets that no machine uses any more; what cannot be removed now is tried again later."""
        if not anyway and not self._secrets.has_unused:
            return
        try:
            await self._secrets.sweep(client, self._settings.namespace)
        except ApiError:
            return

    async def _mend(self, client: KubeClient, machines: Sequence[Machine]) -> None:
        """Give machines their disks whose making was interrupted between the two."""
        disk = self._settings.root_disk
        waiting = [machine for machine in machines if machine.state is MachineState.PENDING]
        if not isinstance(disk, DataVolume) or not waiting:
            return
        there: set[str] = set()

        def take(page: list[Json]) -> None:
            there.update(item["metadata"]["labels"].get(LABEL_WORKER_UID, "") for item in page)

        try:
            await client.list_all(DATA_VOLUMES, self._settings.namespace, labels=self._selector, take=take)
            for machine in waiting:
                if machine.owner.worker_uid not in there:
                    namespace, _, name = machine.id.partition("/")
                    stored = await client.get(VMIS, name, namespace)
                    if ANNOTATION_DISK in (stored["metadata"].get("annotations") or {}):
                        await self._make_disk(client, stored, disk)
        except NotFoundError:
            return
        except ApiError as error:
            raise self._error(error) from error

    def _error(self, error: ApiError, *, writes: bool = False) -> SiteError:
        if _lacks_api(error):
            return InvalidSpecError(NOT_INSTALLED, scope=ErrorScope.SITE)
        return site_error(error, hints=HINTS, writes=writes, own_quota=bool(self._settings.namespace))


def _lacks_api(error: ApiError) -> bool:
    """Whether it is not the object that is absent, but its kind."""
    return error.status == 404 and any(text in error.message for text in _NO_API)
