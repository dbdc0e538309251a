"""The one interface behind which both kinds of connector sit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Protocol, TypeVar

from simyard_adapter.attributes import AttributeStore
from simyard_adapter.context import Context
from simyard_adapter.declarations import Json

T = TypeVar("T")


@dataclass(frozen=True)
class Host:
    """What the adapter gives to a backend.

    Attributes:
        directory: where the manifest's files are.
        log: the worker's log.
        running: the invocations that run now.
        attributes: the values that the user gave.
    """

    directory: Path
    log: "logging.LoggerAdapter[Any]"
    running: Callable[[], list[Context]]
    attributes: Mapping[str, Json]


class Backend(Protocol):
    """A connector of either kind. What its methods raise is the connector's own failure."""

    attributes: AttributeStore

    async def start(self, host: Host) -> None:
        """Set the user's values, then begin."""
        ...

    async def stop(self) -> None:
        """End."""
        ...

    async def invoke(self, context: Context, parameters: Mapping[str, Json]) -> Mapping[str, Json]:
        """Run the context's action with checked parameters; returns when nothing of it runs any more."""
        ...

    async def refresh(self) -> None:
        """Read anew the attributes that are read from somewhere."""
        ...

    async def set_attribute(self, name: str, value: Json) -> None:
        """Set a mutable attribute to a checked value."""
        ...


async def in_thread(function: Callable[[], T]) -> T:
    """Run a function in a daemon thread of its own: no pool can fill up, and a stuck one does not keep the process.

    A cancellation abandons the thread.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        if not future.done():
            set_outcome(outcome)

    def run() -> None:
        try:
            outcome: Any = function()
            setter: Callable[[Any], None] = future.set_result
        except BaseException as error:  # noqa: BLE001 - raised again where the thread is awaited
            # A future cannot hold StopIteration; a connector that exits its thread has crashed.
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            outcome = error if plain else RuntimeError(f"{type(error).__name__}: {error}")
            setter = future.set_exception
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, setter, outcome)

    threading.Thread(target=run, daemon=True).start()
    return await future
