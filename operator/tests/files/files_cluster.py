# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory, for the tests of the sweep."""

from dataclasses import dataclass, field

CLUSTER = "cluster"


@dataclass
class Cluster:
    """Namespaces and the files that their objects name, in place of an API server."""

    namespaces: dict[str, str] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    stale: dict[str, str] | None = None
    uid: str = CLUSTER

    def is_watched(self, namespace: str) -> bool:
        return namespace != "unwatched"

    async def identify_cluster(self) -> str:
        return self.uid

    async def list_namespaces(self) -> dict[str, str]:
        found, self.stale = self.namespaces if self.stale is None else self.stale, None
        return dict(found)

    async def find_uid(self, namespace: str) -> str:
        return next((uid for uid, name in self.namespaces.items() if name == namespace), "")

    async def find_named_files(self, namespace: str) -> set[str]:
        return set(self.named)
