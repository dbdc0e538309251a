# SPDX-License-Identifier: Apache-2.0
"""Uploads to a server that is killed or full, of a file that changes, and for a namespace that is deleted meanwhile."""

import asyncio
import secrets
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from files_world import FilesWorld, ignore, make, offered

from simyard.files.access import StoreAccess
from simyard.files.catalog import FileCatalog
from simyard.files.store import ObjectStore
from simyard_adapter.digests import PART_BYTES, digest_file
from simyard_adapter.transfers import StalledError, TransferError, Transfers
from simyard_adapter.uploads import upload_file
from simyard_dev.file_store import FileStore

MIB = 2**20


def list_stored(world: FilesWorld) -> list[Path]:
    """Return the content of the server's disk: all files that are not empty, also those that it hides."""
    return [path for path in world.server.objects.rglob("*") if path.is_file() and path.stat().st_size]


@pytest.fixture
def small_server(simyard_directory: Path) -> Iterator[FileStore]:
    """A server with a disk of 16 MiB."""
    server = FileStore(simyard_directory / f"files-small-{secrets.token_hex(4)}")
    server.objects.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", server.objects]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        server.start()
        yield server
    finally:
        server.stop(0)
        subprocess.run(["umount", "--lazy", server.objects], check=True)


@pytest.fixture
async def small_world(small_server: FileStore) -> AsyncIterator[FilesWorld]:
    access = StoreAccess.from_directory(small_server.access)
    async with ObjectStore(access) as store:
        yield FilesWorld(small_server, access, store, FileCatalog(access, store), "small")


async def test_an_upload_to_a_full_disk_waits_for_space_and_then_succeeds(
    small_world: FilesWorld, tmp_path: Path
) -> None:
    digest = make(tmp_path / "mesh", 8 * MIB)
    offer = await offered(small_world, digest)
    filler = small_world.server.objects / "filler"
    filler.write_bytes(bytes(12 * MIB))
    attempts: list[float] = []

    def free_space_later(seconds: float) -> None:
        attempts.append(seconds)
        assert list_stored(small_world) == [filler], "no part of the file is left by an attempt"
        if len(attempts) == 3:
            filler.unlink()

    transfers = Transfers(sleep=free_space_later)
    await asyncio.to_thread(upload_file, transfers, tmp_path / "mesh", digest, lambda *_: offer, ignore)
    assert len(attempts) == 3
    assert await small_world.catalog.find_file(small_world.namespace, digest.address) is not None


async def test_an_upload_to_a_disk_that_stays_full_stalls(small_world: FilesWorld, tmp_path: Path) -> None:
    digest = make(tmp_path / "mesh", 20 * MIB)
    offer = await offered(small_world, digest)
    transfers = Transfers(sleep=lambda _: None, stall_seconds=0)
    with pytest.raises(StalledError, match="the upload made no progress"):
        await asyncio.to_thread(upload_file, transfers, tmp_path / "mesh", digest, lambda *_: offer, ignore)
    assert list_stored(small_world) == []
    small = make(tmp_path / "deck", MIB)
    offer = await offered(small_world, small)
    await asyncio.to_thread(upload_file, transfers, tmp_path / "deck", small, lambda *_: offer, ignore)
    assert await small_world.catalog.find_file(small_world.namespace, small.address) is not None


async def test_a_file_that_changes_before_it_is_sent_is_refused_at_once(world: FilesWorld, tmp_path: Path) -> None:
    digest = make(tmp_path / "mesh", MIB)
    offer = await offered(world, digest)
    make(tmp_path / "mesh", MIB)
    with pytest.raises(TransferError, match="BadDigest"):
        await asyncio.to_thread(upload_file, Transfers(), tmp_path / "mesh", digest, lambda *_: offer, ignore)
    assert await world.catalog.find_file(world.namespace, digest.address) is None
    assert [item.key async for item in world.store.list_objects(f"{world.namespace}/in/")] == []


async def test_a_store_killed_between_the_parts_of_a_file_gets_all_of_it(world: FilesWorld, tmp_path: Path) -> None:
    digest = make(tmp_path / "mesh", PART_BYTES + 8 * MIB)
    offer = await offered(world, digest)
    before = set(list_stored(world))
    restarts: list[threading.Thread] = []
    moved = 0

    def kill_once(size: int) -> None:
        nonlocal moved
        moved += size
        if moved > 16 * MIB and not restarts:
            restarts.append(threading.Thread(target=world.server.start))
            world.server.stop(0)
            restarts[0].start()

    await asyncio.to_thread(upload_file, Transfers(), tmp_path / "mesh", digest, lambda *_: offer, kill_once)
    restarts[0].join()
    found = await world.catalog.sign_download(world.namespace, digest.address)
    assert found is not None
    await asyncio.to_thread(Transfers().download, lambda: found[1], tmp_path / "back", digest.address, ignore)
    assert digest_file(tmp_path / "back") == digest
    left = set(list_stored(world)) - before
    assert [path.stat().st_size for path in left] == [digest.size], "the killed server left nothing half-made"
