"""Which requests have changed an object already, noted in the object itself. Pure.

A request may arrive at two frontends: with the change goes a note of its key, so that whoever comes second sees it.
Only the newest are kept: a request is delivered again within seconds, not days.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simyard.api.base import Json, Metadata
from simyard.api.names import ANNOTATION_OCCI_DONE
from simyard.frontend.identifiers import digest

MOST_KEPT = 100
MOST_OF_ONE = 15_000
"""Of one change, however many keys it has: all annotations of an object together may have 256 KiB."""


def without(metadata: Metadata, keys: Iterable[str]) -> list[str]:
    """Those of the keys that are not noted."""
    known = set(metadata.annotations.get(ANNOTATION_OCCI_DONE, "").split())
    return [key for key in keys if _note(key) not in known]


def noting(change: Json, metadata: Metadata, keys: Sequence[str]) -> Json:
    """A merge patch that notes the keys too."""
    known = metadata.annotations.get(ANNOTATION_OCCI_DONE, "").split()
    most = min(max(MOST_KEPT, len(keys)), MOST_OF_ONE)
    notes = " ".join([*known, *map(_note, keys)][-most:])
    changed = change.get("metadata", {})
    annotations = {**changed.get("annotations", {}), ANNOTATION_OCCI_DONE: notes}
    return {**change, "metadata": {**changed, "annotations": annotations}}


def _note(key: str) -> str:
    return digest(key)[:12]
