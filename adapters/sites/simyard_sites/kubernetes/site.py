# SPDX-License-Identifier: Apache-2.0
"""Implements the common base of the sites whose machines are Kubernetes objects: pods and KubeVirt's machines."""

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
from simyard_sites.kubernetes.bulk import run_each
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.cluster import Cluster
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError, ForbiddenError, NotFoundError
from simyard_sites.kubernetes.errors import ConflictError as ChangedError
from simyard_sites.kubernetes.ownership import build_selector, build_site_labels
from simyard_sites.kubernetes.refusals import QUOTA, Hint, make_site_error
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubernetes.secrets import SharedSecrets
from simyard_sites.kubernetes.watching import Seen, follow, list_machines

log = logging.getLogger(__name__)
_Item = TypeVar("_Item")


class KubernetesSite(ABC):
    """A site whose machines are Kubernetes objects (implements :class:`simyard_sites.base.Site`).

    A machine's id is ``namespace/name`` of its object. An object is a machine of this site if it has the site's labels
    and is in the namespace where the site would create it. The site never changes other objects: each deletion or
    action names the uid of an object that the site has read before.

    Raises:
        InvalidSpecError: The provider's settings cannot be used.
    """

    stop_ends: ClassVar[bool] = True
    resource: ClassVar[Resource]
    hints: ClassVar[Sequence[Hint]]

    def __init__(self, config: SiteConfig, kind: str) -> None:
        self._cluster = Cluster(config, kind)
        self._namespace = str(config.provider.get("namespace") or "")
        self._labels = build_site_labels(config.installation, config.name)
        self._selector = build_selector(self._labels)
        self._secrets = SharedSecrets(self._labels)
        self._seen = Seen()

    def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """Create machines. While a machine with the same name is ending, the outcome is a conflict."""
        return self._each(requests, self._create, lambda request: request.name)

    def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """Delete machines."""
        return self._each(ids, self._delete, str)

    def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """Yield the present state of machines."""
        return self._each(ids, self._get, str)

    def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        """Apply a power action. STOP and RESTART end the machine; the platform creates it again when it is needed."""
        calls: Mapping[PowerAction, Callable[[KubeClient, str], Awaitable[Machine | None]]] = {
            PowerAction.START: self._start,
            PowerAction.STOP: self._end,
            PowerAction.RESTART: self._end,
            PowerAction.SUSPEND: self._suspend,
        }
        return self._each(ids, calls[action], str)

    async def list_owned(self) -> Sequence[Machine]:
        """Return all machines of this site."""
        client = await self._cluster.get_client()
        found = await list_machines(client, self.resource, self._read, namespace=self._namespace, labels=self._selector)
        return found[0]

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        """Yield events from one list and one watch; delete unused shared Secrets meanwhile."""
        client = await self._cluster.get_client()
        changes = follow(
            client, self.resource, self._read, namespace=self._namespace, labels=self._selector, seen=self._seen
        )
        async with contextlib.aclosing(changes):
            async for event in changes:
                if event is not None:
                    yield event
                if isinstance(event, Snapshot):
                    self._secrets.forget_others({machine.id for machine in event.machines})
                    await self._repair(client, event.machines)
                elif isinstance(event, Gone):
                    self._secrets.record_machine_gone(event.id)
                elif event is None:
                    await self._repair(client, None)
                if isinstance(event, Snapshot) or (event is None and self._secrets.has_unused):
                    await self._sweep(client)

    async def clear(self) -> None:
        """Delete the Secrets that machines shared."""
        client = await self._cluster.get_client()
        try:
            await self._secrets.clear(client, self._namespace)
        except ApiError as error:
            raise self._error(error) from error

    async def aclose(self) -> None:
        """Close the connections to the cluster."""
        await self._cluster.aclose()

    # Parts that differ between providers

    @abstractmethod
    async def _make(self, client: KubeClient, request: MachineRequest, namespace: str) -> Machine:
        """Create or adopt the machine with :meth:`_store`, and return it; raises ApiError."""

    @abstractmethod
    async def _start(self, client: KubeClient, machine_id: str) -> Machine | None:
        """Start a machine; return its state if it is known."""

    @abstractmethod
    async def _suspend(self, client: KubeClient, machine_id: str) -> Machine | None:
        """Suspend a machine; return its state if it is known."""

    @abstractmethod
    def _machine(self, item: Json) -> Machine | None:
        """Return the machine that an object represents; None if its labels name no worker."""

    @abstractmethod
    def _secret(self, item: Json) -> str:
        """Return the name of the shared Secret that an object refers to, or ""."""

    async def _repair(self, client: KubeClient, machines: Sequence[Machine] | None) -> None:  # noqa: B027 - most have nothing to finish
        """Complete unfinished work.

        ``events`` calls this with all machines after a snapshot, and with None every minute.
        """

    def _error(self, error: ApiError, *, writes: bool = False) -> SiteError:
        return make_site_error(error, hints=self.hints, writes=writes, own_quota=bool(self._namespace))

    # Calls for one machine

    async def _each(
        self,
        items: Sequence[_Item],
        call: Callable[[KubeClient, _Item], Awaitable[Machine | None]],
        key_of: Callable[[_Item], str],
    ) -> AsyncGenerator[Outcome, None]:
        client = await self._cluster.get_client()

        async def one(item: _Item) -> Outcome:
            try:
                return Outcome(key_of(item), machine=await call(client, item))
            except SiteError as error:
                return Outcome(key_of(item), error=error)

        async with contextlib.aclosing(run_each(items, one, self._cluster.slots)) as outcomes:
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
        """Create the object of a machine or read the existing one; return the object and the machine.

        The quota plugin runs before the API server checks the name. After a refusal because of the quota, the method
        therefore looks for an existing machine.

        Raises:
            SiteError: The object with this name is ending, or belongs to another worker.
            ApiError: The API server refuses the request or does not answer.
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
                raise ConflictError(f"{place} has just ended; retry") from None
        machine = self._read(item)
        if machine is None or machine.owner != request.owner:
            raise InvalidSpecError(
                f"{place} exists and belongs to another owner: delete it, so that the worker's machine can be created",
                scope=ErrorScope.ITEM,
            )
        if item["metadata"].get("deletionTimestamp"):
            raise ConflictError(f"{place} is still ending; retry when it is gone")
        return item, self._seen.choose_newest(item, machine)

    async def _delete(self, client: KubeClient, machine_id: str) -> None:
        """Delete a machine; an absent machine counts as deleted."""
        with contextlib.suppress(MachineNotFoundError):
            await self._end(client, machine_id)

    async def _end(self, client: KubeClient, machine_id: str) -> None:
        """End a machine, and return None: the machine may be gone already, and the watch reports it."""
        uid = await self._own(client, machine_id)
        namespace, _, name = machine_id.partition("/")
        try:
            await client.delete(self.resource, name, namespace, uid=uid)
        except ChangedError as error:
            self._seen.forget(machine_id)
            raise ConflictError(
                f"the {self.resource.kind} {machine_id} was replaced by another one with the same name: {error.message}"
            ) from error
        except ApiError as error:
            raise self._refused(error, machine_id, writes=True) from error

    async def _own(self, client: KubeClient, machine_id: str) -> str:
        """Return the uid of a machine of this site.

        Raises:
            SiteError: The site has no machine with this id, or the API server does not answer.
        """
        if (uid := self._seen.get_uid(machine_id)) is None:
            await self._get(client, machine_id)
            uid = self._seen.get_uid(machine_id)
        if uid is None:
            raise MachineNotFoundError(f"the {self.resource.kind} {machine_id} is gone")
        return uid

    async def _get(self, client: KubeClient, machine_id: str) -> Machine:
        namespace, _, name = machine_id.partition("/")
        if not name or "/" in name:
            raise MachineNotFoundError(
                f"{machine_id!r} is not the id of a {self.resource.kind}; an id has the form namespace/name"
            )
        try:
            item = await client.get(self.resource, name, namespace)
        except ApiError as error:
            raise self._refused(error, machine_id) from error
        machine = self._read(item)
        if machine is None:
            raise MachineNotFoundError(f"the {self.resource.kind} {machine_id} does not belong to this CloudSite")
        return self._seen.choose_newest(item, machine)

    def _refused(self, error: ApiError, machine_id: str, *, writes: bool = False) -> SiteError:
        """Return the error for a machine that could not be read or changed."""
        told = self._error(error, writes=writes)
        if isinstance(error, NotFoundError) and told.scope is not ErrorScope.SITE:
            self._seen.forget(machine_id)
            return MachineNotFoundError(f"there is no {self.resource.kind} {machine_id}")
        return told

    def _read(self, item: Json) -> Machine | None:
        """Return the machine of this site that an object represents; record its uid and its shared Secret."""
        metadata = item["metadata"]
        labels = metadata.get("labels") or {}
        machine = self._machine(item)
        if machine is None or any(labels.get(key) != value for key, value in self._labels.items()):
            return None
        if metadata["namespace"] != (self._namespace or machine.owner.namespace):
            return None
        self._seen.record_uid(machine.id, metadata["uid"])
        if secret := self._secret(item):
            self._secrets.record_reference(machine.id, metadata["namespace"], secret)
        return machine

    async def _sweep(self, client: KubeClient) -> None:
        try:
            await self._secrets.sweep(client, self._namespace)
        except ApiError as error:
            log.warning("cannot delete unused Secrets now; trying again later: %s", error)
