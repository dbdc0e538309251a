"""What the handlers need of the world behind them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from simyard.frontend.exchange import Identity
from simyard.occi.model import Action, Entity, Mixin, Model, Value
from simyard.occi.validation import Checked, Update


class Verb(enum.StrEnum):
    """What somebody wants to do with an entity or a collection."""

    GET = "get"
    LIST = "list"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    ACT = "act"

    __hash__ = str.__hash__  # that of enumerations is slow, and every request looks rights up


Check = Callable[[], None]
"""Raises OcciError when an entity is not as a client expects it."""


class Backend(Protocol):
    """Entities by path, kept in memory; changes go to where the objects live.

    What is sync answers from memory. What is async may wait for others: every such wait has a deadline of its own, and
    ends in OcciError 503 (nothing was done) or 504 (it may have been). The handlers call :meth:`may` before anything
    else; a change need not check again but for what it touches beside its own entities.
    """

    @property
    def version(self) -> int:
        """Grows with every change of anything visible, values of attributes included."""

    def model(self) -> Model:
        """All categories; the same object, with the same ``version``, until one of them changes."""

    def entity(self, path: str) -> Entity | None:
        """The entity at a path such as ``/compute/<id>``."""

    def paths(self, location: str) -> tuple[str, ...]:
        """The paths of the members of a kind's or mixin's location, or of all entities below a path, by creation.

        A snapshot, and the same object as long as no member comes or goes: listings that were made of it are kept.
        """

    def entities(self, paths: Iterable[str]) -> Iterable[Entity]:
        """The entities at these paths; those that are gone are left out."""

    def part_key(self, path: str) -> Hashable:
        """Another one (None: the entity is gone) whenever the entity's rendering is another, the model aside."""

    def age_seconds(self, path: str) -> float | None:
        """How old the oldest of the values is that an entity shows; None if it shows none that ages."""

    def stays(self, path: str) -> bool:
        """Whether no client can delete what is there: it goes with another entity, or is its vendor's."""

    def visible(self) -> AbstractAsyncContextManager[None]:
        """What is written in the block is visible on every replica of this frontend when the block ends."""

    async def find(self, path: str) -> Entity | None:
        """The entity at a path; asks the API server before it says that there is none."""

    async def may(self, identity: Identity, verb: Verb, path: str, action: str = "") -> None:
        """Return if somebody may do it to an entity, or to the members of a location (``/compute/``, ``/-/``).

        ``action``: the id of the action, for ACT.

        Raises:
            OcciError: 403, or 503 if it cannot be found out now.
        """

    async def create(self, identity: Identity, draft: Checked, *, key: str = "", exact: bool = False) -> Entity:
        """Create an entity with its inline links, all or nothing. The same ``key`` again gives the same entity again.

        ``exact``: under the id that is asked for or not at all, rather than under another if somebody has it.

        Raises:
            OcciError: it cannot be created: 400, 403, 409, 501 or 503.
        """

    async def update(
        self, identity: Identity, entity: Entity, update: Update, *, replace: bool, check: Check | None = None
    ) -> Entity:
        """Change an entity; ``replace``: it was a full update. The entity as it is then.

        ``check`` looks at the entity again before it is written, and nobody changes it between both.

        Raises:
            OcciError: it cannot be changed so, or what ``check`` raises.
        """

    async def delete(self, identity: Identity, entities: Sequence[Entity], *, key: str = "") -> None:
        """Delete entities, and their links. Those that are gone already count as deleted.

        With a ``key`` every frontend knows for a while that it was this request: see :meth:`was_deleted`.
        """

    def was_deleted(self, path: str, key: str) -> bool:
        """Whether what was at a path was deleted lately by the request of that key."""

    async def act(
        self,
        identity: Identity,
        entities: Sequence[Entity],
        action: Action,
        attributes: Mapping[str, Value],
        *,
        wait: bool | None,
        key: str = "",
    ) -> Mapping[str, Value] | None:
        """Do something to every one of the entities; the result, if it gives one. The same ``key`` again does nothing.

        ``wait``: return when it is done, rather than when it is accepted; None: as it is usual for the action.
        """

    async def refresh(self, entities: Sequence[Entity], seconds: float = 1.0) -> None:
        """Ask the adapters for the newest values, all at once; give up after so long. Never raises for what fails."""

    def is_due(self, path: str) -> bool:
        """Whether service adapters that tell nothing unasked are to be asked before the entity at a path is shown."""

    async def pull(self, path: str, seconds: float = 1.0) -> None:
        """Ask these adapters for the values that they show there, for so long. Never raises for what fails."""

    async def define(self, identity: Identity, definitions: Sequence[Mixin | Action]) -> None:
        """Add user mixins, with the actions that they bring, or replace one's own."""

    async def undefine(self, identity: Identity, ids: Sequence[str]) -> None:
        """Remove user mixins from the model and from all entities."""

    async def associate(self, identity: Identity, mixin: Mixin, paths: Sequence[str], *, replace: bool) -> None:
        """Give a mixin to entities; ``replace``: and take it from all others."""

    async def dissociate(self, identity: Identity, mixin: Mixin, paths: Sequence[str]) -> None:
        """Take a mixin from entities."""
