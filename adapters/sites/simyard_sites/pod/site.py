"""The provider ``pod``: one POST for each pod that is made, one DELETE for each that ends."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, TypeVar

from simyard_adapter.bootstrap import shared
from simyard_sites.base import (
    Changed,
    ConflictError,
    ErrorScope,
    Gone,
    InvalidSpecError,
    Machine,
    MachineNotFoundError,
    MachineRequest,
    Outcome,
    Owner,
    PowerAction,
    SiteConfig,
    SiteError,
    SiteEvent,
    SiteInfo,
    Snapshot,
)
from simyard_sites.kubernetes import rights
from simyard_sites.kubernetes.access import check_rights, server_version
from simyard_sites.kubernetes.bulk import each
from simyard_sites.kubernetes.client import Json, KubeClient, path_of
from simyard_sites.kubernetes.cluster import Cluster
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError, ForbiddenError, NotFoundError
from simyard_sites.kubernetes.ownership import selector, site_labels
from simyard_sites.kubernetes.refusals import Hint, site_error
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubernetes.secrets import SharedSecrets
from simyard_sites.kubernetes.watching import Seen, follow, listed
from simyard_sites.pod.manifest import BOOTSTRAP_KEY, check, pod, secret_of
from simyard_sites.pod.reading import read

log = logging.getLogger(__name__)

PODS = Resource("", "v1", "pods", "Pod")
_Item = TypeVar("_Item")
_FIELD = "spec.provider.pod"
_SIZES = ("exceeded quota", "usage per Container", "usage per Pod")
"""In refusals that are about what a pod asks for, which is the service's to say."""
HINTS = (
    Hint("violates PodSecurity", "workers keep to the standard `restricted`; something in the cluster changed the pod"),
    Hint("no PriorityClass with name", f"set {_FIELD}.priorityClassName to one that exists"),
    Hint("RuntimeClass", f"set {_FIELD}.runtimeClassName to one that exists"),
    Hint("error looking up service account", f"create it, or set {_FIELD}.serviceAccountName to one that exists"),
    Hint("being terminated", "the namespace is being deleted"),
    Hint("namespaces ", f"create the namespace there, or set {_FIELD}.namespace"),
    Hint("usage per Container", "the namespace's LimitRange does not permit spec.resources of the SimulationService"),
    Hint("usage per Pod", "the namespace's LimitRange does not permit spec.resources of the SimulationService"),
    Hint("admission webhook", "a policy of the cluster refuses the pod"),
)


class PodSite:
    """See :class:`simyard_sites.base.Site`. A machine's id is ``namespace/name`` of its pod.

    Raises:
        InvalidSpecError: the provider's settings cannot be used.
    """

    stop_ends: ClassVar[bool] = True

    def __init__(self, config: SiteConfig) -> None:
        self._cluster = Cluster(config, "pod")
        self._provider = config.provider
        self._namespace = str(config.provider.get("namespace") or "")
        self._labels = site_labels(config.installation, config.name)
        self._secrets = SharedSecrets(self._labels)
        self._seen = Seen()

    async def probe(self) -> SiteInfo:
        """See :class:`simyard_sites.base.Site`; asks whether each right that is needed is granted."""
        client = await self._cluster.client()
        try:
            version = await server_version(client)
            await check_rights(client, rights.PODS, self._namespace)
            if self._namespace:
                await self._rehearse(client)
        except ApiError as error:
            raise site_error(error, hints=HINTS) from error
        return SiteInfo(version=version)

    async def _rehearse(self, client: KubeClient) -> None:
        """Have a pod of ours checked that is not made, so that a wrong setting is told before anybody needs one."""
        name = f"simyard-rehearsal-{uuid.uuid4().hex[:8]}"
        request = MachineRequest(name, Owner(self._namespace, "rehearsal", ""), b"", image="rehearsal", cpu_millis=1)
        path = path_of(PODS, self._namespace)
        body = pod(request, "rehearsal", self._provider, self._labels)
        try:
            await client.request("POST", path, body=body, query={"dryRun": "All"}, resource=PODS, verb="rehearse")
        except ApiError as error:
            if not any(text in error.message for text in _SIZES):
                raise

    def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`. A pod of that name that is ending is a conflict until it is gone."""
        return self._each(requests, self._create, lambda request: request.name)

    def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        return self._each(ids, self._delete, str)

    def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        return self._each(ids, self._get, str)

    def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`. A pod that is stopped or restarted ends, and is created again."""
        calls: Mapping[PowerAction, Callable[[KubeClient, str], Awaitable[Machine | None]]] = {
            PowerAction.START: self._start,
            PowerAction.STOP: self._end,
            PowerAction.RESTART: self._end,
            PowerAction.SUSPEND: self._suspend,
        }
        return self._each(ids, calls[action], str)

    async def list_owned(self) -> Sequence[Machine]:
        """See :class:`simyard_sites.base.Site`."""
        client = await self._cluster.client()
        machines, _ = await listed(client, PODS, self._read, namespace=self._namespace, labels=selector(self._labels))
        return machines

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        """See :class:`simyard_sites.base.Site`: one list, one watch; Secrets that no pod refers to any more go."""
        client = await self._cluster.client()
        labels = selector(self._labels)
        changes = follow(client, PODS, self._read, namespace=self._namespace, labels=labels, seen=self._seen)
        async with contextlib.aclosing(changes):
            async for event in changes:
                if event is not None:
                    yield event
                if isinstance(event, Snapshot):
                    self._secrets.forget_others({machine.id for machine in event.machines})
                elif isinstance(event, Gone):
                    self._secrets.gone(event.id)
                if isinstance(event, Snapshot) or (not isinstance(event, Changed) and self._secrets.has_unused):
                    await self._sweep(client)

    async def aclose(self) -> None:
        """See :class:`simyard_sites.base.Site`."""
        await self._cluster.aclose()

    async def _each(
        self,
        items: Sequence[_Item],
        call: Callable[[KubeClient, _Item], Awaitable[Machine | None]],
        key_of: Callable[[_Item], str],
    ) -> AsyncGenerator[Outcome, None]:
        client = await self._cluster.client()

        async def one(item: _Item) -> Outcome:
            try:
                return Outcome(key_of(item), machine=await call(client, item))
            except SiteError as error:
                return Outcome(key_of(item), error=error)

        async with contextlib.aclosing(each(items, one, self._cluster.slots)) as outcomes:
            async for outcome in outcomes:
                yield outcome

    async def _create(self, client: KubeClient, request: MachineRequest) -> Machine:
        check(request)
        owner = request.owner
        namespace = self._namespace or owner.namespace
        data = {BOOTSTRAP_KEY: shared(request.bootstrap)}
        try:
            secret = await self._secrets.ensure(client, namespace, f"simyard-{owner.pool or owner.worker}", data)
            item = await self._post(client, pod(request, secret, self._provider, self._labels), namespace)
        except ApiError as error:
            raise site_error(error, hints=HINTS, writes=True, own_quota=bool(self._namespace)) from error
        machine = self._read(item)
        if machine is None or machine.owner != owner:
            raise InvalidSpecError(
                f"the pod {namespace}/{request.name} exists and is not of this worker: delete it", scope=ErrorScope.ITEM
            )
        if item["metadata"].get("deletionTimestamp"):
            raise ConflictError(f"the pod {machine.id} is ending")
        return self._seen.newest(item, machine)

    async def _post(self, client: KubeClient, body: Json, namespace: str) -> Json:
        """The pod, be it new or there already."""
        name = body["metadata"]["name"]
        try:
            return await client.create(PODS, body, namespace)
        except AlreadyExistsError:
            with contextlib.suppress(NotFoundError):
                return await client.get(PODS, name, namespace)
            raise ConflictError(f"the pod {namespace}/{name} has just ended") from None
        except ForbiddenError as error:
            if "exceeded quota" in error.message:  # which is looked at before the name
                with contextlib.suppress(NotFoundError):
                    return await client.get(PODS, name, namespace)
            raise

    async def _delete(self, client: KubeClient, machine_id: str) -> None:
        """An absent pod is deleted already."""
        with contextlib.suppress(MachineNotFoundError):
            await self._end(client, machine_id)

    async def _end(self, client: KubeClient, machine_id: str) -> None:
        """Says nothing of the pod: it may be gone by now, and the watch tells."""
        namespace, _, name = machine_id.partition("/")
        try:
            await client.delete(PODS, name, namespace)
        except NotFoundError:
            raise MachineNotFoundError(f"there is no pod {machine_id}") from None
        except ApiError as error:
            raise site_error(error, writes=True) from error

    async def _get(self, client: KubeClient, machine_id: str) -> Machine:
        namespace, _, name = machine_id.partition("/")
        try:
            item = await client.get(PODS, name, namespace)
        except NotFoundError:
            raise MachineNotFoundError(f"there is no pod {machine_id}") from None
        except ApiError as error:
            raise site_error(error) from error
        machine = self._read(item)
        if machine is None:
            raise MachineNotFoundError(f"the pod {machine_id} is none of ours")
        return self._seen.newest(item, machine)

    async def _start(self, client: KubeClient, machine_id: str) -> Machine:
        """A pod runs as long as it is there; one that was stopped is created again."""
        return await self._get(client, machine_id)

    async def _suspend(self, client: KubeClient, machine_id: str) -> None:
        await self._get(client, machine_id)
        raise InvalidSpecError(
            "a pod cannot be suspended: stop it, or use a site with virtual machines", scope=ErrorScope.ITEM
        )

    def _read(self, item: Json) -> Machine | None:
        """The machine that a pod of this site is; what its pool shares is noted as in use.

        Pods of other people's namespaces that say that they belong to somebody else's worker are none.
        """
        metadata = item["metadata"]
        labels = metadata.get("labels") or {}
        machine = read(item)
        if machine is None or any(labels.get(key) != value for key, value in self._labels.items()):
            return None
        if not self._namespace and machine.owner.namespace != metadata["namespace"]:
            return None
        self._secrets.refer(machine.id, metadata["namespace"], secret_of(item))
        return machine

    async def _sweep(self, client: KubeClient) -> None:
        try:
            await self._secrets.sweep(client, self._namespace)
        except ApiError as error:
            log.warning("Secrets that nothing refers to any more stay for now: %s", error)
