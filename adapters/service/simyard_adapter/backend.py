# SPDX-License-Identifier: Apache-2.0
"""The interface between the adapter and the two kinds of connector."""

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
class BackendEnvironment:
    """The access that a backend has to its adapter.

    Attributes:
        directory: The directory with the manifest's files.
        log: The worker's log.
        running: A function that returns the running invocations.
        attributes: The attribute values that the user set in the pool.
    """

    directory: Path
    log: "logging.LoggerAdapter[Any]"
    running: Callable[[], list[Context]]
    attributes: Mapping[str, Json]


class Backend(Protocol):
    """A connector of either kind. Exceptions of its methods are failures of the connector."""

    attributes: AttributeStore

    async def start(self, environment: BackendEnvironment) -> None:
        """Set the attribute values of the user, then start the connector."""
        ...

    async def stop(self) -> None:
        """Stop the connector."""
        ...

    async def invoke(self, context: Context, parameters: Mapping[str, Json]) -> Mapping[str, Json]:
        """Run the context's action with checked parameters; return its result when no part of it runs any more."""
        ...

    async def refresh(self) -> None:
        """Read the attributes again that come from files or programs."""
        ...

    async def set_attribute(self, name: str, value: Json) -> None:
        """Set a mutable attribute to a checked value."""
        ...


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a function in a new daemon thread and return its result.

    A thread pool could fill up with functions that never end; a daemon thread blocks neither other calls nor the end of
    the process. A cancelled caller leaves the thread alone.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def set_once(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        if not future.done():
            set_outcome(outcome)

    def run() -> None:
        try:
            outcome: Any = function()
            setter: Callable[[Any], None] = future.set_result
        except BaseException as error:  # noqa: BLE001 - raised again where the thread is awaited
            # A future cannot hold StopIteration. A SystemExit in the thread counts as a crash of the connector.
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            outcome = error if plain else RuntimeError(f"{type(error).__name__}: {error}")
            setter = future.set_exception
        with contextlib.suppress(RuntimeError):  # The loop is closed: there is no waiting caller.
            loop.call_soon_threadsafe(set_once, setter, outcome)

    threading.Thread(target=run, daemon=True).start()
    return await future
