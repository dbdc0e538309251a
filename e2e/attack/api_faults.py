# SPDX-License-Identifier: Apache-2.0
"""Fail some requests of the operator: a proxy refuses them, or cuts them before or after the API server acts."""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
from collections import Counter
from pathlib import Path

import aiohttp
from aiohttp import web

from simyard_dev.ports import LOOPBACK

_NOT_SENT_ON = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_REFUSALS = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}


class FaultProxy:
    """A proxy on loopback that runs in a thread of its own. ``share`` of the requests fail while it is above 0.

    A fault is a refusal (429, 500, 503), a connection that is cut before the request is forwarded, or a connection
    that is cut after the API server has carried the request out. ``faults`` counts them.
    """

    def __init__(self, server: str, ca_file: Path, seed: int) -> None:
        self.share = 0.0
        self.faults: Counter[str] = Counter()
        self.url = ""
        self._server = server
        self._ca_file = ca_file
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._serving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault proxy", daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._serving.wait(10), "the proxy serves"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        tls = ssl.create_default_context(cafile=str(self._ca_file))
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as self._session:
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._answer)
            runner = web.AppRunner(app, shutdown_timeout=0, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, LOOPBACK, 0).start()
            self.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
            self._serving.set()
            await self._stopped.wait()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        fault = self._fault() if self._random.random() < self.share else ""
        if fault.isdigit():
            return _refusal(int(fault))
        if fault == "cut":
            _cut(request)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_SENT_ON}
        body = await request.read() or None
        try:
            async with self._session.request(
                request.method, self._server + request.raw_path, headers=headers, data=body
            ) as answer:
                if fault == "lost answer":
                    await answer.read() if "watch=" not in request.query_string else None
                    _cut(request)
                kept = {name: answer.headers[name] for name in ("Content-Type", "Content-Encoding", "Date", "Audit-Id")
                        if name in answer.headers}  # fmt: skip
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except aiohttp.ClientError:
            _cut(request)
            raise

    def _fault(self) -> str:
        fault = self._random.choice([*map(str, _REFUSALS), "cut", "lost answer"])
        self.faults[fault] += 1
        return fault


def _refusal(status: int) -> web.Response:
    reason = _REFUSALS[status]
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status,
            "message": "a fault of the attack"}  # fmt: skip
    return web.json_response(body, status=status, headers={"Retry-After": "1"} if status == 429 else {})


def _cut(request: web.Request) -> None:
    """Close the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    raise web.HTTPServiceUnavailable  # the client has gone
