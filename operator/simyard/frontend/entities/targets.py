# SPDX-License-Identifier: Apache-2.0
"""Finds the target of a path. Pure.

No code changes a target. The classes are nevertheless not frozen, because every request creates a target, and to create
a frozen dataclass costs three times as much CPU time.
"""

from __future__ import annotations

from dataclasses import dataclass

from simyard.occi.model import Kind, Mixin, Model

DISCOVERY_PATH = "/-/"
DISCOVERY = frozenset({DISCOVERY_PATH, "/-", "/.well-known/org/ogf/occi/-/", "/.well-known/org/ogf/occi/-"})
"""The paths of the query interface (GFD.185 3.4.1)."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """The query interface, which shows the model."""


@dataclass(slots=True)
class Collection:
    """The target of a request to all members of ``category``; with None, to all entities below a path."""

    location: str
    category: Kind | Mixin | None


@dataclass(slots=True)
class Instance:
    """The target of a request to one entity; ``kind`` is the kind at its location, None if there is none."""

    path: str
    kind: Kind | None


Target = Discovery | Collection | Instance
_DISCOVERY = Discovery()


def find_target(path: str, model: Model) -> Target:
    """Return the target of a path; the final slash of a location may be missing."""
    if path in DISCOVERY:
        return _DISCOVERY
    if path.endswith("/"):
        return Collection(path, model.find_by_location(path))
    kind = model.find_by_location(parse_location(path))
    if not isinstance(kind, Kind):
        category = model.find_by_location(path + "/")
        return Instance(path, None) if category is None else Collection(path + "/", category)
    return Instance(path, kind)


def parse_location(path: str) -> str:
    """Return the location in an entity's path: ``/compute/`` for ``/compute/<id>``."""
    return path[: path.rindex("/") + 1]


def split_path(path: str) -> tuple[str, str]:
    """Return the location and the id in the path of an entity."""
    location, slash, entity_id = path.rpartition("/")
    return location + slash, entity_id
