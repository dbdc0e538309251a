# SPDX-License-Identifier: Apache-2.0
"""Futures of calls, which are ``concurrent.futures.Future`` and can be awaited as well.

``concurrent.futures.as_completed`` and ``wait``, ``asyncio.gather`` and every library that accepts futures therefore
work with them. The callbacks of a future run in the loop thread of the client, and must be short.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from simyard_client.loop import LoopThread
from simyard_client.results import Result


class Future(concurrent.futures.Future[Result]):
    """The result of one call, which will be there later.

    Attributes:
        index: The position of the call in its batch; 0 for a single call.
        parameters: The parameters of the call.
        action: The name of the ServiceAction; empty for a Sync call, and before the object was created.
    """

    def __init__(self, loop: LoopThread, index: int = 0, parameters: dict[str, Any] | None = None) -> None:
        """Begin without a result."""
        super().__init__()
        self.index = index
        self.parameters = parameters or {}
        self.action = ""
        self._loop = loop
        self._request_cancel: Callable[[], None] | None = None

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the call, and return its result.

        Raises:
            ActionError: The action has no result.
            TimeoutError: The call takes longer than ``timeout`` seconds; it continues.
            RuntimeError: The caller is a callback of a future, in which a wait would never end.
        """
        self._check_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the call, and return its error; None if it has a result."""
        self._check_thread()
        return super().exception(timeout)

    def cancel(self) -> bool:
        """Cancel a call that was not sent yet, and return True; otherwise ask the platform to cancel the action.

        The worker needs some time to end an action. The future then has a :class:`CancelledError` of this client, or
        the result if the action was faster.
        """
        if super().cancel():
            return True
        if self._request_cancel is not None and not self.done():
            self._request_cancel()
        return False

    def on_cancel(self, request: Callable[[], None]) -> None:
        """Name the function that asks the platform to cancel the action."""
        self._request_cancel = request

    def __await__(self) -> Generator[Any, None, Result]:
        """Wait for the result in a coroutine of any event loop."""
        return asyncio.wrap_future(self).__await__()

    def _check_thread(self) -> None:
        if not self.done() and self._loop.is_current():
            raise RuntimeError("a wait in a callback of a future would never end: use as_completed, or another thread")


def as_completed(futures: Iterable[Future], timeout: float | None = None) -> Iterator[Future]:
    """Yield the futures in the order in which their calls end.

    Raises:
        TimeoutError: Some calls took longer than ``timeout`` seconds; they continue.
    """
    yield from concurrent.futures.as_completed(list(futures), timeout)  # type: ignore[misc]
