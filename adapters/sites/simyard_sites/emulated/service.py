# SPDX-License-Identifier: Apache-2.0
"""Keeps one service running, as a service manager does: starts the service again whenever it ends by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

_MIN_DELAY_SECONDS = 1.0
_MAX_DELAY_SECONDS = 30.0
_STEADY_SECONDS = 60.0


class UnusableError(Exception):
    """A service that ends with an error at every start. The message comes from the service."""


async def keep_running(run: Callable[[], Awaitable[str]], ending: asyncio.Event, report: Callable[[str], None]) -> None:
    """Run a service until it is asked to end.

    Args:
        run: Runs the service once and returns a description of its end.
        ending: Set when the service has been asked to end.
        report: Called with a line whenever the service has ended by itself. The next start is 1 s later. This delay
            doubles each time up to 30 s, and is 1 s again when the service has run for a minute.

    Raises:
        UnusableError: ``run`` raised it.
    """
    loop = asyncio.get_running_loop()
    delay = _MIN_DELAY_SECONDS
    while not ending.is_set():
        started = loop.time()
        how = await run()
        if ending.is_set():
            return
        if loop.time() - started >= _STEADY_SECONDS:
            delay = _MIN_DELAY_SECONDS
        report(f"ended by itself ({how}); next start in {delay:.0f} s")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await ending.wait()
        delay = min(delay * 2, _MAX_DELAY_SECONDS)
