# SPDX-License-Identifier: Apache-2.0
"""Stores user mixins as OcciMixins, each with the list of its members."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence

from simyard.api.base import Json
from simyard.api.names import OCCI_MIXINS
from simyard.api.occi import MAX_MIXIN_MEMBERS, OcciMixin
from simyard.frontend.access import Access, Permission
from simyard.frontend.changes.storing import MAX_ATTEMPTS, ObjectStore, back_off, translate_api_error
from simyard.frontend.changes.text_limits import check_definition
from simyard.frontend.entities.identifiers import compute_digest
from simyard.frontend.entities.memberships import get_mixin_id
from simyard.frontend.entities.view import View
from simyard.frontend.exchange import Identity
from simyard.occi.conflicts import ConflictCause, OcciConflictError
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.model import Action, AttributeSpec, Mixin
from simyard_sites.kubernetes.errors import AlreadyExistsError, ConflictError

log = logging.getLogger(__name__)

REPLACE_MIXIN = Permission("patch", OCCI_MIXINS)
MAX_LOCATION_CLAIMS = 6
"""Maximum number of attempts to claim a location while other mixins claim it at the same moment."""
MAX_APPENDED_MEMBERS = 500
"""Maximum number of members that the frontend appends one by one, which causes no conflict with other writers.

For more members, it writes the whole list.
"""

_UNSAFE = re.compile(r"[^a-z0-9]+")


class Mixins:
    """A writer of user mixins and their members. Its caller has checked the rights."""

    def __init__(self, view: View, store: ObjectStore, access: Access) -> None:
        self._view = view
        self._store = store
        self._access = access

    async def define(self, identity: Identity, definitions: Sequence[Mixin | Action]) -> None:
        """Add mixins with their actions; replace existing mixins if the user has the right to change them.

        Raises:
            OcciError: 403, a mixin exists and the user may not change it.
        """
        actions = {item.id: item for item in definitions if isinstance(item, Action)}
        mixins = [item for item in definitions if isinstance(item, Mixin)]
        if any(self._view.model.find_mixin(mixin.id) is not None for mixin in mixins):
            await self._access.check(identity, REPLACE_MIXIN)
        for mixin in mixins:
            check_definition(mixin)
        for mixin in mixins:
            await self._define(identity, mixin, actions)

    async def undefine(self, ids: Iterable[str]) -> None:
        """Remove mixins with their actions and attributes."""
        for category_id in ids:
            found = self._view.model.find_category(category_id)
            if isinstance(found, Mixin) and (stored := await self._find(found.id)) is not None:
                await self._store.delete(self._view.mixins, stored)

    async def associate(self, mixin: Mixin, paths: Sequence[str], *, replace: bool) -> None:
        """Add a mixin to entities; with ``replace``, remove it from all other entities."""
        if not mixin.user:
            raise OcciError(403, f"{mixin.id} is a mixin of the provider: clients can neither add nor remove it")
        if replace:
            await self._rewrite(mixin.id, lambda _: list(dict.fromkeys(paths)))
        else:
            await self._add_members(mixin.id, paths)

    async def dissociate(self, mixin: Mixin, paths: Sequence[str]) -> None:
        """Remove a mixin from entities."""
        if not mixin.user:
            raise OcciError(403, f"{mixin.id} is a mixin of the provider: clients can neither add nor remove it")
        await self._remove_members(mixin.id, paths)

    async def add_to_entity(self, ids: Iterable[str], path: str) -> None:
        """Add several mixins to an entity."""
        for mixin in ids:
            await self._add_members(mixin, [path])

    async def remove_from_entity(self, ids: Iterable[str], path: str) -> None:
        """Remove several mixins from an entity."""
        for mixin in ids:
            await self._remove_members(mixin, [path])

    async def forget_entities(self, paths: Iterable[str]) -> None:
        """Remove deleted entities from the members of all mixins.

        The method raises no error: the entries that remain have no effect, because listings omit deleted entities.
        """
        members: dict[str, list[str]] = {}
        for path in paths:
            for mixin in self._view.list_mixins(path):
                members.setdefault(mixin, []).append(path)
        for mixin, left in members.items():
            try:
                await self._remove_members(mixin, left)
            except OcciError as error:
                log.warning("mixin %s still lists entities that are gone: %s", mixin, error)

    async def _define(self, identity: Identity, mixin: Mixin, actions: dict[str, Action]) -> None:
        brought = [actions.get(name) or self._view.model.find_action(name) for name in mixin.actions]
        spec: Json = {
            "scheme": mixin.scheme,
            "term": mixin.term,
            "title": mixin.title,
            "location": mixin.location,
            "depends": list(mixin.depends),
            "applies": list(mixin.applies),
            "attributes": list(map(_attribute, mixin.attributes)),
            "actions": [_action(action) for action in brought if action is not None],
        }
        body = {
            "apiVersion": OCCI_MIXINS.api_version,
            "kind": OCCI_MIXINS.kind,
            "metadata": {"name": make_mixin_name(mixin.id), "namespace": self._view.namespace},
            "spec": {**spec, "members": []},
        }
        other = ""
        for attempt in range(MAX_LOCATION_CLAIMS):
            try:
                made = await self._store.create(self._view.mixins, body)
            except AlreadyExistsError:
                return await self._redefine(identity, mixin, spec)  # another frontend may just have created it
            if not (other := await self._other_at(made)):
                return
            # Two mixins may have found each other: after different pauses, only the first one gets the location.
            await self._store.delete(self._view.mixins, made)
            await back_off(attempt)
        raise _location_taken(mixin, other)

    async def _redefine(self, identity: Identity, mixin: Mixin, spec: Json) -> None:
        await self._access.check(identity, REPLACE_MIXIN)
        if (stored := await self._find(mixin.id)) is None:
            raise OcciConflictError(
                ConflictCause.CONCURRENT_CHANGE, f"{mixin.id} is being removed at this moment; try again"
            )
        before = stored.spec.location
        try:
            changed = await self._store.merge(self._view.mixins, stored, {"spec": spec})
            if before == changed.spec.location or not (other := await self._other_at(changed)):
                return
            await self._store.merge(self._view.mixins, changed, {"spec": {"location": before}})
        except ConflictError as error:
            raise translate_api_error(error, mixin.id) from None
        raise _location_taken(mixin, other)

    async def _other_at(self, mixin: OcciMixin) -> str:
        """Return the id of another stored mixin with the same location; "" if there is none."""
        for other in await self._store.list(self._view.mixins, self._view.namespace):
            if other.metadata.name != mixin.metadata.name and other.spec.location == mixin.spec.location:
                return get_mixin_id(other)
        return ""

    async def _add_members(self, mixin: str, paths: Sequence[str]) -> None:
        """Append members. Other frontends can append members to the same mixin at the same time."""
        for attempt in range(MAX_ATTEMPTS):
            stored = await self._require(mixin)
            members = set(stored.spec.members)
            new = [path for path in dict.fromkeys(paths) if path not in members]
            if not new:
                return
            if len(new) > MAX_APPENDED_MEMBERS or len(members) + len(new) > MAX_MIXIN_MEMBERS:
                await self._rewrite(mixin, lambda known: list(dict.fromkeys([*self._existing(known), *paths])))
                return
            patch = [{"op": "add", "path": "/spec/members/-", "value": path} for path in new]
            if await self._store.patch(self._view.mixins, stored, patch) is not None:
                return
            await back_off(attempt)  # another request has added one of the members
            await self._store.get(self._view.mixins, stored.metadata.name, self._view.namespace)
        raise OcciError(503, f"{mixin}: too many other clients change its members at this moment; try again")

    async def _remove_members(self, mixin: str, paths: Sequence[str]) -> None:
        gone = set(paths)
        await self._rewrite(mixin, lambda known: [path for path in known if path not in gone])

    async def _rewrite(self, mixin: str, change: Callable[[list[str]], list[str]]) -> None:
        """Replace the members; after a conflict, compute the change again from the present members."""

        def rewritten(stored: OcciMixin) -> Json | None:
            members = change(stored.spec.members)
            if len(members) > MAX_MIXIN_MEMBERS:
                raise OcciConflictError(
                    ConflictCause.TOO_MANY_MEMBERS,
                    f"{mixin}: the mixin would have {len(members)} members; at most {MAX_MIXIN_MEMBERS} are possible",
                )
            return None if members == stored.spec.members else {"spec": {"members": members}}

        await self._store.change(self._view.mixins, await self._require(mixin), rewritten)

    async def _require(self, mixin: str) -> OcciMixin:
        if (stored := await self._find(mixin)) is None:
            raise OcciError(404, f"the mixin {quote_input(mixin)} does not exist any more")
        return stored

    async def _find(self, mixin: str) -> OcciMixin | None:
        """Return the OcciMixin with an id; None if there is none. Users of kubectl can give it any name."""
        name, namespace = make_mixin_name(mixin), self._view.namespace
        stored = self._view.mixins.get(namespace, name)
        if stored is not None:
            return stored
        named = next((item for item in self._view.mixins if get_mixin_id(item) == mixin), None)
        return named or await self._store.get(self._view.mixins, name, namespace)

    def _existing(self, paths: Iterable[str]) -> list[str]:
        return [path for path in paths if self._view.shows(path)]


def make_mixin_name(category_id: str) -> str:
    """Return the name that every frontend gives to the OcciMixin with this id."""
    term = _UNSAFE.sub("-", category_id.rpartition("#")[2].lower()).strip("-")[:40].strip("-")
    return f"{term or 'mixin'}-{compute_digest(category_id)}"


def _location_taken(mixin: Mixin, other: str) -> OcciError:
    return OcciConflictError(
        ConflictCause.LOCATION_IN_USE, f"Category: the location {quote_input(mixin.location)} is taken by {other}"
    )


def _attribute(spec: AttributeSpec) -> Json:
    default = {} if spec.default is None else {"default": spec.default}
    return {
        "name": spec.name,
        "type": spec.type.value,
        "mutable": spec.mutable,
        "required": spec.required,
        "pattern": spec.pattern,
        "description": spec.description,
        **default,
    }


def _action(action: Action) -> Json:
    return {
        "scheme": action.scheme,
        "term": action.term,
        "title": action.title,
        "attributes": list(map(_attribute, action.attributes)),
    }
