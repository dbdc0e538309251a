# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server that stands for the file store where a test needs a store that misbehaves."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SmallStore:
    """The files by address.

    Attributes:
        cut_after: The number of bytes of each answer after which the connection is cut, or None.
        away: The number of further requests that are answered with 503.
        silent: Set: requests get no answer until it is cleared.
        slow_seconds: The time before the answer to a POST, unless another request comes earlier.
        posts: The number of requests POST.
        ranges: The header Range of each request that was answered.
    """

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self.files: dict[str, bytes] = {}
        self.cut_after: int | None = None
        self.away = 0
        self.silent = False
        self.slow_seconds = 0.0
        self.posts = 0
        self._repeated = threading.Event()
        self.ended = threading.Event()
        self.asked = threading.Event()
        self.ranges: list[str | None] = []

    def add(self, content: bytes) -> str:
        address = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.files[address] = content
        return address

    def sign_download(self, address: str) -> dict[str, Any]:
        return {"method": "GET", "url": f"{self._url}/{address}"}

    def sign_complete(self) -> dict[str, Any]:
        return {"method": "POST", "url": f"{self._url}/?uploadId=1"}

    def complete(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer slowly, as a server that copies all parts; while it does, it does not know the upload any more."""
        handler.rfile.read(int(handler.headers["Content-Length"]))
        self.posts += 1
        if self.posts > 1:
            self._repeated.set()
        self._repeated.wait(self.slow_seconds)
        handler.send_response(200 if self.posts == 1 else 404)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.set()
        if self.silent:
            self.ended.wait()
            return
        if self.away:
            self.away -= 1
            handler.send_response(503)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        asked = handler.headers.get("Range")
        self.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        content = self.files[handler.path.strip("/?")][start:]
        handler.send_response(206 if asked else 200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: self.cut_after])


@contextmanager
def small_store() -> Iterator[SmallStore]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            store.serve(self)

        def do_POST(self) -> None:
            store.complete(self)

        def log_message(self, *_: object) -> None:
            """Keep the output of the tests quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    store = SmallStore(server.server_port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield store
    finally:
        store.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
