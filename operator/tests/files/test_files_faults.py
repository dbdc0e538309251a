# SPDX-License-Identifier: Apache-2.0
"""Transfers while connections are cut, URLs expire, the server is killed, and a disk is full."""

import asyncio
import contextlib
import itertools
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from files_world import FilesWorld, ignore, make, offered

from simyard.files.catalog import FileCatalog
from simyard.files.keys import FileOrigin
from simyard.files.uploads import Upload
from simyard_adapter.digests import FileDigest, digest_file
from simyard_adapter.transfers import ExpiredError, SignedRequest, TransferError, Transfers
from simyard_adapter.uploads import UploadOffer, upload_file

CUTS = 20
MIB = 2**20


class Scissors:
    """A TCP proxy before the store that cuts the first connections after some bytes of one direction."""

    def __init__(self, target: str, cuts: int, cut_after: int) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._cut_after = cut_after
        self._left = cuts
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            budget = self._cut_after if self._left > 0 else None
            self._left -= 1
            server = socket.create_connection(self._target)
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink, budget), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, budget: int | None) -> None:
        moved = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
                moved += len(data)
                if budget is not None and moved >= budget:
                    break
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def scissors(world: FilesWorld, cuts: int, cut_after: int) -> Iterator[Scissors]:
    made = Scissors(urlsplit(world.access.endpoint).netloc, cuts, cut_after)
    yield made
    made.close()


def through(request: SignedRequest, proxy: Scissors) -> SignedRequest:
    """Return the request to the proxy; the signature covers the name of the store, which the header keeps."""
    parts = urlsplit(request.url)
    url = urlunsplit(parts._replace(netloc=proxy.address))
    return replace(request, url=url, headers={**request.headers, "host": parts.netloc})


async def store(world: FilesWorld, path: Path, digest: FileDigest) -> None:
    offer = await offered(world, digest)
    upload_file(Transfers(), path, digest, lambda *_: offer, ignore)


async def test_a_download_survives_20_cut_connections(world: FilesWorld, tmp_path: Path) -> None:
    digest = make(tmp_path / "mesh", 30 * MIB)
    await store(world, tmp_path / "mesh", digest)
    found = await world.catalog.sign_download(world.namespace, digest.address)
    assert found is not None
    moved: list[int] = []
    with scissors(world, CUTS, MIB) as proxy:
        transfers = Transfers(sleep=lambda _: None)
        transfers.download(lambda: through(found[1], proxy), tmp_path / "back", digest.address, moved.append)
        assert proxy.connections == CUTS + 1
    assert sum(moved) == digest.size
    assert digest_file(tmp_path / "back") == digest


async def test_an_upload_survives_20_cut_connections(world: FilesWorld, tmp_path: Path) -> None:
    digest = make(tmp_path / "mesh", 4 * MIB)
    offer = await offered(world, digest)
    moved: list[int] = []
    with scissors(world, CUTS, MIB) as proxy:
        through_proxy = replace(offer, requests=tuple(through(item, proxy) for item in offer.requests))
        upload_file(Transfers(sleep=lambda _: None), tmp_path / "mesh", digest, lambda *_: through_proxy, moved.append)
    assert sum(moved) == digest.size
    assert await world.catalog.find_file(world.namespace, digest.address) is not None


async def test_a_transfer_without_progress_gives_up_and_names_no_url(world: FilesWorld, tmp_path: Path) -> None:
    digest = make(tmp_path / "mesh", 4 * MIB)
    offer = await offered(world, digest)
    clock = itertools.count(0, 10)
    with scissors(world, 10_000, MIB) as proxy:
        requests = tuple(through(item, proxy) for item in offer.requests)
        transfers = Transfers(sleep=lambda _: None, clock=lambda: float(next(clock)))
        with pytest.raises(TransferError, match="the upload made no progress for 120 s") as failed:
            transfers.upload(requests[0], tmp_path / "mesh", ignore)
    assert "X-Amz" not in str(failed.value)


async def test_an_expired_url_is_replaced(world: FilesWorld, tmp_path: Path) -> None:
    digest = make(tmp_path / "deck", MIB)
    past = FileCatalog(world.access, world.store, clock=lambda: datetime.now(UTC) - timedelta(days=1))
    upload = Upload(digest.address, digest.size)
    old = (await past.offer_upload(world.namespace, FileOrigin.USER, upload)).requests
    with pytest.raises(ExpiredError):
        Transfers().upload(old[0], tmp_path / "deck", ignore)
    offers = iter([UploadOffer(False, requests=old), await offered(world, digest)])
    upload_file(Transfers(), tmp_path / "deck", digest, lambda *_: next(offers), ignore)

    expired = await past.sign_download(world.namespace, digest.address)
    valid = await world.catalog.sign_download(world.namespace, digest.address)
    assert expired is not None
    assert valid is not None
    following = iter([expired[1], valid[1]])
    Transfers().download(lambda: next(following), tmp_path / "back", digest.address, ignore)
    assert digest_file(tmp_path / "back") == digest


async def test_a_download_with_another_content_leaves_nothing(world: FilesWorld, tmp_path: Path) -> None:
    digest = make(tmp_path / "deck", MIB)
    await store(world, tmp_path / "deck", digest)
    found = await world.catalog.sign_download(world.namespace, digest.address)
    assert found is not None
    other = f"sha256:{'0' * 64}"
    with pytest.raises(TransferError, match="has the digest"):
        Transfers().download(lambda: found[1], tmp_path / "back", other, ignore)
    assert os.listdir(tmp_path) == ["deck"]  # noqa: PTH208 - an async test


async def test_a_full_disk_fails_the_download_and_leaves_nothing(world: FilesWorld, tmp_path: Path) -> None:
    digest = make(tmp_path / "deck", 8 * MIB)
    await store(world, tmp_path / "deck", digest)
    found = await world.catalog.sign_download(world.namespace, digest.address)
    assert found is not None
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, hard))  # stands for a full disk: a write fails with OSError
    try:
        with pytest.raises(OSError, match="too large"):
            Transfers().download(lambda: found[1], tmp_path / "back", digest.address, ignore)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["deck"]  # noqa: PTH208 - an async test


async def test_a_store_killed_during_an_upload_gets_all_of_it(world: FilesWorld, tmp_path: Path) -> None:
    digest = make(tmp_path / "mesh", 60 * MIB)
    offer = await offered(world, digest)
    killed = threading.Event()
    restarts: list[threading.Thread] = []

    def kill_once(_: int) -> None:
        if not killed.is_set():
            killed.set()
            world.server.stop(0)
            restarts.append(threading.Thread(target=world.server.start))
            restarts[0].start()

    await asyncio.to_thread(upload_file, Transfers(), tmp_path / "mesh", digest, lambda *_: offer, kill_once)
    restarts[0].join()
    assert await world.catalog.find_file(world.namespace, digest.address) is not None


async def test_1000_uploads_at_once(world: FilesWorld, tmp_path: Path) -> None:
    digests = []
    for number in range(1000):
        path = tmp_path / str(number)
        path.write_text(f"content {number}")
        digests.append((path, digest_file(path)))
    offers = await asyncio.gather(*(offered(world, digest) for _, digest in digests))
    failures: list[BaseException] = []

    def send(path: Path, digest: FileDigest, offer: UploadOffer) -> None:
        try:
            upload_file(Transfers(), path, digest, lambda *_: offer, ignore)
        except TransferError as error:
            failures.append(error)

    threads = [
        threading.Thread(target=send, args=(path, digest, offer))
        for (path, digest), offer in zip(digests, offers, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert failures == []
    assert len([item async for item in world.store.list_objects(f"{world.namespace}/in/")]) == 1000
