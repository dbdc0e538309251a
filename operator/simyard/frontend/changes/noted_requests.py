# SPDX-License-Identifier: Apache-2.0
"""Records in an object the keys of the requests that have changed it. Pure.

One request may arrive at two frontends. The first frontend writes the idempotency key together with the change, so the
second frontend sees that the change is made. An object keeps only the newest keys, because a request is delivered again
within seconds, not days.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simyard.api.base import Json, Metadata
from simyard.api.names import ANNOTATION_OCCI_DONE
from simyard.frontend.entities.identifiers import compute_digest

MAX_ENTRIES = 100
MAX_NOTES_PER_CHANGE = 15_000
"""Maximum number of keys of one change: all annotations of an object together may have 256 KiB."""


def find_unnoted_keys(metadata: Metadata, keys: Iterable[str]) -> list[str]:
    """Return the keys that are not recorded in an object."""
    known = set(metadata.annotations.get(ANNOTATION_OCCI_DONE, "").split())
    return [key for key in keys if _note(key) not in known]


def add_notes(change: Json, metadata: Metadata, keys: Sequence[str]) -> Json:
    """Return the merge patch ``change``, extended so that it also records the keys."""
    known = metadata.annotations.get(ANNOTATION_OCCI_DONE, "").split()
    most = min(max(MAX_ENTRIES, len(keys)), MAX_NOTES_PER_CHANGE)
    notes = " ".join([*known, *map(_note, keys)][-most:])
    changed = change.get("metadata", {})
    annotations = {**changed.get("annotations", {}), ANNOTATION_OCCI_DONE: notes}
    return {**change, "metadata": {**changed, "annotations": annotations}}


def _note(key: str) -> str:
    return compute_digest(key)[:12]
