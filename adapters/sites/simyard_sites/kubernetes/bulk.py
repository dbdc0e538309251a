# SPDX-License-Identifier: Apache-2.0
"""Makes bulk calls as one request per item, in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

from simyard_sites.base import Outcome

_Item = TypeVar("_Item")


async def run_each(
    items: Sequence[_Item], call: Callable[[_Item], Awaitable[Outcome]], slots: asyncio.Semaphore
) -> AsyncGenerator[Outcome, None]:
    """Yield the outcomes as soon as they are known; the number of slots limits the parallel calls.

    If the caller closes the iteration early, the function cancels the running calls and waits until they have ended.
    """

    async def one(item: _Item) -> Outcome:
        async with slots:
            return await call(item)

    tasks = [asyncio.create_task(one(item)) for item in items]
    try:
        for done in asyncio.as_completed(tasks):
            yield await done
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
