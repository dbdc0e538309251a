"""The items of a call, handed out as a slow front end gets to them."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

_TOGETHER_SECONDS = 0.005
_Item = TypeVar("_Item")


async def portions(
    items: Sequence[_Item], times: Sequence[float], heartbeat_seconds: float, closing: asyncio.Event
) -> AsyncIterator[Sequence[_Item]]:
    """Each item when its time has come (seconds since the epoch, ascending), those of the same moment together.

    There is a portion at least every ``heartbeat_seconds``, if need be an empty one; no items are one empty portion.
    When ``closing`` is set, the rest is not handed out.
    """
    done = bisect.bisect_right(times, time.time() + _TOGETHER_SECONDS)
    yield items[:done]
    while done < len(items):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(times[done] - time.time(), heartbeat_seconds)):
                await closing.wait()
                return
        until = bisect.bisect_right(times, time.time() + _TOGETHER_SECONDS)
        yield items[done:until]
        done = until
