# SPDX-License-Identifier: Apache-2.0
"""Finds the user mixins of each entity. Pure."""

from __future__ import annotations

from collections.abc import Callable

from simyard.api.occi import OcciMixin


def get_mixin_id(mixin: OcciMixin) -> str:
    """Return the id of a user mixin."""
    return mixin.spec.scheme + mixin.spec.term


def copy_definition(mixin: OcciMixin) -> object:
    """Return a user mixin without its members."""
    return mixin.spec.model_copy(update={"members": []})


class Memberships:
    """The members of the user mixins, from OcciMixins.

    ``exists`` returns true if an entity exists at a path. No listing contains a member that does not exist.
    """

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists
        self._members: dict[str, tuple[str, ...]] = {}
        self._mixins: dict[str, tuple[str, ...]] = {}
        self._shown: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        """Return the number of entities that have user mixins."""
        return len(self._mixins)

    def list_mixins(self, path: str) -> tuple[str, ...]:
        """Return the ids of the mixins of an entity."""
        return self._mixins.get(path, ())

    def list_paths(self, mixin: str) -> tuple[str, ...]:
        """Return the existing members of a mixin: the same tuple until a member is added or removed."""
        shown = self._shown.get(mixin)
        if shown is None:
            shown = tuple([path for path in self._members.get(mixin, ()) if self._exists(path)])
            if mixin in self._members:
                self._shown[mixin] = shown
        return shown

    def forget_shown(self, path: str) -> None:
        """Drop the cached member lists of the mixins of an entity, after the entity was added or removed."""
        for mixin in self.list_mixins(path):
            self._shown.pop(mixin, None)

    def apply_change(self, old: OcciMixin | None, new: OcciMixin | None) -> None:
        """Apply the creation, change or deletion of an OcciMixin."""
        for mixin in {get_mixin_id(item) for item in (old, new) if item is not None}:
            is_new = new is not None and get_mixin_id(new) == mixin
            members = tuple(new.spec.members) if new is not None and is_new else ()
            before = self._members.pop(mixin, ())
            if is_new:
                self._members[mixin] = members
            if members == before:
                continue
            self._shown.pop(mixin, None)
            wanted, had = set(members), set(before)
            for path in had - wanted:
                left = tuple(item for item in self.list_mixins(path) if item != mixin)
                if left:
                    self._mixins[path] = left
                else:
                    del self._mixins[path]
            for path in wanted - had:
                self._mixins[path] = (*self.list_mixins(path), mixin)
