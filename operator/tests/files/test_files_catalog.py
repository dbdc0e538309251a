# SPDX-License-Identifier: Apache-2.0
"""The catalog and the transfers of the adapter at a real S3 server."""

import http.client
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from files_world import FilesWorld

from simyard.files.catalog import Upload
from simyard.files.keys import FileKey, FileOrigin
from simyard_adapter.digests import PART_BYTES, FileDigest, digest_file
from simyard_adapter.transfers import SignedRequest, TransferError, Transfers


def ignore(_: int) -> None:
    """Ignore the progress."""


def fill(path: Path, size: int, seed: bytes = b"simyard ") -> FileDigest:
    with path.open("wb") as file:
        for _ in range(size // 2**20):
            file.write(seed * (2**20 // len(seed)))
        file.write(seed * (size % 2**20 // len(seed)))
    return digest_file(path)


def want(digest: FileDigest) -> Upload:
    return Upload(digest.address, digest.size, digest.parts if digest.in_parts else (), "text/plain", "a.inp", "ann")


def send(request: SignedRequest, body: bytes) -> int:
    parts = urlsplit(request.url)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request(request.method, f"{parts.path}?{parts.query}", body, dict(request.headers))
    return connection.getresponse().status


async def test_a_small_file_is_uploaded_found_and_downloaded(world: FilesWorld, tmp_path: Path) -> None:
    digest = fill(tmp_path / "deck.inp", 50_000)
    offer = await world.catalog.offer_upload(world.namespace, FileOrigin.USER, want(digest))
    [request] = offer.requests
    Transfers().upload(request, tmp_path / "deck.inp", ignore)

    found = await world.catalog.sign_download(world.namespace, digest.address)
    assert found is not None
    record, download = found
    assert (record.size, record.name, record.owner, record.media_type) == (digest.size, "a.inp", "ann", "text/plain")
    Transfers().download(lambda: download, tmp_path / "back", digest.address, ignore)
    assert (tmp_path / "back").read_bytes() == (tmp_path / "deck.inp").read_bytes()
    assert (await world.catalog.offer_upload(world.namespace, FileOrigin.USER, want(digest))).present


async def test_a_file_in_parts_is_verified_by_the_store(world: FilesWorld, tmp_path: Path) -> None:
    path = tmp_path / "mesh"
    digest = fill(path, PART_BYTES + 2**20)
    offer = await world.catalog.offer_upload(world.namespace, FileOrigin.WORKER, want(digest))
    transfers = Transfers()
    etags = {number: transfers.upload(request, path, ignore) for number, request in enumerate(offer.requests, 1)}
    assert offer.complete is not None
    wrong = {1: etags[2], 2: etags[1]}
    with pytest.raises(TransferError):
        transfers.complete(offer.complete, digest, wrong)
    transfers.complete(offer.complete, digest, etags)

    found = await world.catalog.sign_download(world.namespace, digest.address)
    assert found is not None
    moved: list[int] = []
    transfers.download(lambda: found[1], tmp_path / "back", digest.address, moved.append)
    assert sum(moved) == digest.size
    assert await world.store.list_uploads() == []


async def test_the_store_refuses_another_content_another_size_and_a_missing_header(
    world: FilesWorld, tmp_path: Path
) -> None:
    digest = fill(tmp_path / "file", 800)
    content = (tmp_path / "file").read_bytes()
    [request] = (await world.catalog.offer_upload(world.namespace, FileOrigin.USER, want(digest))).requests
    assert send(request, content.replace(b"simyard", b"damaged")) == 400
    without = {name: value for name, value in request.headers.items() if name != "x-amz-checksum-sha256"}
    assert send(replace(request, headers=without), content) == 403
    longer = {**request.headers, "content-length": "808"}
    assert send(replace(request, headers=longer), content + b"longer!!") == 403
    assert await world.catalog.find_file(world.namespace, digest.address) is None
    assert send(request, content) == 200
    assert send(request, content) == 412


async def test_a_namespace_does_not_see_the_files_of_another(world: FilesWorld, tmp_path: Path) -> None:
    digest = fill(tmp_path / "file", 80)
    [request] = (await world.catalog.offer_upload(world.namespace, FileOrigin.USER, want(digest))).requests
    Transfers().upload(request, tmp_path / "file", ignore)
    assert await world.catalog.find_file(world.namespace + "x", digest.address) is None
    assert await world.catalog.list_files(world.namespace + "x", 10) == ([], "")
    assert [item.address for item in (await world.catalog.list_files(world.namespace, 10))[0]] == [digest.address]
    moved = request.url.replace(world.namespace, world.namespace + "x")
    assert send(replace(request, url=moved), (tmp_path / "file").read_bytes()) == 403


async def test_a_deleted_file_is_gone(world: FilesWorld, tmp_path: Path) -> None:
    digest = fill(tmp_path / "file", 160)
    [request] = (await world.catalog.offer_upload(world.namespace, FileOrigin.USER, want(digest))).requests
    Transfers().upload(request, tmp_path / "file", ignore)
    assert await world.catalog.delete_file(world.namespace, digest.address)
    assert not await world.catalog.delete_file(world.namespace, digest.address)
    assert [item async for item in world.store.list_objects(f"{world.namespace}/")] == []


async def test_pages_of_a_list_follow_each_other(world: FilesWorld, tmp_path: Path) -> None:
    addresses = []
    for number in range(5):
        (tmp_path / "file").write_text(str(number))
        digest = digest_file(tmp_path / "file")
        addresses.append(digest.address)
        [request] = (await world.catalog.offer_upload(world.namespace, FileOrigin.USER, want(digest))).requests
        Transfers().upload(request, tmp_path / "file", ignore)
    first, token = await world.catalog.list_files(world.namespace, 3)
    second, end = await world.catalog.list_files(world.namespace, 3, token)
    assert [item.address for item in (*first, *second)] == sorted(addresses)
    assert (bool(token), end) == (True, "")


def test_a_key_has_three_words() -> None:
    key = FileKey("uid", FileOrigin.USER, "sha256:" + "0" * 64)
    assert FileKey.parse(str(key)) == key
    assert FileKey.parse("uid/in/../x") is None
