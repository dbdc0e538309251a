# SPDX-License-Identifier: Apache-2.0
"""Responses that the server sends piece by piece, while the client reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from aiohttp import web

MAX_STREAM_SECONDS = 3600.0
WRITE_SECONDS = 30.0
"""If a client reads no data for this time, the server closes its connection."""


async def send_texts(
    request: web.BaseRequest,
    texts: AsyncGenerator[str, None],
    *,
    max_seconds: float = MAX_STREAM_SECONDS,
    write_seconds: float = WRITE_SECONDS,
) -> web.StreamResponse:
    """Send each text as soon as it arrives, until ``texts`` ends, the client is gone, or the time is over.

    Only one text is in memory at a time. ``texts`` must yield a text every few seconds, an empty one if there is no
    news, because the function checks only then whether the client is gone.
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
