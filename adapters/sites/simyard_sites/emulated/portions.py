# SPDX-License-Identifier: Apache-2.0
"""Yields the items of a call at the times when a slow front end serves them."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

_TOGETHER_SECONDS = 0.005
_Item = TypeVar("_Item")


async def yield_portions(
    items: Sequence[_Item], times: Sequence[float], heartbeat_seconds: float, closing: asyncio.Event
) -> AsyncIterator[Sequence[_Item]]:
    """Yield each item at its time (seconds since the epoch, ascending); yield items with the same time together.

    The function yields a portion at least every ``heartbeat_seconds``, if necessary an empty one. Without items, it
    yields one empty portion. When ``closing`` is set, it drops the remaining items.
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
