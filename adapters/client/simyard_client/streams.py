# SPDX-License-Identifier: Apache-2.0
"""Iterators of callers' threads over asynchronous iterators of the loop thread."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from simyard_client.connection import Connection
from simyard_client.errors import ClosedError

T = TypeVar("T")


def iterate(connection: Connection, items: AsyncIterator[T]) -> Iterator[T]:
    """Yield the items of an asynchronous iterator, and close it at the end."""
    end = object()

    async def take(_: Any) -> Any:
        async for item in items:
            return item
        return end

    async def close(_: Any) -> None:
        aclose = getattr(items, "aclose", None)
        if aclose is not None:
            await aclose()

    try:
        while (item := connection.run(take)) is not end:
            yield item
    finally:
        with contextlib.suppress(ClosedError):
            connection.run(close)
