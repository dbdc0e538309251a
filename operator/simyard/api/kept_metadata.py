# SPDX-License-Identifier: Apache-2.0
"""Reduction of an object's metadata to the part that the operator keeps in memory.

The API server accepts 256 KiB of annotations on an object, and more data in labels, owners and finalizers. The operator
needs few of these entries. It removes the other entries from the objects that it keeps, so that users cannot fill its
memory.
"""

from __future__ import annotations

from simyard.api import names
from simyard.api.base import Json

MAX_TEXT_CHARACTERS = 512
"""Maximum length of a text that is kept. The operator itself writes names, versions and times, which are shorter."""
_SCALARS = ("name", "namespace", "uid", "generation", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_TEXTS = {
    "labels": (names.LABEL_POOL, names.LABEL_SERVICE, names.LABEL_SITE, names.LABEL_REVISION),
    "annotations": (
        names.ANNOTATION_REQUESTED,
        names.ANNOTATION_VERSION,
        names.ANNOTATION_LICENCE,
        names.ANNOTATION_LEAVES,
        names.ANNOTATION_INLINE_RESULT,
    ),
}


def select_metadata(metadata: Json) -> Json:
    """Return the metadata with only the operator's labels, annotations and finalizer, and the controlling owner."""
    kept: Json = {name: metadata[name] for name in _SCALARS if name in metadata}
    for field, known in _TEXTS.items():
        texts = metadata.get(field) or {}
        found = ((name, texts[name]) for name in known if name in texts)
        kept[field] = {name: text for name, text in found if len(text) <= MAX_TEXT_CHARACTERS}
    if names.FINALIZER in (metadata.get("finalizers") or ()):
        kept["finalizers"] = [names.FINALIZER]
    if owners := [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]:
        kept["ownerReferences"] = owners
    return kept


def strip_metadata(raw: Json) -> Json:
    """Return the object with the metadata that :func:`select_metadata` selects."""
    return {**raw, "metadata": select_metadata(raw["metadata"])}
