# SPDX-License-Identifier: Apache-2.0
"""Stores the owner of a machine in a label, which Sunstone shows as a tree and every poll returns.

The module does not use separate keys of the user template, because only extended answers contain them.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from simyard_sites.base import Owner

_ROOT = "simyard"
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Ownership:
    """The labels of one CloudSite's machines; several CloudSites may share an account."""

    installation: str
    site: str

    def label(self, owner: Owner) -> str:
        """Return ``simyard/<installation>/<site>/<namespace>/<pool>/<worker>/<uid>``.

        A worker without a pool has the pool ``-``.
        """
        parts = (self.installation, self.site, owner.namespace, owner.pool or _NONE, owner.worker, owner.worker_uid)
        return "/".join((_ROOT, *(quote(part, safe="") for part in parts)))

    def read_owner(self, labels: str) -> Owner | None:
        """Return the owner that the labels of a machine name; None if it is not of this CloudSite."""
        for each in labels.split(","):
            match [unquote(part) for part in each.strip().split("/")]:
                case [root, installation, site, namespace, pool, worker, uid] if (root, installation, site) == (
                    _ROOT,
                    self.installation,
                    self.site,
                ):
                    return Owner(namespace, worker, uid, "" if pool == _NONE else pool)
        return None
