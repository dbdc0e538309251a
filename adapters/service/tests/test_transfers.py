# SPDX-License-Identifier: Apache-2.0
"""Downloads from a store that is away for a long time, and transfers that are stopped."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_store import SmallStore, small_store

from simyard_adapter.digests import PART_BYTES, FileDigest
from simyard_adapter.transfers import SignedRequest, StalledError, StoppedError, Transfers

DEADLINE = 20.0


@pytest.fixture
def store() -> Iterator[SmallStore]:
    with small_store() as made:
        yield made


def ignore(_: int) -> None:
    """Ignore the progress."""


def test_a_stalled_download_continues_where_it_was(store: SmallStore, tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    address = store.add(content)
    store.cut_after = 1000
    stalls: list[StalledError] = []

    def on_stall(error: StalledError) -> None:
        stalls.append(error)
        store.away, store.cut_after = 0, None

    def on_bytes(_: int) -> None:
        store.away = 1_000_000

    transfers = Transfers(stall_seconds=0, sleep=lambda _: None)
    request = SignedRequest.from_json(store.sign_download(address))
    transfers.download(lambda: request, tmp_path / "file", address, on_bytes, on_stall)
    assert (tmp_path / "file").read_bytes() == content
    assert store.ranges == [None, "bytes=1000-"]
    assert len(stalls) == 1


def test_a_store_has_time_to_join_the_parts_of_an_upload(store: SmallStore) -> None:
    store.slow_seconds = 0.5
    transfers = Transfers(socket_seconds=0.1, sleep=lambda _: None)
    digest = FileDigest(f"sha256-64m:{'0' * 64}", 2 * PART_BYTES, (b"0" * 32, b"1" * 32))
    transfers.complete(SignedRequest.from_json(store.sign_complete()), digest, {1: "a", 2: "b"})
    assert store.posts == 1


def test_a_stopped_transfer_ends_while_the_store_is_silent(store: SmallStore, tmp_path: Path) -> None:
    address = store.add(b"content")
    store.silent = True
    transfers = Transfers()
    request = SignedRequest.from_json(store.sign_download(address))
    errors: list[BaseException] = []

    def download() -> None:
        try:
            transfers.download(lambda: request, tmp_path / "file", address, ignore)
        except StoppedError as error:
            errors.append(error)

    thread = threading.Thread(target=download)
    thread.start()
    assert store.asked.wait(DEADLINE)
    transfers.stop()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert [str(error) for error in errors] == ["the download was stopped"]
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_transfer_does_not_wait_for_the_next_attempt(store: SmallStore, tmp_path: Path) -> None:
    store.away = 1_000_000
    transfers = Transfers(sleep=lambda _: transfers.stop())
    request = SignedRequest.from_json(store.sign_download(store.add(b"content")))
    with pytest.raises(StoppedError):
        transfers.download(lambda: request, tmp_path / "file", "sha256:0", ignore)


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_an_ipv6_address_without_a_port_gets_the_default_port(
    monkeypatch: pytest.MonkeyPatch, scheme: str, port: int
) -> None:
    asked: list[object] = []

    def refuse(address: object, *_: object) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(ConnectionRefusedError), Transfers().exchange("GET", f"{scheme}://[2001:db8::1]/a", {}, None):
        pass
    assert asked == [("2001:db8::1", port)]
