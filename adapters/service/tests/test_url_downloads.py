# SPDX-License-Identifier: Apache-2.0
"""File parameters at URLs, downloaded from a real HTTPS server that may misbehave."""

import asyncio
import hashlib
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from simyard_adapter.context import Context
from simyard_adapter.declarations import Action, ActionMode, Interface
from simyard_adapter.errors import ActionCancelledError, FileTransferError, ParameterError
from simyard_adapter.file_urls import AllowedUrls
from simyard_adapter.invocations import ActionRequest, RefusedError
from simyard_adapter.transfers import StalledError, TransferError, Transfers
from simyard_adapter.url_downloads import UrlDownload
from simyard_adapter.worker_files import WorkerFiles
from simyard_dev.certificates import CertificateAuthority

MAX_BYTES = 100_000
ACTION = Action.from_json(
    {
        "name": "solve",
        "parameters": [
            {"name": "deck", "type": "file", "maxBytes": MAX_BYTES},
            {"name": "decks", "type": "array", "items": {"type": "file"}},
        ],
    }
)
CONTENT = bytes(range(256)) * 200
Answer = Callable[[BaseHTTPRequestHandler], None]


def send(handler: BaseHTTPRequestHandler, status: int, content: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(content)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(content)


class Site:
    """An HTTPS server on loopback; ``answers`` has the answer to each path, ``asked`` the requests."""

    def __init__(self, directory: Path) -> None:
        self.answers: dict[str, Answer] = {"/meshes/deck.inp": lambda handler: send(handler, 200, CONTENT)}
        self.asked: list[BaseHTTPRequestHandler] = []
        self.ended = threading.Event()
        self.authority = CertificateAuthority(directory, "site-ca")
        keys = self.authority.issue_server("site", ["localhost"])
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self)
                site.answers.get(self.path.partition("?")[0], lambda handler: send(handler, 404))(self)

            def log_message(self, *_: object) -> None:
                """Keep the output of the tests quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys.certificate, keys.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"https://localhost:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def allowed(self) -> AllowedUrls:
        return AllowedUrls((f"{self.url}/meshes/",))

    def stop(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path / "certificates")
    monkeypatch.setenv("SSL_CERT_FILE", str(made.authority.files.certificate))
    yield made
    made.stop()


class Worker:
    """A worker whose platform answers no questions, because a URL needs none."""

    def __init__(self, directory: Path) -> None:
        self.cache = directory / "cache"
        self.read: list[tuple[str, bytes]] = []
        self.lines: list[str] = []
        self.context = Context(uuid.uuid4().hex, "solve", directory / "scratch", lambda _: None, self.lines.append)
        self.files = WorkerFiles(None, self, self.cache)  # type: ignore[arg-type]

    async def invoke(self, _: Context, parameters: dict[str, Any]) -> dict[str, Any]:
        paths = [parameters["deck"]] if "deck" in parameters else parameters["decks"]
        self.read = [(path.name, path.read_bytes()) for path in paths]
        return {}

    async def act(self, urls: AllowedUrls, **parameters: Any) -> None:
        await self.files.invoke(self.context, ActionRequest(ACTION, parameters, ActionMode.SYNC, 30, urls=urls))


@pytest.fixture
async def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


async def test_the_program_gets_the_file_at_a_url_and_the_log_its_address(site: Site, worker: Worker) -> None:
    await worker.act(site.allowed, deck={"url": f"{site.url}/meshes/deck.inp?token=secret"})
    assert worker.read == [("deck.inp", CONTENT)]
    address = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    assert worker.lines == [f"parameters.deck: {site.url}/meshes/deck.inp has {len(CONTENT)} bytes, {address}"]
    assert [path.name for path in worker.cache.iterdir()] == [address]


async def test_a_request_has_the_urls_that_its_files_may_have(site: Site, worker: Worker) -> None:
    interface, parameters = Interface(actions=(ACTION,)), {"deck": {"url": f"{site.url}/meshes/deck.inp"}}
    body = {"action": "solve", "parameters": parameters}
    request = ActionRequest.read({**body, **site.allowed.to_json()}, interface)
    await worker.files.invoke(worker.context, request)
    assert worker.read == [("deck.inp", CONTENT)]
    for urls in (None, [], ["https://other.example.com/"]):
        with pytest.raises(RefusedError, match=r"files\.urls") as caught:
            ActionRequest.read({**body, "urls": urls}, interface)
        assert caught.value.error.field == "parameters.deck.url"
    with pytest.raises(RefusedError, match="must be a list of prefixes"):
        ActionRequest.read({**body, "urls": "https://localhost/"}, interface)


async def test_files_with_the_same_content_and_name_do_not_disturb_each_other(site: Site, worker: Worker) -> None:
    await worker.act(site.allowed, decks=[{"url": f"{site.url}/meshes/deck.inp"}] * 5)
    assert sorted(worker.read) == sorted((f"{n}-deck.inp" if n > 1 else "deck.inp", CONTENT) for n in range(1, 6))


async def test_a_redirection_to_an_allowed_url_is_followed(site: Site, worker: Worker) -> None:
    site.answers["/meshes/latest"] = lambda handler: send(handler, 302, Location="v3/deck.inp")
    site.answers["/meshes/v3/deck.inp"] = lambda handler: send(handler, 200, CONTENT)
    await worker.act(site.allowed, deck={"url": f"{site.url}/meshes/latest", "name": "mesh.inp"})
    assert worker.read == [("mesh.inp", CONTENT)]


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("https://169.254.169.254/latest/meta-data", "which is not below a URL of files.urls"),
        ("http://localhost/meshes/deck.inp", "must be a URL that begins with https://"),
        ("file:///etc/passwd", "must be a URL that begins with https://"),
        ("/private/deck.inp", "which is not below a URL of files.urls"),
        ("", "redirects more than 5 times"),
    ],
)
async def test_a_redirection_to_another_url_fails_the_action(
    site: Site, worker: Worker, location: str, problem: str
) -> None:
    site.answers["/private/deck.inp"] = lambda handler: send(handler, 200, CONTENT)
    site.answers["/meshes/latest"] = lambda handler: send(handler, 307, Location=location)
    with pytest.raises(FileTransferError, match=r"^parameters.deck: https://localhost.*redirects") as caught:
        await worker.act(site.allowed, deck={"url": f"{site.url}/meshes/latest"})
    assert problem in str(caught.value)
    assert not worker.read
    assert not list(worker.cache.iterdir())


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_content_above_the_limit_fails_before_all_of_it_arrives(
    site: Site, worker: Worker, chunked: bool
) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if not chunked:
            return send(handler, 200, bytes(MAX_BYTES + 1))
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while not site.ended.is_set():  # without an end
            handler.wfile.write(b"%x\r\n%s\r\n" % (60_000, bytes(60_000)))
        return None

    site.answers["/meshes/deck.inp"] = answer
    with pytest.raises(ParameterError, match=rf"^parameters.deck: has .*{MAX_BYTES}"):
        await worker.act(site.allowed, deck={"url": f"{site.url}/meshes/deck.inp"})
    assert not list(worker.cache.iterdir())


async def test_a_size_that_the_user_named_is_compared(site: Site, worker: Worker) -> None:
    with pytest.raises(ParameterError, match=rf"has {len(CONTENT)} bytes, at most 3 are accepted"):
        await worker.act(site.allowed, deck={"url": f"{site.url}/meshes/deck.inp", "bytes": 3})
    size = len(CONTENT) + 1
    with pytest.raises(ParameterError, match=rf"has {len(CONTENT)} bytes, and not {size}"):
        await worker.act(site.allowed, deck={"url": f"{site.url}/meshes/deck.inp", "bytes": size})


async def test_a_missing_file_fails_at_once_without_the_secret_of_its_url(site: Site, worker: Worker) -> None:
    with pytest.raises(FileTransferError, match=r"^parameters.deck: .*/meshes/none: the server answers 404") as caught:
        await worker.act(site.allowed, deck={"url": f"{site.url}/meshes/none?token=secret"})
    assert "secret" not in str(caught.value)


async def test_a_server_with_an_unknown_certificate_gets_no_request(
    site: Site, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = AllowedUrls((f"https://127.0.0.1:{site.port}/meshes/",))  # the certificate is valid for localhost only
    with pytest.raises(FileTransferError, match=r"the certificate is not valid"):
        await worker.act(urls, deck={"url": f"https://127.0.0.1:{site.port}/meshes/deck.inp"})
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(FileTransferError, match=r"the certificate is not valid"):
        await worker.act(site.allowed, deck={"url": f"{site.url}/meshes/deck.inp"})
    assert not site.asked


def test_a_changed_default_of_the_program_does_not_skip_the_check_of_the_certificate(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setattr(ssl, "_create_default_https_context", ssl._create_unverified_context)
    download = UrlDownload(Transfers(), f"{site.url}/meshes/deck.inp", site.allowed, MAX_BYTES)
    with pytest.raises(TransferError, match=r"the certificate is not valid"):
        download.run(tmp_path / "deck", lambda _: None)


@pytest.mark.parametrize("tag", ['"v1"', 'W/"v1"', ""])
async def test_a_download_survives_20_cut_connections(site: Site, tmp_path: Path, tag: str) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("Range")
        assert asked is None or tag == '"v1"' == handler.headers["If-Range"]
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        handler.send_response(206 if asked else 200)
        handler.send_header("Content-Length", str(len(CONTENT) - start))
        handler.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        if tag:
            handler.send_header("ETag", tag)
        handler.end_headers()
        cut = len(site.asked) <= 20
        handler.wfile.write(CONTENT[start : start + 1000 if cut else None])

    site.answers["/meshes/deck.inp"] = answer
    transfers = Transfers(sleep=lambda _: None)
    download = UrlDownload(transfers, f"{site.url}/meshes/deck.inp", site.allowed, MAX_BYTES)
    digest = await asyncio.to_thread(download.run, tmp_path / "deck", lambda _: None)
    assert (tmp_path / "deck").read_bytes() == CONTENT
    assert digest.address == f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    assert len(site.asked) == 21


async def test_parts_that_are_shorter_than_requested_are_continued(site: Site, tmp_path: Path) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("Range")
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        part = CONTENT[start : start + 20_000]
        handler.send_response(206 if asked else 200)
        handler.send_header("ETag", '"v1"')
        handler.send_header("Content-Length", str(len(part) if asked else len(CONTENT)))
        handler.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(CONTENT)}")
        handler.end_headers()
        handler.wfile.write(part)

    site.answers["/meshes/deck.inp"] = answer
    transfers = Transfers(sleep=lambda _: None)
    download = UrlDownload(transfers, f"{site.url}/meshes/deck.inp", site.allowed, MAX_BYTES)
    await asyncio.to_thread(download.run, tmp_path / "deck", lambda _: None)
    assert (tmp_path / "deck").read_bytes() == CONTENT


async def test_a_content_that_changes_during_its_download_is_not_mixed(site: Site, tmp_path: Path) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        old = len(site.asked) == 1
        handler.send_response(200)  # the server ignores the range, because the version is another one
        handler.send_header("Content-Length", str(len(CONTENT)))
        handler.send_header("ETag", '"old"' if old else '"new"')
        handler.end_headers()
        handler.wfile.write(bytes(1000) if old else CONTENT)

    site.answers["/meshes/deck.inp"] = answer
    transfers = Transfers(sleep=lambda _: None)
    download = UrlDownload(transfers, f"{site.url}/meshes/deck.inp", site.allowed, MAX_BYTES)
    await asyncio.to_thread(download.run, tmp_path / "deck", lambda _: None)
    assert (tmp_path / "deck").read_bytes() == CONTENT


def test_a_content_without_an_end_that_can_be_verified_is_refused(site: Site, tmp_path: Path) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(CONTENT)

    site.answers["/meshes/deck.inp"] = answer
    download = UrlDownload(Transfers(), f"{site.url}/meshes/deck.inp", site.allowed, MAX_BYTES)
    with pytest.raises(Exception, match="does not say where the content ends"):
        download.run(tmp_path / "deck", lambda _: None)
    assert not (tmp_path / "deck").exists()


def test_a_server_that_stays_away_ends_the_download(site: Site, tmp_path: Path) -> None:
    site.answers["/meshes/deck.inp"] = lambda handler: send(handler, 503)
    transfers = Transfers(stall_seconds=0)
    download = UrlDownload(transfers, f"{site.url}/meshes/deck.inp?token=secret", site.allowed, MAX_BYTES)
    with pytest.raises(StalledError, match="made no progress for 0 s: the server answers 503") as caught:
        download.run(tmp_path / "deck", lambda _: None)
    assert "secret" not in str(caught.value)


async def test_a_stopped_action_ends_its_download(site: Site, worker: Worker) -> None:
    site.answers["/meshes/deck.inp"] = lambda _: worker.context.cancel() or (site.ended.wait() and None)  # type: ignore[func-returns-value]
    with pytest.raises(ActionCancelledError):
        await worker.act(site.allowed, deck={"url": f"{site.url}/meshes/deck.inp"})
