# SPDX-License-Identifier: Apache-2.0
"""Defines the interface between the OCCI handlers and the entities that they serve."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from simyard.frontend.entities.identifiers import compute_digest
from simyard.frontend.exchange import Identity
from simyard.occi.model import Action, Entity, Mixin, Model, Value
from simyard.occi.validation import Checked, Update


class Verb(enum.StrEnum):
    """An operation on an entity or a collection, for the check of rights."""

    GET = "get"
    LIST = "list"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    ACT = "act"

    __hash__ = str.__hash__  # a fast hash: every request looks up permissions, and the hash of enumerations is slow


Precondition = Callable[[], None]
"""A function that raises OcciError if an entity does not fulfil the conditions of the request."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """A user's call of an action.

    Attributes:
        identity: the user.
        action: the action, which applies to the entity.
        attributes: the parameters of the action by their names, checked against its declaration.
        wait: True to answer when the action is done, False to answer when it is accepted; None for the default of the
            action.
        key: the idempotency key: the backend carries out an action once for one key. "" if the request has no key.
        check: a function that the backend calls for a single entity just before the write; None if the request has no
        conditions. An action of a service writes nothing to its entity: before such an action, the backend reads the
        entity from the API server and then calls the function.
    """

    identity: Identity
    action: Action
    attributes: Mapping[str, Value]
    wait: bool | None = None
    key: str = ""
    check: Precondition | None = None

    def select_entity(self, path: str) -> Invocation:
        """Return the invocation for the entity at ``path``, one of several, with a separate idempotency key."""
        return replace(self, key=compute_digest(f"{self.key} {path}")) if self.key else self


class Backend(Protocol):
    """The entities of a frontend by path, in memory, and the methods that change the objects behind them.

    Sync methods answer from memory. Async methods may wait for other processes. Every such wait has a deadline, after
    which the method raises OcciError 503 (nothing was done) or 504 (the change may have been made). The handlers call
    :meth:`may` before any other method. A method that changes further objects checks the rights for these objects.
    """

    @property
    def version(self) -> int:
        """A number that grows with every visible change, also with new values of attributes."""

    def get_model(self) -> Model:
        """Return the model, which has all categories. Until a category changes, this is the same object."""

    def get_entity(self, path: str) -> Entity | None:
        """Return the entity at a path such as ``/compute/<id>``."""

    def list_paths(self, location: str) -> tuple[str, ...]:
        """Return the paths of the members of a kind, of a mixin or below a path, by creation time.

        The tuple is a snapshot. Until a member is added or removed, the method returns the same object, so the caller
        can cache a listing that it rendered from the tuple.
        """

    def list_entities(self, paths: Iterable[str]) -> Iterable[Entity]:
        """Return the entities at these paths that still exist."""

    def make_part_key(self, path: str) -> Hashable:
        """Return a key that changes whenever the entity's rendering changes; None if no entity exists at the path.

        A change of the model can change the rendering, but does not change the key.
        """

    def measure_age_seconds(self, path: str) -> float | None:
        """Return the age of the oldest value that an entity shows; None if all of its values are constant."""

    def is_permanent(self, path: str) -> bool:
        """Return true if no client can delete the entity: it is deleted with another entity, or its vendor owns it."""

    def visible(self) -> AbstractAsyncContextManager[None]:
        """Run a block, and return when every replica of this frontend shows the objects that the block has written."""

    async def find(self, path: str) -> Entity | None:
        """Return the entity at a path; ask the API server before answering that it does not exist."""

    async def may(self, identity: Identity, verb: Verb, path: str, action: str = "") -> None:
        """Raise an error unless a user has the right to an entity, or to a location such as ``/compute/``.

        ``action`` is the id of the action, for ACT.

        Raises:
            OcciError: 403, or 503 if the Kubernetes API does not answer now.
        """

    async def find_download(self, identity: Identity, address: str) -> str:
        """Return a signed URL that downloads a file.

        Raises:
            OcciError: 403; 404, there is no such file; 503, the file store does not answer.
        """

    async def create(self, identity: Identity, draft: Checked, *, key: str = "", exact: bool = False) -> Entity:
        """Create an entity with its inline links, all or nothing, and return it.

        A second call with the same ``key`` returns the same entity. If another entity has the requested id, the method
        raises an error with ``exact``, and chooses a new id without it.

        Raises:
            OcciError: the entity cannot be created: 400, 403, 409, 501 or 503.
        """

    async def update(
        self, identity: Identity, entity: Entity, update: Update, *, replace: bool, check: Precondition | None = None
    ) -> Entity:
        """Change an entity, and return the changed entity.

        ``replace`` is true if the client sent the whole entity. The backend calls ``check`` before the write, and
        writes only if the object has not changed since then.

        Raises:
            OcciError: the change is not possible, or ``check`` raised it.
        """

    async def delete(
        self, identity: Identity, entities: Sequence[Entity], *, key: str = "", check: Precondition | None = None
    ) -> None:
        """Delete entities and their links. An entity that does not exist any more counts as deleted.

        The ``key`` is that of the request, so that every frontend can answer a repeated request: see
        :meth:`was_deleted`. ``check`` has the same meaning as in :meth:`update`. A compute of a pool is first marked
        for deletion; later changes of this compute do not stop the deletion.
        """

    def was_deleted(self, path: str, key: str) -> bool:
        """Return true if the request with this key has deleted the entity at a path a short time ago."""

    async def act(self, entities: Sequence[Entity], invocation: Invocation) -> Mapping[str, Value] | None:
        """Carry out an action on every entity. For a single entity, return the result; None if there is none.

        Raises:
            OcciError: the first failure, after every entity was tried.
        """

    async def refresh(self, entities: Sequence[Entity], seconds: float = 1.0) -> None:
        """Ask the adapters of all entities at once for their newest values, and wait for at most ``seconds``.

        The method raises no error: without an answer, the last known values remain.
        """

    def is_due(self, path: str) -> bool:
        """Return true if the frontend must now ask an adapter for values of the entity at a path.

        These are adapters that never report values themselves.
        """

    async def pull(self, path: str, seconds: float = 1.0) -> None:
        """Ask the adapters that report no values themselves for the values at a path; wait for at most ``seconds``.

        The method raises no error: without an answer, the last known values remain.
        """

    async def define(self, identity: Identity, definitions: Sequence[Mixin | Action]) -> None:
        """Add user mixins with their actions; replace existing mixins if the user has the right to change them."""

    async def undefine(self, identity: Identity, ids: Sequence[str]) -> None:
        """Remove user mixins from the model and from all entities."""

    async def associate(self, identity: Identity, mixin: Mixin, paths: Sequence[str], *, replace: bool) -> None:
        """Add a mixin to entities; with ``replace``, remove it from all other entities."""

    async def dissociate(self, identity: Identity, mixin: Mixin, paths: Sequence[str]) -> None:
        """Remove a mixin from entities."""
