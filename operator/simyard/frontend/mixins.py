"""User mixins: OcciMixins, whose members are the entities that have them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence

from simyard.api.base import Json
from simyard.api.names import OCCI_MIXINS
from simyard.api.occi import MOST_MEMBERS, OcciMixin
from simyard.frontend.access import Access, Question
from simyard.frontend.exchange import Identity
from simyard.frontend.identifiers import digest
from simyard.frontend.limits import check_definition
from simyard.frontend.memberships import mixin_id
from simyard.frontend.storing import ATTEMPTS, Storing, pause, refused
from simyard.frontend.view import View
from simyard.occi.errors import OcciError, shown
from simyard.occi.model import Action, AttributeSpec, Mixin
from simyard_sites.kubernetes.errors import AlreadyExistsError, ConflictError

log = logging.getLogger(__name__)

REPLACE = Question("patch", OCCI_MIXINS)
CLAIMS = 6
"""How often a location is claimed when others do so at the same moment."""
MOST_ADDED = 500
"""More new members than that are written as a whole list, fewer are appended, which nobody else's changes disturb."""

_UNSAFE = re.compile(r"[^a-z0-9]+")


class Mixins:
    """Defines user mixins, and gives them to entities. Who may was asked before."""

    def __init__(self, view: View, storing: Storing, access: Access) -> None:
        self._view = view
        self._storing = storing
        self._access = access

    async def define(self, identity: Identity, definitions: Sequence[Mixin | Action]) -> None:
        """Add mixins, or replace those that are there, which takes the right to change them; each brings its actions.

        Raises:
            OcciError: 403, one is there and may not be changed.
        """
        actions = {item.id: item for item in definitions if isinstance(item, Action)}
        mixins = [item for item in definitions if isinstance(item, Mixin)]
        if any(self._view.model.mixin(mixin.id) is not None for mixin in mixins):
            await self._access.check(identity, REPLACE)
        for mixin in mixins:
            check_definition(mixin)
        for mixin in mixins:
            await self._define(identity, mixin, actions)

    async def undefine(self, ids: Iterable[str]) -> None:
        """Remove mixins; their actions and attributes go with them."""
        for category_id in ids:
            found = self._view.model.by_id(category_id)
            if isinstance(found, Mixin) and (stored := await self._find(found.id)) is not None:
                await self._storing.delete(self._view.mixins, stored)

    async def associate(self, mixin: Mixin, paths: Sequence[str], *, replace: bool) -> None:
        """Give a mixin to entities; ``replace``: and take it from all others."""
        if not mixin.user:
            raise OcciError(403, f"{mixin.id} is the provider's: clients neither give nor take it")
        if replace:
            await self._rewrite(mixin.id, lambda _: list(dict.fromkeys(paths)))
        else:
            await self._add(mixin.id, paths)

    async def dissociate(self, mixin: Mixin, paths: Sequence[str]) -> None:
        """Take a mixin from entities."""
        if not mixin.user:
            raise OcciError(403, f"{mixin.id} is the provider's: clients neither give nor take it")
        await self._take(mixin.id, paths)

    async def give(self, ids: Iterable[str], path: str) -> None:
        """Give several mixins to an entity."""
        for mixin in ids:
            await self._add(mixin, [path])

    async def take(self, ids: Iterable[str], path: str) -> None:
        """Take several mixins from an entity."""
        for mixin in ids:
            await self._take(mixin, [path])

    async def gone(self, paths: Iterable[str]) -> None:
        """Entities do not exist any more: nothing shows them, and here they leave no trace either."""
        members: dict[str, list[str]] = {}
        for path in paths:
            for mixin in self._view.mixins_of(path):
                members.setdefault(mixin, []).append(path)
        for mixin, left in members.items():
            try:
                await self._take(mixin, left)
            except OcciError as error:
                log.warning("mixin %s still names entities that are gone: %s", mixin, error)

    async def _define(self, identity: Identity, mixin: Mixin, actions: dict[str, Action]) -> None:
        brought = [actions.get(name) or self._view.model.action(name) for name in mixin.actions]
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
            "metadata": {"name": mixin_name(mixin.id), "namespace": self._view.namespace},
            "spec": {**spec, "members": []},
        }
        other = ""
        for attempt in range(CLAIMS):
            try:
                made = await self._storing.create(self._view.mixins, body)
            except AlreadyExistsError:
                return await self._redefine(identity, mixin, spec)  # another frontend may have made it just now
            if not (other := await self._other_at(made)):
                return
            # Both may have found the other one: whoever comes alone some time later gets the location.
            await self._storing.delete(self._view.mixins, made)
            await pause(attempt)
        raise _taken(mixin, other)

    async def _redefine(self, identity: Identity, mixin: Mixin, spec: Json) -> None:
        await self._access.check(identity, REPLACE)
        if (stored := await self._find(mixin.id)) is None:
            raise OcciError(409, f"{mixin.id}: is removed at this moment; try again")
        before = stored.spec.location
        try:
            changed = await self._storing.merge(self._view.mixins, stored, {"spec": spec})
            if before == changed.spec.location or not (other := await self._other_at(changed)):
                return
            await self._storing.merge(self._view.mixins, changed, {"spec": {"location": before}})
        except ConflictError as error:
            raise refused(error, mixin.id) from None
        raise _taken(mixin, other)

    async def _other_at(self, mixin: OcciMixin) -> str:
        """The id of another mixin at the location of one that is stored, whichever frontend has made it; "": none."""
        for other in await self._storing.all(self._view.mixins, self._view.namespace):
            if other.metadata.name != mixin.metadata.name and other.spec.location == mixin.spec.location:
                return mixin_id(other)
        return ""

    async def _add(self, mixin: str, paths: Sequence[str]) -> None:
        """Append members: however many frontends append at the same time, none disturbs another."""
        for attempt in range(ATTEMPTS):
            stored = await self._found(mixin)
            members = set(stored.spec.members)
            new = [path for path in dict.fromkeys(paths) if path not in members]
            if not new:
                return
            if len(new) > MOST_ADDED or len(members) + len(new) > MOST_MEMBERS:
                await self._rewrite(mixin, lambda known: list(dict.fromkeys([*self._alive(known), *paths])))
                return
            patch = [{"op": "add", "path": "/spec/members/-", "value": path} for path in new]
            if await self._storing.patch(self._view.mixins, stored, patch) is not None:
                return
            await pause(attempt)  # somebody else has added one of them
            await self._storing.get(self._view.mixins, stored.metadata.name, self._view.namespace)
        raise OcciError(503, f"{mixin}: too many others change its members at this moment; try again")

    async def _take(self, mixin: str, paths: Sequence[str]) -> None:
        gone = set(paths)
        await self._rewrite(mixin, lambda known: [path for path in known if path not in gone])

    async def _rewrite(self, mixin: str, change: Callable[[list[str]], list[str]]) -> None:
        """Change the members, unless somebody else does so at the same time: then once more from what they are then."""

        def rewritten(stored: OcciMixin) -> Json | None:
            members = change(stored.spec.members)
            if len(members) > MOST_MEMBERS:
                raise OcciError(409, f"{mixin}: would have {len(members)} members, at most {MOST_MEMBERS} are possible")
            return None if members == stored.spec.members else {"spec": {"members": members}}

        await self._storing.change(self._view.mixins, await self._found(mixin), rewritten)

    async def _found(self, mixin: str) -> OcciMixin:
        if (stored := await self._find(mixin)) is None:
            raise OcciError(404, f"the mixin {shown(mixin)} is not there any more")
        return stored

    async def _find(self, mixin: str) -> OcciMixin | None:
        """The object of a mixin: under the name that frontends give it, or any that somebody else chose."""
        name, namespace = mixin_name(mixin), self._view.namespace
        stored = self._view.mixins.get(namespace, name)
        if stored is not None:
            return stored
        named = next((item for item in self._view.mixins if mixin_id(item) == mixin), None)
        return named or await self._storing.get(self._view.mixins, name, namespace)

    def _alive(self, paths: Iterable[str]) -> list[str]:
        return [path for path in paths if self._view.shows(path)]


def mixin_name(category_id: str) -> str:
    """The name of the OcciMixin of an id: one object for one id, whichever frontend makes it."""
    term = _UNSAFE.sub("-", category_id.rpartition("#")[2].lower()).strip("-")[:40].strip("-")
    return f"{term or 'mixin'}-{digest(category_id)}"


def _taken(mixin: Mixin, other: str) -> OcciError:
    return OcciError(409, f"Category: the location {shown(mixin.location)} is taken by {other}")


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
