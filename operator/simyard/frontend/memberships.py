"""Which entities have which user mixins. Pure."""

from __future__ import annotations

from collections.abc import Callable

from simyard.api.occi import OcciMixin


def mixin_id(mixin: OcciMixin) -> str:
    """The id of a user mixin."""
    return mixin.spec.scheme + mixin.spec.term


def definition(mixin: OcciMixin) -> object:
    """Return all of a user mixin but its members."""
    return mixin.spec.model_copy(update={"members": []})


class Memberships:
    """Follows OcciMixins. ``exists`` says whether there is an entity at a path: members that are gone are not shown."""

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists
        self._members: dict[str, tuple[str, ...]] = {}
        self._mixins: dict[str, tuple[str, ...]] = {}
        self._shown: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        """How many entities have any."""
        return len(self._mixins)

    def of(self, path: str) -> tuple[str, ...]:
        """The ids of the mixins of an entity."""
        return self._mixins.get(path, ())

    def paths(self, mixin: str) -> tuple[str, ...]:
        """The members of a mixin that exist: the same object as long as none comes or goes."""
        shown = self._shown.get(mixin)
        if shown is None:
            shown = tuple([path for path in self._members.get(mixin, ()) if self._exists(path)])
            if mixin in self._members:
                self._shown[mixin] = shown
        return shown

    def touched(self, path: str) -> None:
        """An entity has come or gone."""
        for mixin in self.of(path):
            self._shown.pop(mixin, None)

    def changed(self, old: OcciMixin | None, new: OcciMixin | None) -> None:
        """An OcciMixin was made, changed or deleted."""
        for mixin in {mixin_id(item) for item in (old, new) if item is not None}:
            is_new = new is not None and mixin_id(new) == mixin
            members = tuple(new.spec.members) if new is not None and is_new else ()
            before = self._members.pop(mixin, ())
            if is_new:
                self._members[mixin] = members
            if members == before:
                continue
            self._shown.pop(mixin, None)
            wanted, had = set(members), set(before)
            for path in had - wanted:
                left = tuple(item for item in self.of(path) if item != mixin)
                if left:
                    self._mixins[path] = left
                else:
                    del self._mixins[path]
            for path in wanted - had:
                self._mixins[path] = (*self.of(path), mixin)
