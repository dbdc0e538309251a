# SPDX-License-Identifier: Apache-2.0
"""The event loop of a client, in a daemon thread of its own.

All requests of a client run in this loop, so a caller may be a script, a notebook (whose main thread runs a loop
already), a coroutine or one of many threads. One thread serves all calls: a thread or a loop for each call would cost
more than the call. A blocking call from inside the loop thread could never end, so it raises an error. After a fork,
the child has no such thread: the client then begins again with a new loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from simyard_client.errors import ClosedError

T = TypeVar("T")
STOP_SECONDS = 5.0
"""Time for the tasks of a loop to end when it stops."""


class LoopThread:
    """A daemon thread that runs an event loop."""

    def __init__(self) -> None:
        """Start the thread."""
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="simyard-client", daemon=True)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._last: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._thread.start()

    def is_current(self) -> bool:
        """Return whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and return its result. Ctrl-C cancels the coroutine.

        Raises:
            RuntimeError: The caller runs in the loop thread.
            ClosedError: The loop has been stopped.
        """
        if self.is_current():
            coroutine.close()
            raise RuntimeError(
                "a blocking call from a callback of a future would never end: use another thread, or await a future"
            )
        if self.loop.is_closed() or not self._thread.is_alive():
            coroutine.close()
            raise ClosedError("this client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClosedError("this client was closed during the call") from None
        except BaseException:
            future.cancel()
            raise

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Begin a task in the loop, which the loop keeps until it has ended. The task must handle all its errors."""
        try:
            self.loop.call_soon_threadsafe(self._keep, coroutine)
        except RuntimeError:
            coroutine.close()
            raise ClosedError("this client is closed") from None

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Cancel all tasks, run the ``last`` coroutine function, and end the thread."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._last = last
            self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_current():
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(asyncio.sleep(0))  # a task that has not begun could not end its futures
            while tasks := asyncio.all_tasks(self.loop):
                for task in tasks:
                    task.cancel()
                _, late = self.loop.run_until_complete(asyncio.wait(tasks, timeout=STOP_SECONDS))
                if late:
                    break
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            if self._last is not None:
                self.loop.run_until_complete(self._last())
        finally:
            self.loop.close()
