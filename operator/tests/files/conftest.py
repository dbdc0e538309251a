# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a real S3 server, and a catalog at it."""

import secrets
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from simyard.files.access import StoreAccess
from simyard.files.catalog import FileCatalog
from simyard.files.store import ObjectStore
from simyard.files.sweep import INSTALLATION_KEY, FileSweep, SweepSettings
from simyard_dev.file_store import FileStore

sys.path.insert(0, str(Path(__file__).parent))

from files_cluster import RETENTION, Cluster, Swept
from files_world import FilesWorld


@pytest.fixture(scope="session")
def file_store(simyard_directory: Path) -> Iterator[FileStore]:
    server = FileStore(simyard_directory / f"files-{secrets.token_hex(4)}")
    server.start()
    yield server
    server.stop(0)


@pytest.fixture
async def world(file_store: FileStore) -> AsyncIterator[FilesWorld]:
    access = StoreAccess.from_directory(file_store.access)
    async with ObjectStore(access) as store:
        yield FilesWorld(file_store, access, store, FileCatalog(access, store), f"uid-{secrets.token_hex(8)}")


@pytest.fixture
async def swept(world: FilesWorld, tmp_path: Path) -> AsyncIterator[Swept]:
    uid = str(uuid.uuid4())
    cluster = Cluster({uid: "team"})
    await world.store.delete_object(INSTALLATION_KEY)
    sweep = FileSweep(world.store, cluster, SweepSettings(RETENTION))
    yield Swept(world, cluster, uid, sweep, tmp_path)
    async for item in world.store.list_objects(f"{uid}/"):
        await world.store.delete_object(item.key)
