# SPDX-License-Identifier: Apache-2.0
"""Waits with a deadline."""

from __future__ import annotations

import asyncio
from typing import Awaitable, TypeVar

T = TypeVar("T")


async def within(seconds: float, operation: Awaitable[T]) -> T:
    """Await an operation, and cancel it if it takes longer than ``seconds``.

    ``asyncio.wait_for`` is not used because, before Python 3.12, it loses a cancellation of the caller that arrives
    together with the end of the operation.

    Raises:
        asyncio.TimeoutError: The operation took longer.
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
    """Cancel a task that has not ended, and ignore its result."""
    if not task.done():
        task.cancel()
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
