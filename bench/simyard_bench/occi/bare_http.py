# SPDX-License-Identifier: Apache-2.0
"""Run the yardstick for answers over HTTP: a bare aiohttp handler that sends the same bytes.

Like a frontend it uses TLS and uvloop. It does not authenticate clients, reads only the target of a request, and counts
nothing. ``python -m simyard_bench.occi.bare_http FILE`` reads FILE, a :class:`Script` in JSON.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path

import uvloop
from aiohttp import web
from multidict import CIMultiDict
from pydantic import BaseModel

from simyard_bench.occi.load import SERVING

BACKLOG = 1024


class Same(BaseModel):
    """The answer for a target: the headers that aiohttp does not set itself, and the file with the body."""

    headers: list[tuple[str, str]]
    body_file: Path


class Script(BaseModel):
    """The port, the certificate and the answers of the server."""

    port: int
    certificate: Path
    key: Path
    answers: dict[str, Same]


async def _serve(script: Script) -> None:
    answers = {
        target: (CIMultiDict(same.headers), same.body_file.read_bytes()) for target, same in script.answers.items()
    }

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        headers, body = answers[request.raw_path]
        return web.Response(body=body, headers=headers)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(script.certificate, script.key)
    runner = web.ServerRunner(web.Server(handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", script.port, ssl_context=context, backlog=BACKLOG).start()
    print(SERVING, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(Script.model_validate_json(Path(sys.argv[1]).read_bytes())))
