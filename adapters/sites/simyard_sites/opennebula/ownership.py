"""Whose machine it is: a label that OpenNebula keeps, shows as a tree in Sunstone, and tells in every poll.

Own keys of the user template would not do: only the extended answers have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from simyard_sites.base import Owner

_ROOT = "simyard"
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Ownership:
    """What the machines of one CloudSite are marked with; several may share an account."""

    installation: str
    site: str

    def label(self, owner: Owner) -> str:
        """``simyard/<installation>/<site>/<namespace>/<pool>/<worker>/<uid>``; a worker that stands alone has the pool
        ``-``."""
        parts = (self.installation, self.site, owner.namespace, owner.pool or _NONE, owner.worker, owner.worker_uid)
        return "/".join((_ROOT, *(quote(part, safe="") for part in parts)))

    def owner_of(self, labels: str) -> Owner | None:
        """The owner that the labels of a machine name; None where they name none of this CloudSite."""
        for each in labels.split(","):
            match [unquote(part) for part in each.strip().split("/")]:
                case [root, installation, site, namespace, pool, worker, uid] if (root, installation, site) == (
                    _ROOT,
                    self.installation,
                    self.site,
                ):
                    return Owner(namespace, worker, uid, "" if pool == _NONE else pool)
        return None
