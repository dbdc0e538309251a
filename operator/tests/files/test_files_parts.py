# SPDX-License-Identifier: Apache-2.0
"""Uploads in parts that are interrupted, continued, completed twice or aborted, at a real S3 server."""

import asyncio
import os
from pathlib import Path

import pytest
from files_world import FilesWorld

from simyard.files.keys import FileOrigin
from simyard.files.uploads import Upload
from simyard_adapter.digests import PART_BYTES, FileDigest, digest_file
from simyard_adapter.transfers import TransferError, Transfers
from simyard_adapter.uploads import GetOffer, UploadOffer, upload_file

PARTS = 3


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    """Return a file of three parts whose contents differ."""
    path = tmp_path / "mesh"
    with path.open("wb") as file:
        for number in range(PARTS):
            file.seek(number * PART_BYTES)
            file.write(os.urandom(1000))
    return path


async def request_offer(world: FilesWorld, digest: FileDigest, upload_id: str = "", first: int = 1) -> UploadOffer:
    upload = Upload(digest.address, digest.size, digest.parts, owner="ann")
    return await world.catalog.offer_upload(
        world.namespace, FileOrigin.USER, upload, upload_id=upload_id, first_part=first
    )


def make_get_offer(world: FilesWorld, digest: FileDigest) -> GetOffer:
    """Return a function for other threads that asks the catalog."""
    loop = asyncio.get_running_loop()

    def get_offer(upload_id: str, first: int) -> UploadOffer:
        return asyncio.run_coroutine_threadsafe(request_offer(world, digest, upload_id, first), loop).result()

    return get_offer


async def count_uploads(world: FilesWorld) -> int:
    return len([item async for item in world.store.list_uploads(f"{world.namespace}/")])


async def test_an_interrupted_upload_continues_and_sends_only_what_is_missing(world: FilesWorld, mesh: Path) -> None:
    digest = digest_file(mesh)
    offer = await request_offer(world, digest)
    Transfers().upload(offer.requests[1], mesh, lambda _: None)

    again = await request_offer(world, digest)
    assert again.upload_id == offer.upload_id
    assert list(again.etags) == [2]
    assert [request.offset // PART_BYTES for request in again.requests] == [0, 2]
    moved: list[int] = []
    await asyncio.to_thread(upload_file, Transfers(), mesh, digest, make_get_offer(world, digest), moved.append)
    assert sum(moved) == digest.size
    assert max(moved) == PART_BYTES  # the part that was there already
    assert (await request_offer(world, digest)).present
    assert await count_uploads(world) == 0


async def test_another_user_begins_an_own_upload_of_the_same_file(world: FilesWorld, mesh: Path) -> None:
    digest = digest_file(mesh)
    first = await request_offer(world, digest)
    upload = Upload(digest.address, digest.size, digest.parts, owner="bob")
    second = await world.catalog.offer_upload(world.namespace, FileOrigin.USER, upload)
    assert first.upload_id != second.upload_id


async def test_a_complete_request_whose_answer_was_lost_is_a_success(world: FilesWorld, mesh: Path) -> None:
    digest = digest_file(mesh)
    offer = await request_offer(world, digest)
    transfers = Transfers()
    etags = {
        number: transfers.upload(request, mesh, lambda _: None) for number, request in enumerate(offer.requests, 1)
    }
    sent = await request_offer(world, digest)
    assert (sent.requests, dict(sent.etags)) == ((), etags)
    assert sent.complete is not None
    transfers.complete(sent.complete, digest, etags)
    offers = iter([sent, await request_offer(world, digest)])
    moved: list[int] = []
    upload_file(transfers, mesh, digest, lambda *_: next(offers), moved.append)
    assert sum(moved) == digest.size


async def test_an_upload_that_was_aborted_begins_again(world: FilesWorld, mesh: Path) -> None:
    digest = digest_file(mesh)
    offer = await request_offer(world, digest)
    Transfers().upload(offer.requests[0], mesh, lambda _: None)
    stale = await request_offer(world, digest)
    await world.store.abort_upload(f"{world.namespace}/in/{digest.address}", offer.upload_id)
    get_offer = make_get_offer(world, digest)
    offers = iter([stale])
    moved: list[int] = []
    await asyncio.to_thread(
        upload_file, Transfers(), mesh, digest, lambda *given: next(offers, None) or get_offer(*given), moved.append
    )
    assert sum(moved) == digest.size
    assert await world.catalog.find_file(world.namespace, digest.address) is not None


async def test_a_part_with_another_content_ends_the_upload_at_once(world: FilesWorld, mesh: Path) -> None:
    digest = digest_file(mesh)
    offer = await request_offer(world, digest)
    with mesh.open("r+b") as file:
        file.write(b"changed")
    with pytest.raises(TransferError, match="BadDigest"):
        upload_file(Transfers(), mesh, digest, lambda *_: offer, lambda _: None)


async def test_all_pages_of_open_uploads_are_listed(world: FilesWorld) -> None:
    keys = [f"{world.namespace}/in/{number}" for number in range(5)]
    for key in keys:
        await world.store.begin_upload(key, "text/plain", {})
    found = [item.key async for item in world.store.list_uploads(f"{world.namespace}/", limit=2)]
    assert found == keys
