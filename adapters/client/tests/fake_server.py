# SPDX-License-Identifier: Apache-2.0
"""An API server of the tests, which answers as a test says, and counts what it receives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
INTERFACE = {
    "actions": [
        {
            "name": "solve",
            "parameters": [{"name": "length", "type": "number", "unit": "mm", "minimum": "0.1"}],
            "result": [{"name": "twice", "type": "number", "unit": "mm"}],
        }
    ]
}


class FakeServer:
    """An API server on loopback, in a thread of its own."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.answer: Answer = self.refuse
        self.url = ""
        self.loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(240)

    async def refuse(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=404)

    def count(self, method: str) -> int:
        return sum(1 for found, _ in self.requests if found == method)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        return await self.answer(request)  # type: ignore[arg-type]

    async def _start(self) -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True), shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        runner = self.loop.run_until_complete(self._start())
        self._started.set()
        self.loop.run_forever()
        self.loop.run_until_complete(runner.cleanup())
        self.loop.close()


def make_status(code: int, reason: str, message: str = "no", **details: Any) -> web.Response:
    """Return a ``metav1.Status``, with ``Retry-After`` if ``retryAfterSeconds`` is given."""
    headers = {"Retry-After": str(details["retryAfterSeconds"])} if "retryAfterSeconds" in details else {}
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return web.json_response(body, status=code, headers=headers)
