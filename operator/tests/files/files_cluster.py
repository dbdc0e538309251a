# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory, and a namespace that is swept, for the tests of the sweep."""

import os
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from files_world import FilesWorld

from simyard.files.keys import FileOrigin
from simyard.files.study_files import StudyRows
from simyard.files.sweep import FileSweep
from simyard.files.uploads import Upload
from simyard_adapter.digests import digest_file
from simyard_adapter.transfers import Transfers

CLUSTER = "cluster"
RETENTION = timedelta(days=30)


@dataclass
class Cluster:
    """Namespaces and the files that their objects name, in place of an API server."""

    namespaces: dict[str, str] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    studies: dict[str, StudyRows] = field(default_factory=dict)
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

    async def list_studies(self, namespace: str) -> dict[str, StudyRows]:
        return dict(self.studies)

    async def find_named_files(self, namespace: str) -> set[str]:
        return set(self.named)


@dataclass
class Swept:
    """A namespace at a real store, and the sweep."""

    world: FilesWorld
    cluster: Cluster
    uid: str
    sweep: FileSweep
    folder: Path

    async def upload(self, text: str, origin: FileOrigin = FileOrigin.USER, owner: str = "ann") -> str:
        path = self.folder / "file"
        path.write_text(text)
        digest = digest_file(path)
        upload = Upload(digest.address, digest.size, owner=owner)
        [request] = (await self.world.catalog.offer_upload(self.uid, origin, upload)).requests
        Transfers().upload(request, path, lambda _: None)
        return digest.address

    def pass_time(self, age: timedelta) -> None:
        """Make all objects of the namespace older; the objects of this server are files."""
        bucket = self.world.server.objects / self.world.access.bucket
        for path in (*(bucket / self.uid).rglob("*"), *(bucket / ".sgwtmp").rglob("*")):
            changed = path.stat().st_mtime - age.total_seconds()
            os.utime(path, (changed, changed))

    async def list_keys(self, prefix: str = "") -> list[str]:
        return [item.key async for item in self.world.store.list_objects(f"{self.uid}/{prefix}")]

    async def is_there(self, address: str) -> bool:
        return await self.world.catalog.find_file(self.uid, address) is not None
