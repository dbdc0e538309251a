"""OCCI ids, and the names of the Kubernetes objects that have them. Pure.

The name of what was made over OCCI follows from its id. So two clients cannot get the same id from two frontends, and a
frontend that has not heard of an entity yet finds it with one question.
"""

from __future__ import annotations

import hashlib
import re
import uuid

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,252}")
_KEYS = uuid.UUID("6ba7b814-9dad-11d1-80b4-00c04fd430c8")


def is_id(text: str) -> bool:
    """Whether it can stand in a path as an id."""
    return _SAFE.fullmatch(text) is not None


def new_id(key: str = "") -> str:
    """A new id; the same one for the same ``key``."""
    return str(uuid.uuid5(_KEYS, key) if key else uuid.uuid4())


def object_name(entity_id: str) -> str:
    """The name of the object of an entity that was made over OCCI."""
    return f"occi-{digest(entity_id)}"


def digest(text: str) -> str:
    """20 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]
