# SPDX-License-Identifier: Apache-2.0
"""Makes OCCI ids, and the names of the Kubernetes objects with these ids. Pure.

The frontend computes the name of an object from the id of its entity. Two clients can therefore not get the same id
from two frontends, and a frontend needs only one request to find an entity that it does not know yet.
"""

from __future__ import annotations

import hashlib
import re
import uuid

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,252}")
_KEYS = uuid.UUID("6ba7b814-9dad-11d1-80b4-00c04fd430c8")


def is_id(text: str) -> bool:
    """Return true if a text can be an id in a path."""
    return _SAFE.fullmatch(text) is not None


def make_id(key: str = "") -> str:
    """Return a new id; the same ``key`` always gives the same id."""
    return str(uuid.uuid5(_KEYS, key) if key else uuid.uuid4())


def make_object_name(entity_id: str) -> str:
    """Return the name of the Kubernetes object of an entity that is created over OCCI."""
    return f"occi-{compute_digest(entity_id)}"


def compute_digest(text: str) -> str:
    """Return 20 hexadecimal digits of a hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]
