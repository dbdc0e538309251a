# SPDX-License-Identifier: Apache-2.0
"""The connection that all objects of one client share: the loop thread, and the API in it.

The first use of a connection imports aiohttp, which takes longer than everything else in this package.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from simyard_client.errors import ClosedError
from simyard_client.kubeconfig import Access
from simyard_client.loop import LoopThread
from simyard_client.paths import Json

if TYPE_CHECKING:
    from simyard_client.api import Api

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
"""Time for which a request is repeated while no worker is ready, or while the platform asks for it."""


class Connection:
    """The way of one client to one namespace of a cluster.

    Attributes:
        access: The cluster, the user and the namespace.
        patience_seconds: The time for which a request is repeated.
        files_ca: The certificates (PEM) that signed that of the file store; empty for those of the system.
    """

    def __init__(self, access: Access, *, patience_seconds: float = PATIENCE_SECONDS, files_ca: str = "") -> None:
        """Begin; nothing is sent yet."""
        self.access = access
        self.files_ca = files_ca
        self.patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._process = 0
        self._closed = False
        self._current: tuple[LoopThread, Api] | None = None
        self._finalizer: Callable[[], object] | None = None

    @property
    def namespace(self) -> str:
        """The namespace to work in."""
        return self.access.namespace

    @property
    def loop(self) -> LoopThread:
        """The loop thread of this process."""
        return self._get()[0]

    @property
    def api(self) -> Api:
        """The API in the loop of this process."""
        return self._get()[1]

    def run(self, make: Callable[[Api], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function in the loop thread, and return its result."""
        loop, api = self._get()
        return loop.run(make(api))

    def get(self, path: str, query: dict[str, str] | None = None) -> Json:
        """Return the JSON of a path."""
        answer: Json = self.run(lambda api: api.get(path, query))
        return answer

    def download(self, requests: Sequence[Json]) -> AsyncGenerator[bytes, None]:
        """Yield the contents of small files in the file store, for which the platform has signed these requests."""
        from simyard_client.api import download

        return download(requests, self.files_ca)

    def close(self) -> None:
        """Close all connections, and end the loop thread. Unfinished futures get a :class:`ClosedError`."""
        with self._lock:
            self._closed = True
            self._current = None
            finalizer = self._finalizer if self._process == os.getpid() else None
        if finalizer is not None:
            finalizer()

    def _get(self) -> tuple[LoopThread, Api]:
        with self._lock:
            if self._closed:
                raise ClosedError("this client is closed")
            if self._current is None or self._process != os.getpid():  # a fork copies no threads
                from simyard_client.api import Api

                self._process = os.getpid()
                self._current = (LoopThread(), Api(self.access, patience_seconds=self.patience_seconds))
                self._finalizer = weakref.finalize(self, _end, *self._current, self._process)
            return self._current


def _end(loop: LoopThread, api: Api, process: int) -> None:
    """End a loop thread when its connection is closed or forgotten, or when its process ends."""
    if process == os.getpid():
        loop.stop(api.aclose)
