"""Whose machine it is: a label that OpenNebula keeps, shows as a tree in Sunstone, and tells in every poll.

Own keys of the user template would not do: only the extended answers have them.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from simyard_sites.base import Owner

_ROOT = "simyard"
_NONE = "-"
_PARTS = 6


def label(installation: str, owner: Owner) -> str:
    """``simyard/<installation>/<namespace>/<pool>/<worker>/<uid>``; a worker that stands alone has the pool ``-``."""
    parts = (installation, owner.namespace, owner.pool or _NONE, owner.worker, owner.worker_uid)
    return "/".join((_ROOT, *(quote(part, safe="") for part in parts)))


def owner_of(labels: str, installation: str) -> Owner | None:
    """The owner that the labels of a machine name; None where they name none of this installation."""
    for each in labels.split(","):
        parts = each.strip().split("/")
        if len(parts) == _PARTS and parts[0] == _ROOT and unquote(parts[1]) == installation:
            namespace, pool, worker, uid = (unquote(part) for part in parts[2:])
            return Owner(namespace, worker, uid, "" if pool == _NONE else pool)
    return None
