"""What a service manager does for one service: start it again whenever it ends by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

_SHORTEST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 30.0
_STEADY_SECONDS = 60.0


class UnusableError(Exception):
    """The service can never work as it is; the message is its own."""


async def keep_running(run: Callable[[], Awaitable[str]], ending: asyncio.Event, report: Callable[[str], None]) -> None:
    """Run a service until it is told to end.

    Args:
        run: runs it once, and says how it ended.
        ending: set when it has been told to end.
        report: gets a line each time it has ended by itself. The next start is 1 s later, twice as much each time up
            to 30 s, and 1 s again when it has run for a minute.

    Raises:
        UnusableError: ``run`` raised it.
    """
    loop = asyncio.get_running_loop()
    delay = _SHORTEST_DELAY_SECONDS
    while not ending.is_set():
        started = loop.time()
        how = await run()
        if ending.is_set():
            return
        if loop.time() - started >= _STEADY_SECONDS:
            delay = _SHORTEST_DELAY_SECONDS
        report(f"ended by itself ({how}); next start in {delay:.0f} s")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await ending.wait()
        delay = min(delay * 2, _LONGEST_DELAY_SECONDS)
