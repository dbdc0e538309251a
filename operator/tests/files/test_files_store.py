# SPDX-License-Identifier: Apache-2.0
"""Requests of the platform to a server that answers nonsense, and settings that cannot be used."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from files_cluster import Cluster

from simyard.files.access import StoreAccess
from simyard.files.signature import Credentials
from simyard.files.store import ObjectStore, StoreError
from simyard.files.sweep import FileSweep, SweepSettings, run_sweep

GOOD_TIME = "Tue, 24 Nov 2026 10:00:00 GMT"
ITEM = "<Key>k</Key><Size>1</Size><LastModified>2026-11-24T10:00:00Z</LastModified>"


@dataclass
class Script:
    """A server that answers every request with the same answer."""

    access: StoreAccess
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    async def answer(self, _: web.Request) -> web.Response:
        return web.Response(body=self.body, headers=self.headers)


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    made = Script(StoreAccess("", "bucket", Credentials("key", "secret")))
    app = web.Application()
    app.router.add_route("*", "/{key:.*}", made.answer)
    async with TestServer(app, host="127.0.0.1") as server:
        made.access = replace(made.access, endpoint=f"http://127.0.0.1:{server.port}")
        yield made


async def read_all(items: AsyncIterator[Any]) -> None:
    async for _ in items:
        pass


REQUESTS: dict[str, Callable[[ObjectStore], Awaitable[object]]] = {
    "find": lambda store: store.find_object("k"),
    "put": lambda store: store.put_object("k"),
    "list": lambda store: store.list_object_page(""),
    "list all": lambda store: read_all(store.list_objects("")),
    "prefixes": lambda store: store.list_prefixes(),
    "begin": lambda store: store.begin_upload("k", "a/b", {}),
    "parts": lambda store: store.list_parts("k", "id"),
    "uploads": lambda store: read_all(store.list_uploads()),
}


def page(content: str) -> bytes:
    return f"<R>{content}</R>".encode()


@pytest.mark.parametrize(
    ("request_name", "headers", "body"),
    [
        ("find", {}, b""),
        ("find", {"Last-Modified": "yesterday"}, b""),
        ("put", {"Date": "yesterday"}, b""),
        ("list", {}, b"<html>a proxy's page<br></html>"),
        ("list", {}, page("<Contents><Key>k</Key></Contents>")),
        ("list", {}, page(f"<Contents>{ITEM.replace('>1<', '>one<')}</Contents>")),
        ("list", {}, page(f"<Contents>{ITEM.replace('2026', '0000')}</Contents>")),
        ("list", {}, page("<IsTruncated>true</IsTruncated>")),
        ("list all", {}, page("<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>")),
        ("prefixes", {}, page("<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>")),
        ("begin", {}, page("")),
        ("parts", {}, page("<Part><PartNumber>one</PartNumber></Part>")),
        ("uploads", {}, page("<Upload><Key>k</Key><UploadId>id</UploadId><Initiated>now</Initiated></Upload>")),
        ("uploads", {}, b"\xff\x00"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_an_error_of_the_store(
    script: Script, request_name: str, headers: dict[str, str], body: bytes
) -> None:
    script.headers, script.body = headers, body
    async with ObjectStore(script.access) as store:
        with pytest.raises(StoreError, match=r"cannot be read.*Check that the endpoint is an S3 server"):
            await REQUESTS[request_name](store)


async def test_a_time_without_a_zone_is_in_utc(script: Script) -> None:
    script.body = page(f"<Contents>{ITEM.replace('Z<', '<')}</Contents>")
    async with ObjectStore(script.access) as store:
        [found], _ = await store.list_object_page("")
        assert found.modified.tzinfo is not None


@pytest.mark.parametrize(
    ("key", "text"), [("ca.crt", "no certificate"), ("ca.crt", "é"), ("endpoint", "http://s3:99999")]
)
async def test_settings_that_cannot_be_used_fail_the_requests_and_name_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str, text: str
) -> None:
    secret = {"endpoint": "https://s3", "bucket": "simyard", "accessKey": "key", "secretKey": "secret", key: text}
    for name, value in secret.items():
        (tmp_path / name).write_text(value)
    access = StoreAccess.open_directory(tmp_path)
    assert access is not None
    async with ObjectStore(access) as store:
        for request in REQUESTS.values():
            with pytest.raises(StoreError, match=f"{key}.*: correct the Secret"):
                await request(store)
    assert "correct the Secret" in caplog.text


async def test_nothing_ends_the_sweep(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    """The server answers nonsense, and then the sweep itself has a defect."""
    settings = SweepSettings(retry_seconds=0.0)
    script.body = b'{"cluster": "cluster"}'
    running = asyncio.create_task(run_sweep(script.access, Cluster(), settings))
    await wait_for_text(caplog, "cannot be read", running)
    running.cancel()
    await asyncio.wait([running])

    class Defect(Cluster):
        async def identify_cluster(self) -> str:
            raise RuntimeError("a defect")

    async with ObjectStore(script.access) as store:
        running = asyncio.create_task(FileSweep(store, Defect(), settings).run())
        await wait_for_text(caplog, "a defect", running)
        running.cancel()
        await asyncio.wait([running])


async def wait_for_text(caplog: pytest.LogCaptureFixture, text: str, running: "asyncio.Task[Any]") -> None:
    async with asyncio.timeout(30):
        while caplog.text.count(text) < 2:
            assert not running.done()
            await asyncio.sleep(0)
