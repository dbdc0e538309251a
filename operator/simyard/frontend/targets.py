"""What a path names. Pure.

Nobody changes targets; they are not frozen because every request makes one, and that would cost three times as much.
"""

from __future__ import annotations

from dataclasses import dataclass

from simyard.occi.model import Kind, Mixin, Model

DISCOVERY_PATH = "/-/"
DISCOVERY = frozenset({DISCOVERY_PATH, "/-", "/.well-known/org/ogf/occi/-/", "/.well-known/org/ogf/occi/-"})
"""The paths of the query interface (GFD.185 3.4.1)."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """The model."""


@dataclass(slots=True)
class Collection:
    """The members of a kind or a mixin, or (``category`` None) everything below a path."""

    location: str
    category: Kind | Mixin | None


@dataclass(slots=True)
class Instance:
    """One entity; ``kind`` is that of its location, None if no kind has it."""

    path: str
    kind: Kind | None


Target = Discovery | Collection | Instance
_DISCOVERY = Discovery()


def target_of(path: str, model: Model) -> Target:
    """What a path names; the final slash of a location may be missing."""
    if path in DISCOVERY:
        return _DISCOVERY
    if path.endswith("/"):
        return Collection(path, model.at(path))
    kind = model.at(location_of(path))
    if not isinstance(kind, Kind):
        category = model.at(path + "/")
        return Instance(path, None) if category is None else Collection(path + "/", category)
    return Instance(path, kind)


def location_of(path: str) -> str:
    """The location of its kind, from an entity's path: ``/compute/`` of ``/compute/<id>``."""
    return path[: path.rindex("/") + 1]
