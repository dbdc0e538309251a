# SPDX-License-Identifier: Apache-2.0
"""The catalog and the transfers of the adapter at a real S3 server."""

import asyncio
import http.client
import urllib.request
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from files_world import FilesWorld
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from yarl import URL

from simyard.files.catalog import FileCatalog
from simyard.files.keys import MAX_TEXT_BYTES, FileKey, FileOrigin, UseKey
from simyard.files.store import EncryptionError, ObjectStore
from simyard.files.uploads import Upload
from simyard_adapter.digests import PART_BYTES, FileDigest, digest_file
from simyard_adapter.transfers import SignedRequest, TransferError, Transfers

LISTS = ("simyard_file_store_request_duration_seconds_count", {"operation": "list objects"})


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
    assert [item async for item in world.store.list_uploads(f"{world.namespace}/")] == []


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
    left = [item.key async for item in world.store.list_objects(f"{world.namespace}/")]
    assert len(left) == 1, "the use record stays as long as the URL can upload the file again"
    assert left[0].startswith(f"{world.namespace}/used/")


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


async def upload(world: FilesWorld, path: Path, name: str = "a.inp", owner: str = "ann") -> FileDigest:
    digest = digest_file(path)
    wanted = replace(want(digest), name=name, owner=owner)
    [request] = (await world.catalog.offer_upload(world.namespace, FileOrigin.USER, wanted)).requests
    Transfers().upload(request, path, ignore)
    return digest


async def test_a_list_has_owner_and_name_in_two_requests(world: FilesWorld, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    long = "/".join(["https://login.example.com"] * 4)
    digest = await upload(world, tmp_path / "file", "Träger 梁.inp", long)
    before = REGISTRY.get_sample_value(*LISTS)
    [found], _ = await world.catalog.list_files(world.namespace, 10)
    assert REGISTRY.get_sample_value(*LISTS) == (before or 0) + 2
    assert (found.address, found.name) == (digest.address, "Träger 梁.inp")
    assert len(found.owner.encode()) == MAX_TEXT_BYTES
    assert found.owner.endswith("…")
    assert long.startswith(found.owner.removesuffix("…"))
    whole = await world.catalog.find_file(world.namespace, digest.address)
    assert whole is not None
    assert whole.owner == long


async def test_a_browser_saves_a_file_and_does_not_show_it(world: FilesWorld, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("<script>alert(1)</script>")
    digest = await upload(world, tmp_path / "file", 'a "b".html')
    signed = await world.catalog.sign_download(world.namespace, digest.address)
    assert signed is not None
    response = urllib.request.urlopen(signed[1].url)  # noqa: ASYNC210 - the S3 server on loopback
    assert response.headers["Content-Disposition"] == "attachment; filename*=UTF-8''a%20%22b%22.html"


async def test_a_store_that_does_not_encrypt_gets_no_upload_if_encryption_is_required(world: FilesWorld) -> None:
    access = replace(world.access, encryption_required=True)
    async with ObjectStore(access) as store:
        catalog = FileCatalog(access, store)
        for size in (8, PART_BYTES + 8):
            parts = (b"0" * 32,) * 2 if size > PART_BYTES else ()
            kind = "sha256-64m" if parts else "sha256"
            wanted = Upload(f"{kind}:{'0' * 64}", size, parts)
            with pytest.raises(EncryptionError, match="PutBucketEncryption"):
                await catalog.offer_upload(world.namespace, FileOrigin.USER, wanted)
        with pytest.raises(EncryptionError):
            await store.begin_upload(f"{world.namespace}/in/x", "text/plain", {})
    assert [item async for item in world.store.list_uploads(f"{world.namespace}/")] == []


async def test_a_store_that_says_that_it_encrypts_gets_uploads(world: FilesWorld, tmp_path: Path) -> None:
    async def forward(request: web.BaseRequest) -> web.Response:
        async with session.request(
            request.method, URL(world.access.endpoint + request.raw_path, encoded=True), headers=request.headers,
            data=await request.read(),
        ) as answer:  # fmt: skip
            headers = {"x-amz-server-side-encryption": "AES256", "etag": answer.headers.get("etag", "")}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    async with aiohttp.ClientSession() as session, RawTestServer(forward) as proxy:
        access = replace(world.access, endpoint=f"http://127.0.0.1:{proxy.port}", encryption_required=True)
        async with ObjectStore(access) as store:
            (tmp_path / "file").write_text("secret")
            wanted = want(digest_file(tmp_path / "file"))
            [request] = (
                await FileCatalog(access, store).offer_upload(world.namespace, FileOrigin.USER, wanted)
            ).requests
            await asyncio.to_thread(Transfers().upload, request, tmp_path / "file", ignore)
    assert await world.catalog.find_file(world.namespace, wanted.address) is not None


@pytest.mark.parametrize("owner", ["ann", "ö" * 1000, "system:" + "梁" * 500], ids=["short", "long", "mixed"])
async def test_a_name_that_fits_is_stored_and_a_longer_one_is_refused(
    world: FilesWorld, tmp_path: Path, owner: str
) -> None:
    (tmp_path / "file").write_text(f"content of {owner}")
    digest = digest_file(tmp_path / "file")
    fitting = max(
        (Upload(digest.address, digest.size, name="梁" * count, owner=owner) for count in range(255)),
        key=lambda item: (item.find_problem() is None, len(item.name)),
    )
    longer = replace(fitting, name=fitting.name + "梁")
    assert longer.find_problem() is not None
    assert longer.find_problem()[0] == "name"  # type: ignore[index]
    await upload(world, tmp_path / "file", fitting.name, owner)
    found = await world.catalog.find_file(world.namespace, digest.address)
    assert found is not None
    assert found.name == fitting.name


@given(address=st.sampled_from([f"sha256:{'0' * 64}", f"sha256-64m:{'f' * 64}"]), owner=st.text(), name=st.text())
def test_a_use_key_keeps_owner_and_name_in_255_bytes(address: str, owner: str, name: str) -> None:
    key = UseKey(FileKey("uid", FileOrigin.USER, address), owner, name)
    assert len(str(key).rpartition("/")[2].encode()) <= 255
    parsed = UseKey.parse(str(key))
    assert parsed is not None
    assert parsed.file == key.file
    for text, kept in ((owner, parsed.owner), (name, parsed.name)):
        assert kept == text or (kept.endswith("…") and text.startswith(kept[:-1]))


@pytest.mark.parametrize("text", ["uid/used/in/x", "uid/in/used/x", "uid/used/in/sha256:0.a.b", "uid/used/in/%.a.b"])
def test_other_keys_are_no_use_keys(text: str) -> None:
    assert UseKey.parse(text) is None
