"""Waiting with a deadline."""

from __future__ import annotations

import asyncio
from typing import Awaitable, TypeVar

T = TypeVar("T")


async def within(seconds: float, operation: Awaitable[T]) -> T:
    """Await an operation, and cancel it when it takes longer.

    ``asyncio.wait_for`` would do, but before Python 3.12 it loses a cancellation of the caller that comes together with
    the end of what it waits for.

    Raises:
        asyncio.TimeoutError: it took longer.
    """
    task = asyncio.ensure_future(operation)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        abandon(task)
    if not task.done():
        raise asyncio.TimeoutError
    return task.result()


def abandon(task: "asyncio.Future[T]") -> None:
    """Cancel a task, if it has not ended; nobody looks at how it ends then."""
    if not task.done():
        task.cancel()
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
