# SPDX-License-Identifier: Apache-2.0
"""The chunks of studies that an adapter has accepted, from the request to the confirmed result.

Chunks obey the rules of Async invocations (:mod:`simyard_adapter.work`): a chunk is in the journal before its request
is acknowledged, and its result stays there until the broker has confirmed it. Its tasks run one after the other. Each
task takes a turn of its own, and takes it only while no invocation waits. So a chunk delays a call by one task at most,
and the worker stays open to calls from the pool's queue. The tasks of several studies alternate. If calls never cease,
tasks still get a share of the time (:data:`CALLS_SHARE`), so that no stream of calls holds up a study for ever.

The rows of a finished chunk go to the file store, and only a summary goes to the control plane. A store that is away
holds up the upload, and not the tasks of the next chunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Protocol

from simyard_adapter.answers import Answers
from simyard_adapter.bootstrap import Bootstrap
from simyard_adapter.chunk_rows import RowFile
from simyard_adapter.chunks import MAX_ROW_BYTES, ChunkRequest, Row
from simyard_adapter.context import Context
from simyard_adapter.current_session import Tasks
from simyard_adapter.declarations import Json
from simyard_adapter.errors import FileTransferError, HungError
from simyard_adapter.invocations import ActionRequest, Delivery, Outcome, RefusedError, Turns
from simyard_adapter.journal import Entry, Journal, JournalState
from simyard_adapter.logs import WorkerLog
from simyard_adapter.results import Results
from simyard_adapter.running import MAX_HANG_SECONDS, await_outcome
from simyard_adapter.wire import ErrorReason, WireError

MAX_CHUNKS = 64
CALLS_SHARE = 4.0
"""The time that waiting calls have before the next task, as a multiple of the duration of the last one."""
FIRST_TASK_SECONDS = 1.0
"""The assumed duration of the first task."""


class TaskFiles(Protocol):
    """The access of tasks to files (:class:`simyard_adapter.worker_files.WorkerFiles`)."""

    async def invoke(self, context: Context, request: ActionRequest) -> Mapping[str, Json]:
        """Run an action with its files."""
        ...

    async def upload_part(self, invocation: str, path: Path, summary: Mapping[str, Any]) -> bool:
        """Upload the table of a chunk; return False if the store has one already."""
        ...


@dataclass(eq=False)
class Chunk:
    """An accepted chunk whose rows are not complete yet.

    Attributes:
        id: The id of its request.
        name: A file name that is derived from the id.
        request: The request.
        rows: Its finished tasks.
        attempts: The number of failed attempts of the next task.
        begun: True if a task may have begun.
        ready: True if this process may run its tasks: the begin is known where it must be.
        cancelled: True if the remaining tasks must not run.
        context: The running task, if any.
    """

    id: str
    name: str
    request: ChunkRequest
    rows: RowFile
    begun: bool = False
    attempts: int = 0
    ready: bool = False
    cancelled: bool = False
    context: Optional[Context] = None

    @property
    def study(self) -> str:
        """The uid of the study."""
        return self.id.partition(".")[0]

    @property
    def index(self) -> int:
        """The index of the next task."""
        return self.request.first + self.rows.rows

    @property
    def complete(self) -> bool:
        """True if every task has a row."""
        return self.rows.rows == len(self.request.points)


class ChunkWork:
    """The chunks of one adapter."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        files: TaskFiles,
        directory: Path,
        journal: Journal,
        results: Results,
        answers: Answers,
        tasks: Tasks,
        turns: Turns,
        log: WorkerLog,
        on_change: Callable[[], None],
        hang_seconds: float = MAX_HANG_SECONDS,
    ) -> None:
        """Create an empty set of chunks; ``on_change`` is called after each turn. Others as in ``Work``."""
        self._bootstrap = bootstrap
        self._files = files
        self._rows = directory / "chunks"
        self._scratch = directory / "scratch"
        self._journal = journal
        self._results = results
        self._answers = answers
        self._tasks = tasks
        self._turns = turns
        self._log = log
        self._on_change = on_change
        self._hang_seconds = hang_seconds
        self._draining = False
        self._chunks: dict[str, Chunk] = {}
        self._last_study = ""
        self._waits_since = 0.0
        self._last_seconds = FIRST_TASK_SECONDS

    def list_running(self) -> list[Context]:
        """Return the context of the running task, if any."""
        return [chunk.context for chunk in self._chunks.values() if chunk.context is not None]

    def list_accepted(self) -> list[str]:
        """Return the ids of the chunks that have no result yet."""
        return list(self._chunks)

    async def handle_request(self, delivery: Delivery) -> None:
        """Accept a chunk, or send the result of a finished one again."""
        try:
            if not delivery.id:
                raise RefusedError(ErrorReason.INVALID_REQUEST, "the request has no message_id property")
            entry = await self._journal.find(delivery.id)
            if entry is None:
                self._admit()
                request = ChunkRequest.read(delivery.parse_body(), self._bootstrap.interface)
                if await self._journal.accept(delivery.id, delivery.message.body):
                    self._add(delivery.id, request)
            elif entry.result:
                await self._results.publish(entry.result)
        except RefusedError as refused:
            self._log.info("chunk refused: %s", refused, extra={"invocation": delivery.id})
            await self._results.publish(self._results.encode(delivery.id, Outcome(error=refused.error).to_result()))
        await self._answers.acknowledge(delivery)

    def _admit(self) -> None:
        if self._draining:
            raise RefusedError(ErrorReason.DRAINING, "the worker drains and accepts no new chunks")
        if len(self._chunks) >= MAX_CHUNKS:
            raise RefusedError(ErrorReason.BUSY, "too many chunks wait on this worker")

    def _add(self, chunk_id: str, request: ChunkRequest) -> Chunk:
        if self._choose() is None:
            self._waits_since = asyncio.get_running_loop().time()
        name = hashlib.sha256(chunk_id.encode()).hexdigest()[:32]
        rows = RowFile(self._rows / f"{name}.rows", request.first)
        chunk = self._chunks[chunk_id] = Chunk(chunk_id, name, request, rows)
        self._log.info("chunk of %d tasks accepted", len(request.points), extra={"invocation": chunk_id})
        self._on_change()
        return chunk

    async def recover(self, entry: Entry) -> None:
        """Continue a chunk that an earlier adapter in this directory accepted.

        Raises:
            RefusedError: The interface has changed, and does not declare the action any more.
        """
        request = ChunkRequest.read(json.loads(entry.request), self._bootstrap.interface)
        chunk = self._add(entry.id, request)
        chunk.begun = entry.state is JournalState.STARTED
        if chunk.rows.interrupted:
            error = WireError(ErrorReason.INTERRUPTED, "the worker's adapter ended while the task ran")
            chunk.rows.add(Row(chunk.index, 1, error=error))
        if chunk.complete:
            self._conclude(chunk)

    def start_next(self) -> None:
        """Let tasks take turns until an invocation waits."""
        if self._turns.free_for_task and self._choose() is not None:
            self._start(owed=False)

    def start_owed(self) -> None:
        """Let one task take its turn before the invocations that wait, if these have had their share of the time."""
        waited = asyncio.get_running_loop().time() - self._waits_since
        if self._turns.between_turns and waited >= CALLS_SHARE * self._last_seconds and self._choose() is not None:
            self._start(owed=True)

    def _start(self, *, owed: bool) -> None:
        self._turns.held_by_task = True
        self._tasks.spawn(self._take_turns(owed=owed))

    def _choose(self) -> Optional[Chunk]:
        """Return the chunk whose turn it is: studies alternate, and the chunks of a study run in order."""
        oldest: dict[str, Chunk] = {}
        for chunk in self._chunks.values():
            if not chunk.complete:
                oldest.setdefault(chunk.study, chunk)
        studies = sorted(oldest)
        return oldest[next((it for it in studies if it > self._last_study), studies[0])] if studies else None

    async def _take_turns(self, *, owed: bool) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while self._turns.running is None and (owed or not self._turns.waiting) and not self._turns.closed:
                chunk = self._choose()
                if chunk is None:
                    return
                owed, self._last_study, began = False, chunk.study, clock()
                await self._run_next(chunk)
                self._waits_since = clock()
                self._last_seconds = self._waits_since - began
        finally:
            self._turns.held_by_task = False
            self._on_change()

    async def _run_next(self, chunk: Chunk) -> None:
        """Run the next task of a chunk, once."""
        if not chunk.ready and not chunk.cancelled:
            await self._begin(chunk)
        if chunk.cancelled:
            self._fill(chunk)
        else:
            await self._attempt(chunk)
        if chunk.complete:
            self._conclude(chunk)

    async def _begin(self, chunk: Chunk) -> None:
        chunk.begun = True
        if not chunk.request.action.idempotent:  # an earlier announcement may be lost, and a second one does no harm
            await self._results.announce_begin(chunk.id)
        await self._journal.move(chunk.id, JournalState.STARTED)
        chunk.ready = True

    async def _attempt(self, chunk: Chunk) -> None:
        index, request = chunk.index, chunk.request
        try:
            task = request.make_task(index - request.first)
        except RefusedError as refused:
            chunk.rows.add(Row(index, error=refused.error))
            return
        if not request.action.idempotent:
            await asyncio.get_running_loop().run_in_executor(None, chunk.rows.mark_begin, index)
        context = self._make_context(chunk, index)
        work = asyncio.ensure_future(self._files.invoke(context, task))
        chunk.context = context
        try:
            outcome = await await_outcome(work, context, task, MAX_ROW_BYTES)
            self._record(chunk, index, outcome)
            if not work.done():
                await self._await_end(work, context)
        finally:
            chunk.context = None
            context.stop(ErrorReason.INTERRUPTED)
            work.cancel()
        if context.has_directory:
            await asyncio.get_running_loop().run_in_executor(None, context.remove_directory)

    def _record(self, chunk: Chunk, index: int, outcome: Outcome) -> None:
        """Add the row of a task that has ended, unless the task runs again."""
        chunk.attempts += 1
        error = outcome.error
        if error is not None:
            self._log.info("task %d: %s: %s", index, error.reason.value, error.message, extra={"invocation": chunk.id})
            if error.reason is ErrorReason.INTERRUPTED and chunk.request.action.idempotent:
                return
            if chunk.request.may_retry(chunk.attempts, error) and not chunk.cancelled:
                return
        chunk.rows.add(Row.from_outcome(index, chunk.attempts, outcome))
        chunk.attempts = 0

    async def _await_end(self, work: "asyncio.Future[Any]", context: Context) -> None:
        self._log.warning("%s ignores the request to stop; the next task waits for its end", context.action)
        await asyncio.wait({work}, timeout=self._hang_seconds)
        if not work.done():
            self._turns.closed = True  # No other action gets the turn: the end of the adapter would interrupt it.
            raise HungError(
                f"the action {context.action} still runs {self._hang_seconds:g} s after it was asked to stop"
            )

    def _make_context(self, chunk: Chunk, index: int) -> Context:
        def log(text: str) -> None:
            self._log.info("%s", text, extra={"invocation": chunk.id})

        directory = self._scratch / f"{chunk.name}.{index}.{chunk.attempts}"
        return Context(chunk.id, chunk.request.action.name, directory, lambda _: None, log)

    def _fill(self, chunk: Chunk) -> None:
        """Give every remaining task of a cancelled chunk its row."""
        error = WireError(ErrorReason.CANCELLED, "the study was cancelled before the task began")
        while not chunk.complete:
            chunk.rows.add(Row(chunk.index, error=error))

    def _conclude(self, chunk: Chunk) -> None:
        self._tasks.spawn(self._deliver(chunk))

    async def _deliver(self, chunk: Chunk) -> None:
        """Upload the rows of a complete chunk, and send its result."""
        chunk.rows.close()
        worker = self._bootstrap.worker
        try:
            pack = asyncio.get_running_loop().run_in_executor(None, chunk.rows.pack, chunk.request, worker)
            path, summary = await pack
            stored = await self._files.upload_part(chunk.id, path, summary.to_json())
            body: dict[str, Any] = {"chunk": summary.to_json(), "stored": stored}
        except FileTransferError as error:
            self._log.warning("the rows of the chunk are lost: %s", error, extra={"invocation": chunk.id})
            body = Outcome(error=WireError(ErrorReason.FILE_TRANSFER_FAILED, str(error))).to_result()
        await self._finish(chunk, body)

    async def _finish(self, chunk: Chunk, body: Mapping[str, Any]) -> None:
        await self._results.finish(chunk.id, body)
        self._chunks.pop(chunk.id, None)
        with contextlib.suppress(OSError):
            chunk.rows.remove()
        self._on_change()

    def cancel(self, chunk_id: str) -> bool:
        """Cancel a chunk; return False if there is none with this id.

        A chunk that was begun gets a row for each task. A chunk that was not begun ends without rows.
        """
        chunk = self._chunks.get(chunk_id)
        if chunk is None or chunk.complete:
            return False
        chunk.cancelled = True
        if chunk.context is not None:
            chunk.context.cancel()
        elif not chunk.begun:
            self._return(chunk, ErrorReason.CANCELLED, "the chunk was cancelled before it began")
        self.start_next()
        return True

    def drain(self) -> None:
        """Accept no new chunks, and give back those that have not begun."""
        self._draining = True
        for chunk in list(self._chunks.values()):
            if not chunk.begun:
                self._return(chunk, ErrorReason.DRAINING, "the worker drains and had not begun the chunk")

    def _return(self, chunk: Chunk, reason: ErrorReason, message: str) -> None:
        """End a chunk that has not begun."""
        del self._chunks[chunk.id]
        outcome = Outcome(error=WireError(reason, message))
        self._tasks.spawn(self._finish(chunk, outcome.to_result()))

    def stop(self) -> None:
        """Stop the running task; the next adapter in this directory goes on with the chunks."""
        for context in self.list_running():
            context.stop(ErrorReason.INTERRUPTED)
