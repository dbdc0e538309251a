# SPDX-License-Identifier: Apache-2.0
"""A store for the tables of chunks, and the control plane's answers to questions about them."""

import asyncio
import csv
import gzip
import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from simyard_adapter.wire import Event, Request


class PartStore:
    """Keeps the first table of each chunk. ``refusal`` is the error that questions get, None for a signed URL."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        self.refusal: dict[str, Any] | None = None
        self.questions: list[dict[str, Any]] = []
        parts = self.parts

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                content = self.rfile.read(int(self.headers["content-length"]))
                name = self.path.strip("/?")
                present = name in parts and self.headers["if-none-match"] == "*"
                self.send_response(412 if present else 200)
                self.send_header("ETag", '"1"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                parts.setdefault(name, content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    async def answer(self, service: Any) -> None:
        """Answer the questions of the workers of a service until cancelled."""
        answered: set[str] = set()
        while True:
            for kind, body, _ in list(service.events):
                if kind is Event.FILES and body["request"] not in answered:
                    answered.add(body["request"])
                    self.questions.append(body)
                    await service.send(Request.FILES, self._make_answer(body), worker=body["worker"], reply=False)
            await asyncio.sleep(0.01)

    def _make_answer(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.refusal is not None:
            return {"request": body["request"], "error": self.refusal}
        part = body["part"]
        chunk = part["invocation"].rpartition(".")[0]
        url = f"http://127.0.0.1:{self._server.server_port}/{chunk}"
        request = {"method": "PUT", "url": url, "headers": {"if-none-match": "*"}, "offset": 0, "bytes": part["bytes"]}
        return {"request": body["request"], "status": {"present": False, "upload": {"requests": [request]}}}

    def read(self, chunk: str) -> list[dict[str, str]]:
        """Return the rows of a chunk."""
        return list(csv.DictReader(io.StringIO(gzip.decompress(self.parts[chunk]).decode())))
