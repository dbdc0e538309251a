# SPDX-License-Identifier: Apache-2.0
"""The logs of Async actions: files on the worker's disk, which go to the file store in parts while the actions run.

The worker may be gone at any moment, and the lines of its actions must outlive it. But a log must neither delay nor
fail its action. So a log is stored beside its action: after the result was sent, the rest of the log has
:data:`END_SECONDS` more. After each part the worker reports all parts in an event, so that a report replaces the
earlier ones.

The number of parts is bounded. The pauses between parts grow with the duration of the action, and when there are
:data:`MAX_PARTS`, the whole log becomes one part.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any, Awaitable, Callable, Mapping, Optional

from simyard_adapter.backend import run_in_thread
from simyard_adapter.bootstrap import Bootstrap
from simyard_adapter.context import Context
from simyard_adapter.current_session import CurrentSession, Tasks
from simyard_adapter.deadline import abandon, within
from simyard_adapter.digests import read_blocks
from simyard_adapter.errors import ActionError
from simyard_adapter.limits import KIB, MAX_LOG_PARTS, MIB
from simyard_adapter.logs import format_utc
from simyard_adapter.transport import encode
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, make_event_key

MAX_ACTION_LOG_BYTES = 64 * MIB
"""Limit of the log of one action; the end of a longer log is dropped."""
PART_BYTES = MIB
"""The number of new bytes that are stored without a further pause."""
MIN_PAUSE_SECONDS = 10.0
MAX_PAUSE_SECONDS = 300.0
PAUSE_SHARE = 0.25
"""The pause before the next part, as a share of the time for which the action has run."""
READ_BYTES = 128 * KIB
"""Limit of one read; as JSON, the text can be six times as long."""
KEPT_SECONDS = 30.0
MAX_KEPT = 16
"""The time for which the log of an ended action is kept on the disk, for readers who follow it, and their number."""
END_SECONDS = 15.0
STOP_SECONDS = 2.0
"""The time for the rest of a log after its action has ended, and after the adapter was asked to stop."""

MAX_PARALLEL_UPLOADS = 2

Upload = Callable[[Context, Path, str, str, str], Awaitable[Mapping[str, Any]]]
"""Uploads a file: :meth:`simyard_adapter.worker_files.WorkerFiles.upload_file`."""


class ActionLog:
    """The log of one invocation, in a file; any thread may append, the event loop does the rest.

    Attributes:
        path: The file; it exists once there is a line.
        size: The number of bytes.
        ended: Set when the action has ended.
        due: Set when there is enough for a part, and when the action has ended.
        released: Set when the file is not kept any longer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.ended = asyncio.Event()
        self.due = asyncio.Event()
        self.released = asyncio.Event()
        self._next_part = PART_BYTES
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()

    def append(self, text: str) -> None:
        """Add a line; a line above the limit of the file is dropped, as is a line that the disk does not take."""
        line = f"{format_utc(time.time())} {text}\n".encode(errors="replace")
        with self._lock, contextlib.suppress(OSError):
            if self.size + len(line) > MAX_ACTION_LOG_BYTES:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab", buffering=0) as file:
                if file.write(line) < len(line):
                    file.truncate(self.size)
                    return
            self.size += len(line)
            if self.size >= self._next_part:
                self._next_part = MAX_ACTION_LOG_BYTES + 1
                self._wake()

    def read(self, position: int) -> tuple[str, int]:
        """Return the next lines after a position in bytes, at most :data:`READ_BYTES`, and the position after them.

        Raises:
            OSError: The file cannot be read.
        """
        if position >= self.size:
            return "", position
        with self.path.open("rb") as file:
            file.seek(position)
            content = file.read(min(READ_BYTES, self.size - position))
        content = content[: content.rfind(b"\n") + 1] or content  # a longer line than READ_BYTES comes in pieces
        return content.decode(errors="replace"), position + len(content)

    def read_tail(self, lines: Optional[int] = None) -> tuple[str, int]:
        """Return the last lines, or by default the end of the log, and the position after them.

        Raises:
            OSError: The file cannot be read.
        """
        size = self.size
        content = b""
        if size:
            with self.path.open("rb") as file:
                file.seek(max(0, size - READ_BYTES))
                content = file.read(min(size, READ_BYTES))
        if size > READ_BYTES:
            content = content[content.find(b"\n") + 1 :]
        kept = content.splitlines(keepends=True)
        wanted = kept if lines is None else kept[-lines:] if lines > 0 else []
        return b"".join(wanted).decode(errors="replace"), size

    def end(self) -> None:
        """Record that the action has ended."""
        self.ended.set()
        self.due.set()

    def await_part(self, stored: int) -> None:
        """Set :attr:`due` again when there are :data:`PART_BYTES` after the first ``stored`` bytes."""
        self.due.clear()
        with self._lock:
            self._next_part = stored + PART_BYTES
            if self.ended.is_set() or self.size >= self._next_part:
                self.due.set()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed; the thread outlived the adapter.
            self._loop.call_soon_threadsafe(self.due.set)


class ActionLogs:
    """The logs of the Async actions of one worker.

    Attributes:
        unfinished: The logs of actions that have ended, while their rest is stored.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        directory: Path,
        current: CurrentSession,
        tasks: Tasks,
        upload: Upload,
        has_store: Callable[[], bool],
        *,
        max_pause_seconds: float = MAX_PAUSE_SECONDS,
    ) -> None:
        """Prepare; ``directory`` is for logs alone. Nothing is uploaded while ``has_store`` returns False."""
        shutil.rmtree(directory, ignore_errors=True)  # of an adapter that was killed
        self._bootstrap = bootstrap
        self._directory = directory
        self._current = current
        self._tasks = tasks
        self._upload = upload
        self._has_store = has_store
        self._max_pause_seconds = max_pause_seconds
        self._slots = asyncio.Semaphore(MAX_PARALLEL_UPLOADS)
        self._stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._logs: dict[str, ActionLog] = {}
        self._kept: deque[ActionLog] = deque()
        self.unfinished: set[ActionLog] = set()

    def find(self, invocation: str) -> Optional[ActionLog]:
        """Return the log of an invocation that runs or has just ended, or None."""
        return self._logs.get(invocation)

    def begin(self, context: Context, on_stored: Callable[[], None]) -> None:
        """Keep the log of an invocation from now on; ``on_stored`` is called when all of it is stored or given up."""
        log = self._logs[context.invocation] = ActionLog(self._directory / uuid.uuid4().hex)
        context.log_copy = log.append
        self._tasks.spawn(self._keep(context, log, on_stored))

    def end(self, context: Context) -> None:
        """Record that an invocation has ended; the rest of its log is stored beside other work."""
        context.log_copy = None
        log = self._logs.get(context.invocation)
        if log is not None and not log.ended.is_set():
            self.unfinished.add(log)
            log.end()

    def stop(self) -> None:
        """Give the logs of ended actions little more time, because the adapter ends."""
        if not self._stopping.done():
            self._stopping.set_result(None)
        for log in self._kept:
            log.released.set()

    async def _keep(self, context: Context, log: ActionLog, on_stored: Callable[[], None]) -> None:
        uploading = Context("", context.action, self._directory, lambda _: None, lambda _: None)
        storing = asyncio.ensure_future(self._store(context.invocation, uploading, log))
        try:
            await log.ended.wait()
            done, _ = await asyncio.wait(
                {storing, self._stopping}, timeout=END_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if storing not in done and done:
                await asyncio.wait({storing}, timeout=STOP_SECONDS)
            if storing.done():
                storing.result()
            abandon(storing)
            uploading.cancel()
            self.unfinished.discard(log)
            on_stored()
            await self._keep_for_readers(log)
        finally:
            uploading.cancel()
            abandon(storing)
            self.unfinished.discard(log)
            if self._logs.get(context.invocation) is log:
                del self._logs[context.invocation]
            log.path.unlink(missing_ok=True)

    async def _keep_for_readers(self, log: ActionLog) -> None:
        if not log.size or self._stopping.done():
            return
        self._kept.append(log)
        if len(self._kept) > MAX_KEPT:
            self._kept.popleft().released.set()
        with contextlib.suppress(asyncio.TimeoutError):
            await within(KEPT_SECONDS, log.released.wait())
        with contextlib.suppress(ValueError):
            self._kept.remove(log)

    async def _store(self, invocation: str, uploading: Context, log: ActionLog) -> None:
        """Store the log in parts until the action has ended and all of it is stored."""
        started, stored = time.monotonic(), 0
        parts: list[dict[str, Any]] = []
        while True:
            pause = max(MIN_PAUSE_SECONDS, PAUSE_SHARE * (time.monotonic() - started))
            with contextlib.suppress(asyncio.TimeoutError):
                await within(min(pause, self._max_pause_seconds), log.due.wait())
            ended, size = log.ended.is_set(), log.size
            if size > stored and self._has_store():
                if len(parts) >= MAX_LOG_PARTS:
                    stored, parts = 0, []
                with contextlib.suppress(ActionError, OSError):  # The next part contains these lines, too.
                    parts.append(await self._store_part(uploading, log, stored, size))
                    stored = size
                    await self._report(invocation, parts)
            if ended:
                return
            log.await_part(size)

    async def _store_part(self, uploading: Context, log: ActionLog, start: int, end: int) -> dict[str, Any]:
        """Store a part of a log, and return the reference to it."""
        part, name = log.path.with_suffix(".part"), f"{uploading.action}.log"
        async with self._slots:
            try:
                await run_in_thread(lambda: _copy(log.path, start, end, part))
                uploaded = await self._upload(uploading, part, name, "text/plain", name)
            finally:
                part.unlink(missing_ok=True)
        return {"file": uploaded["file"], "bytes": uploaded["bytes"]}

    async def _report(self, invocation: str, parts: list[dict[str, Any]]) -> None:
        key = make_event_key(Event.LOG, self._bootstrap.broker.identity, self._bootstrap.worker_uid)
        body = encode({"worker": self._bootstrap.worker, "invocation": invocation, "parts": parts})
        await self._current.publish_until_routed(EVENTS_EXCHANGE, key, Event.LOG.value, body)


def _copy(source: Path, start: int, end: int, target: Path) -> None:
    """Copy a range of a file."""
    with source.open("rb") as file, target.open("wb") as part:
        file.seek(start)
        for block in read_blocks(file, end - start):
            part.write(block)
