"""Bulk calls made of one request per item, beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

from simyard_sites.base import Outcome

_Item = TypeVar("_Item")


async def each(
    items: Sequence[_Item], call: Callable[[_Item], Awaitable[Outcome]], slots: asyncio.Semaphore
) -> AsyncGenerator[Outcome, None]:
    """The outcomes, each as soon as it is there; as many calls are under way as there are slots.

    When it is closed early, what is under way is cancelled and has ended.
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
