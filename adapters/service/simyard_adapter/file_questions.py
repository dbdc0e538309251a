# SPDX-License-Identifier: Apache-2.0
"""The questions of a worker to the control plane for signed URLs of files, over the broker.

The worker asks when it needs a URL. So no URL waits in a queue or on a disk, and a URL that has expired is replaced by
asking again. A question or an answer may be lost, so a question without an answer is repeated. While the file store
does not answer, the question waits.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import time
import uuid
from typing import Any, Mapping

from simyard_adapter.backoff import draw_delay
from simyard_adapter.bootstrap import Bootstrap
from simyard_adapter.context import Context
from simyard_adapter.current_session import CurrentSession
from simyard_adapter.errors import FileTransferError, ParameterError
from simyard_adapter.transport import UnroutableError, encode
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, make_event_key

ANSWER_SECONDS = 10.0
"""The time after which a question without an answer is repeated."""
MAX_RETRY_SECONDS = 15.0
NO_STORE_SECONDS = 3600.0
"""The time for which the platform is not asked for uploads of logs after it has said that it has no file store."""
_POLL_SECONDS = 0.5


class FileQuestions:
    """The questions of one worker that wait for their answers; used in the event loop of its adapter."""

    def __init__(
        self, bootstrap: Bootstrap, current: CurrentSession, *, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._bootstrap = bootstrap
        self._current = current
        self._answer_seconds = answer_seconds
        self._waiting: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._no_store_until = 0.0

    @property
    def has_store(self) -> bool:
        """False if the platform has said, within :data:`NO_STORE_SECONDS`, that it has no file store."""
        return time.monotonic() >= self._no_store_until

    def apply_answer(self, body: Mapping[str, Any]) -> None:
        """Hand the control plane's answer to the question that waits for it; drop an answer that comes too late."""
        waiting = self._waiting.get(str(body.get("request")))
        if waiting is not None and not waiting.done():
            waiting.set_result(body)

    async def ask(self, context: Context, question: Mapping[str, Any], field: str) -> Mapping[str, Any]:
        """Return the control plane's answer to a question; repeat the question while there is none.

        Raises:
            ParameterError: The namespace has no such file.
            FileTransferError: The platform refuses.
        """
        failures = 0
        while True:
            answer = await self._ask_once(question)
            error = answer.get("error")
            if not isinstance(error, Mapping):
                return answer
            message = str(error.get("message"))
            if error.get("absent"):
                self._no_store_until = time.monotonic() + NO_STORE_SECONDS
            if not error.get("retryable"):
                raise ParameterError(field, message) if "get" in question else FileTransferError(f"{field}: {message}")
            context.progress(message=f"{field}: waiting for the file store: {message}")
            await asyncio.sleep(draw_delay(failures, MAX_RETRY_SECONDS))
            failures += 1

    def ask_from_thread(
        self, loop: asyncio.AbstractEventLoop, context: Context, question: Mapping[str, Any], field: str
    ) -> Mapping[str, Any]:
        """Return the answer as :meth:`ask` does, in another thread than that of the event loop.

        Raises:
            ActionCancelledError: The invocation was stopped meanwhile.
        """
        asked = asyncio.run_coroutine_threadsafe(self.ask(context, question, field), loop)
        try:
            while True:
                context.check_cancelled()
                with contextlib.suppress(concurrent.futures.TimeoutError):
                    return asked.result(timeout=_POLL_SECONDS)
        finally:
            asked.cancel()

    async def _ask_once(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        request = uuid.uuid4().hex
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[request] = answer
        try:
            while not answer.done():
                with contextlib.suppress(UnroutableError):
                    await self._publish({"request": request, **question})
                await asyncio.wait({answer}, timeout=self._answer_seconds)
            return answer.result()
        finally:
            del self._waiting[request]

    async def _publish(self, question: Mapping[str, Any]) -> None:
        key = make_event_key(Event.FILES, self._bootstrap.broker.identity, self._bootstrap.worker_uid)
        body = encode({"worker": self._bootstrap.worker, **question})
        await self._current.publish(EVENTS_EXCHANGE, key, Event.FILES.value, body)
