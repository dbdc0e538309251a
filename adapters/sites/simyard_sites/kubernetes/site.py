"""A site whose machines are objects of a Kubernetes API: what pods and KubeVirt's machines have in common."""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, TypeVar

from simyard_sites.base import (
    ConflictError,
    ErrorScope,
    Gone,
    InvalidSpecError,
    Machine,
    MachineNotFoundError,
    MachineRequest,
    Outcome,
    PowerAction,
    SiteConfig,
    SiteError,
    SiteEvent,
    Snapshot,
)
from simyard_sites.kubernetes.bulk import each
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.cluster import Cluster
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError, ForbiddenError, NotFoundError
from simyard_sites.kubernetes.errors import ConflictError as ChangedError
from simyard_sites.kubernetes.ownership import selector, site_labels
from simyard_sites.kubernetes.refusals import QUOTA, Hint, site_error
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubernetes.secrets import SharedSecrets
from simyard_sites.kubernetes.watching import Seen, follow, listed

log = logging.getLogger(__name__)
_Item = TypeVar("_Item")


class KubernetesSite(ABC):
    """See :class:`simyard_sites.base.Site`. A machine's id is ``namespace/name`` of its object.

    An object is a machine of this site by its labels, in the namespace where the site would have made it. Nothing is
    done to any other one: what ends or acts knows the object's uid from an answer that was looked at.

    Raises:
        InvalidSpecError: the provider's settings cannot be used.
    """

    stop_ends: ClassVar[bool] = True
    resource: ClassVar[Resource]
    hints: ClassVar[Sequence[Hint]]

    def __init__(self, config: SiteConfig, kind: str) -> None:
        self._cluster = Cluster(config, kind)
        self._namespace = str(config.provider.get("namespace") or "")
        self._labels = site_labels(config.installation, config.name)
        self._selector = selector(self._labels)
        self._secrets = SharedSecrets(self._labels)
        self._seen = Seen()

    def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`. One of that name that is ending is a conflict until it is gone."""
        return self._each(requests, self._create, lambda request: request.name)

    def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        return self._each(ids, self._delete, str)

    def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        return self._each(ids, self._get, str)

    def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`. A machine that is stopped or restarted ends, and is created again."""
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
        found = await listed(client, self.resource, self._read, namespace=self._namespace, labels=self._selector)
        return found[0]

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        """See :class:`simyard_sites.base.Site`: one list, one watch; Secrets that nothing refers to any more go."""
        client = await self._cluster.client()
        changes = follow(
            client, self.resource, self._read, namespace=self._namespace, labels=self._selector, seen=self._seen
        )
        async with contextlib.aclosing(changes):
            async for event in changes:
                if event is not None:
                    yield event
                if isinstance(event, Snapshot):
                    self._secrets.forget_others({machine.id for machine in event.machines})
                    await self._mend(client, event.machines)
                elif isinstance(event, Gone):
                    self._secrets.gone(event.id)
                elif event is None:
                    await self._mend(client, None)
                if isinstance(event, Snapshot) or (event is None and self._secrets.has_unused):
                    await self._sweep(client)

    async def clear(self) -> None:
        """See :class:`simyard_sites.base.Site`: the Secrets that machines shared go."""
        client = await self._cluster.client()
        try:
            await self._secrets.clear(client, self._namespace)
        except ApiError as error:
            raise self._error(error) from error

    async def aclose(self) -> None:
        """See :class:`simyard_sites.base.Site`."""
        await self._cluster.aclose()

    # What differs

    @abstractmethod
    async def _make(self, client: KubeClient, request: MachineRequest, namespace: str) -> Machine:
        """Make the machine, or adopt it (:meth:`_store`); may raise an ApiError."""

    @abstractmethod
    async def _start(self, client: KubeClient, machine_id: str) -> Machine | None:
        """Start a machine."""

    @abstractmethod
    async def _suspend(self, client: KubeClient, machine_id: str) -> Machine | None:
        """Suspend a machine."""

    @abstractmethod
    def _machine(self, item: Json) -> Machine | None:
        """The machine that an object is; None where its labels name no worker."""

    @abstractmethod
    def _secret(self, item: Json) -> str:
        """The shared Secret that an object refers to; "" where it refers to none."""

    async def _mend(self, client: KubeClient, machines: Sequence[Machine] | None) -> None:  # noqa: B027 - most have nothing to finish
        """Finish what was begun and not finished. Called with all machines, or with None now and then."""

    def _error(self, error: ApiError, *, writes: bool = False) -> SiteError:
        return site_error(error, hints=self.hints, writes=writes, own_quota=bool(self._namespace))

    # What is done for one machine

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
        try:
            return await self._make(client, request, self._namespace or request.owner.namespace)
        except ApiError as error:
            raise self._error(error, writes=True) from error

    async def _store(
        self, client: KubeClient, body: Json, request: MachineRequest, namespace: str
    ) -> tuple[Json, Machine]:
        """The object of the machine, be it new or there already, and the machine. A quota is looked at before the name.

        Raises:
            SiteError: the one of that name is ending, or is not this worker's.
            ApiError: the API server refuses, or does not answer.
        """
        place = f"the {self.resource.kind} {namespace}/{request.name}"
        try:
            item = await client.create(self.resource, body, namespace)
        except (AlreadyExistsError, ForbiddenError) as refused:
            if isinstance(refused, ForbiddenError) and QUOTA not in refused.message:
                raise
            try:
                item = await client.get(self.resource, request.name, namespace)
            except NotFoundError:
                if isinstance(refused, ForbiddenError):
                    raise refused from None
                raise ConflictError(f"{place} has just ended") from None
        machine = self._read(item)
        if machine is None or machine.owner != request.owner:
            raise InvalidSpecError(f"{place} exists and is not of this worker: delete it", scope=ErrorScope.ITEM)
        if item["metadata"].get("deletionTimestamp"):
            raise ConflictError(f"{place} is ending")
        return item, self._seen.newest(item, machine)

    async def _delete(self, client: KubeClient, machine_id: str) -> None:
        """An absent machine is deleted already."""
        with contextlib.suppress(MachineNotFoundError):
            await self._end(client, machine_id)

    async def _end(self, client: KubeClient, machine_id: str) -> None:
        """Says nothing of the machine: it may be gone by now, and the watch tells."""
        uid = await self._own(client, machine_id)
        namespace, _, name = machine_id.partition("/")
        try:
            await client.delete(self.resource, name, namespace, uid=uid)
        except ChangedError as error:
            self._seen.forget(machine_id)
            raise ConflictError(
                f"the {self.resource.kind} {machine_id} is not the one it was: {error.message}"
            ) from error
        except ApiError as error:
            raise self._refused(error, machine_id, writes=True) from error

    async def _own(self, client: KubeClient, machine_id: str) -> str:
        """The uid of a machine of this site.

        Raises:
            SiteError: there is none of that id, or it cannot be said.
        """
        if (uid := self._seen.uid(machine_id)) is None:
            await self._get(client, machine_id)
            uid = self._seen.uid(machine_id)
        if uid is None:
            raise MachineNotFoundError(f"the {self.resource.kind} {machine_id} is gone")
        return uid

    async def _get(self, client: KubeClient, machine_id: str) -> Machine:
        namespace, _, name = machine_id.partition("/")
        if not name or "/" in name:
            raise MachineNotFoundError(f"{machine_id!r} is no id of a {self.resource.kind}")
        try:
            item = await client.get(self.resource, name, namespace)
        except ApiError as error:
            raise self._refused(error, machine_id) from error
        machine = self._read(item)
        if machine is None:
            raise MachineNotFoundError(f"the {self.resource.kind} {machine_id} is none of ours")
        return self._seen.newest(item, machine)

    def _refused(self, error: ApiError, machine_id: str, *, writes: bool = False) -> SiteError:
        """Why nothing can be said of a machine, or done to it."""
        told = self._error(error, writes=writes)
        if isinstance(error, NotFoundError) and told.scope is not ErrorScope.SITE:
            self._seen.forget(machine_id)
            return MachineNotFoundError(f"there is no {self.resource.kind} {machine_id}")
        return told

    def _read(self, item: Json) -> Machine | None:
        """The machine of this site that an object is; its uid and what it shares with others are noted."""
        metadata = item["metadata"]
        labels = metadata.get("labels") or {}
        machine = self._machine(item)
        if machine is None or any(labels.get(key) != value for key, value in self._labels.items()):
            return None
        if metadata["namespace"] != (self._namespace or machine.owner.namespace):
            return None
        self._seen.note(machine.id, metadata["uid"])
        if secret := self._secret(item):
            self._secrets.refer(machine.id, metadata["namespace"], secret)
        return machine

    async def _sweep(self, client: KubeClient) -> None:
        try:
            await self._secrets.sweep(client, self._namespace)
        except ApiError as error:
            log.warning("Secrets that nothing refers to any more stay for now: %s", error)
