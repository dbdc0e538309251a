# SPDX-License-Identifier: Apache-2.0
"""Answers that are sent piece by piece, while their client reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from aiohttp import web

MAX_STREAM_SECONDS = 3600.0
WRITE_SECONDS = 30.0
"""Time after which a client that reads nothing is cut off."""


async def send_texts(
    request: web.BaseRequest,
    texts: AsyncGenerator[str, None],
    *,
    max_seconds: float = MAX_STREAM_SECONDS,
    write_seconds: float = WRITE_SECONDS,
) -> web.StreamResponse:
    """Send texts as they come, until there are no further ones, the client is gone, or the time is over.

    One text is in memory at a time. The texts must come at least once in a few seconds, empty if there is nothing new:
    only then is a client noticed that has gone.
    """
    response = web.StreamResponse()
    response.content_type, response.charset = "text/plain", "utf-8"
    loop = asyncio.get_running_loop()
    ends = loop.time() + max_seconds
    async with aclosing(texts):
        with suppress(ConnectionError):
            await response.prepare(request)
            async for text in texts:
                if request.transport is None or request.transport.is_closing() or loop.time() >= ends:
                    break
                if not text:
                    continue
                try:
                    async with asyncio.timeout(write_seconds):
                        await response.write(text.encode())
                except TimeoutError:
                    request.transport.abort()
                    break
    return response
