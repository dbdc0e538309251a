# SPDX-License-Identifier: Apache-2.0
"""A proxy before the API server that answers some requests with an error."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from kubernetes_asyncio.client import Configuration

from simyard_dev.ports import LOOPBACK

NOT_SENT_ON = frozenset({"host", "content-length", "transfer-encoding", "connection"})
BAD_REQUEST = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "BadRequest", "code": 400}


@dataclass
class ApiProxy:
    """``refuses`` says of a request's path whether it is answered with 400; ``refused`` are the paths that were."""

    configuration: Configuration
    refuses: Callable[[str], bool]
    refused: list[str] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Configuration]:
        """Serve, and give the way through the proxy."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._tls(), limit=0)) as self._session:
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._answer)
            runner = web.AppRunner(app, shutdown_timeout=0)
            await runner.setup()
            try:
                site = web.TCPSite(runner, LOOPBACK, 0)
                await site.start()
                port = runner.addresses[0][1]
                yield Configuration(host=f"http://{LOOPBACK}:{port}")
            finally:
                await runner.cleanup()

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.configuration.ssl_ca_cert)
        if self.configuration.cert_file:
            context.load_cert_chain(self.configuration.cert_file, self.configuration.key_file)
        return context

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.refuses(request.path):
            self.refused.append(request.path)
            return web.json_response(BAD_REQUEST, status=400)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in NOT_SENT_ON}
        url = str(self.configuration.host) + request.raw_path
        body = await request.read() or None
        async with self._session.request(request.method, url, headers=headers, data=body, timeout=None) as answer:
            kept = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response
