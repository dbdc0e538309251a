# SPDX-License-Identifier: Apache-2.0
"""The invocations of one adapter, from the request to the confirmed reply.

An adapter or its broker can die at any moment, and every request can arrive twice. The invariant: one invocation id
runs at most once on a living worker, and no accepted Async invocation is lost. Sync replies are remembered and sent
again to duplicates. Async requests are in the journal before they are acknowledged, and their results stay there until
the broker has confirmed them. Acknowledging first would lose the request at a crash; running first would run it twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from pathlib import Path
from typing import Awaitable, Callable, Optional

from simyard_adapter.action_logs import ActionLogs
from simyard_adapter.answers import Answers
from simyard_adapter.bootstrap import Bootstrap
from simyard_adapter.chunk_work import ChunkWork, TaskFiles
from simyard_adapter.context import Context
from simyard_adapter.current_session import CurrentSession, Tasks
from simyard_adapter.deadline import within
from simyard_adapter.declarations import ActionMode
from simyard_adapter.errors import HungError
from simyard_adapter.invocations import (
    ActionRequest,
    BusyError,
    Delivery,
    Invocation,
    Outcome,
    RefusedError,
    Replies,
    Turns,
    UncertainError,
    is_full,
    must_not_run,
)
from simyard_adapter.journal import Journal, JournalState
from simyard_adapter.logs import WorkerLog
from simyard_adapter.programs import clear_leftovers
from simyard_adapter.results import Results
from simyard_adapter.running import MAX_HANG_SECONDS, await_outcome, build_stop_error
from simyard_adapter.transport import Session, encode
from simyard_adapter.updates import Updates
from simyard_adapter.wire import ErrorReason, WireError


class Work:
    """The accepted invocations of one adapter.

    Attributes:
        turns: The invocations of exclusive actions.
        quiet: Set while no invocation runs, waits, or has an unsent reply or a log that is being stored.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        files: TaskFiles,
        directory: Path,
        current: CurrentSession,
        tasks: Tasks,
        updates: Updates,
        log: WorkerLog,
        logs: ActionLogs,
        on_change: Callable[[], None],
        hang_seconds: float = MAX_HANG_SECONDS,
    ) -> None:
        """Create an empty set of invocations; ``on_change`` is called when ``turns`` may have changed.

        ``hang_seconds`` is the time that a stopped action may block other actions before the adapter ends.
        """
        self._hang_seconds = hang_seconds
        self.turns = Turns()
        self.quiet = asyncio.Event()
        self._bootstrap = bootstrap
        self._invoke = files.invoke
        self._scratch = directory / "scratch"
        self._journal = Journal(directory / "journal.sqlite3")
        self._tasks = tasks
        self._updates = updates
        self._log = log
        self._logs = logs
        self._on_change = on_change
        self._replies = Replies()
        self._live: dict[str, Invocation] = {}
        self.results = Results(bootstrap, self._journal, current, tasks, self._changed)
        self.answers = Answers(current, bootstrap.broker.identity, log, self._changed)
        self.chunks = ChunkWork(
            bootstrap, files, directory, self._journal, self.results, self.answers, tasks, self.turns, log,
            self._changed, hang_seconds,
        )  # fmt: skip
        self._draining = False

    async def recover(self) -> None:
        """Continue the work of an earlier adapter in this directory: end its programs and read its journal."""
        if self._scratch.exists():
            ended = await asyncio.get_running_loop().run_in_executor(None, clear_leftovers, self._scratch)
            self._log.info("ended %d programs of an earlier adapter", ended)
        states = (JournalState.WAITING, JournalState.STARTED, JournalState.FINISHED)
        for entry in await self._journal.list_entries(*states):
            if entry.state is JournalState.FINISHED:
                self.results.send_soon(entry.id, entry.result)
                continue
            try:
                body = json.loads(entry.request)
                if "points" in body:
                    await self.chunks.recover(entry)
                    continue
                request = ActionRequest.read(body, self._bootstrap.interface)
                if entry.state is JournalState.STARTED and not request.action.idempotent:
                    raise RefusedError(ErrorReason.INTERRUPTED, "the worker's adapter ended while the action ran")
                self._enqueue(entry.id, request)
            except RefusedError as refused:
                await self.results.finish(entry.id, Outcome(error=refused.error).to_result())
        self._changed()

    def list_running(self) -> list[Context]:
        """Return the contexts of the running invocations."""
        running = [invocation.context for invocation in self._live.values() if invocation.running]
        return running + self.chunks.list_running()

    def list_accepted(self) -> list[str]:
        """Return the ids of the Async invocations and chunks whose result the control plane does not have yet."""
        live = [item.id for item in self._live.values() if not item.synchronous]
        return live + self.chunks.list_accepted() + sorted(self.results.unsent)

    def may_take_from_pool(self, session: Session, *, consuming: bool) -> bool:
        """Return True if this worker may receive requests from the pool's queue: no invocation runs or waits.

        The prefetch of the pool's queue is 1. An unacknowledged Sync request therefore holds back the next one, and the
        consumer need not stop for it.
        """
        if self._draining:
            return False
        running = self.turns.running
        if consuming and running is None and self.turns.held_by_task:
            # The request waits for the end of one task. Back in the queue, it could find other workers with tasks only.
            return all(item.from_pool and item.came_with(session) for item in self.turns.waiting)
        if not consuming or running is None or self.turns.waiting:
            return self.turns.free
        return any(item.from_pool and item.session is session for item in running.deliveries)

    async def handle_request(self, delivery: Delivery, on_accepted: Callable[[], Awaitable[None]]) -> None:
        """Handle a request for an action; ``on_accepted`` is awaited before an Async request is acknowledged."""
        asynchronous = False
        try:
            body = delivery.parse_body()
            asynchronous = body.get("mode") == ActionMode.ASYNC.value
            if not delivery.id:
                raise RefusedError(ErrorReason.INVALID_REQUEST, "the request has no message_id property")
            request = ActionRequest.read(body, self._bootstrap.interface)
            asynchronous = request.mode is ActionMode.ASYNC
            if asynchronous:
                await self._accept_async(delivery, request)
                await on_accepted()
                await self.answers.acknowledge(delivery)
            else:
                await self._accept_sync(delivery, request)
        except RefusedError as refused:
            outcome = Outcome(error=refused.error)
            self._log.info("request refused: %s", refused, extra={"invocation": delivery.id})
            if asynchronous:
                await self.results.publish(self.results.encode(delivery.id, outcome.to_result()))
                await self.answers.acknowledge(delivery)
            else:
                await self.answers.answer(delivery, encode(refused.build_reply()))

    async def _accept_sync(self, delivery: Delivery, request: ActionRequest) -> None:
        reply, live = self._replies.get(delivery.id), self._live.get(delivery.id)
        if reply is not None:
            await self.answers.answer(delivery, reply)
        elif live is not None and live.synchronous:
            live.deliveries.append(delivery)
        elif live is not None:
            raise RefusedError(
                ErrorReason.INVALID_REQUEST, "an Async invocation with the same message_id exists: use a new id"
            )
        else:
            self._admit(delivery, request)
            self._enqueue(delivery.id, request, delivery)

    async def _accept_async(self, delivery: Delivery, request: ActionRequest) -> None:
        entry = await self._journal.find(delivery.id)
        if entry is None:
            self._admit(delivery, request)
            if await self._journal.accept(delivery.id, delivery.message.body):
                self._enqueue(delivery.id, request)
        elif entry.result:
            await self.results.publish(entry.result)

    def _admit(self, delivery: Delivery, request: ActionRequest) -> None:
        """Raise :class:`RefusedError` if a new invocation must not run now."""
        if must_not_run(delivery, request):
            raise UncertainError(again=delivery.from_pool and request.tells_begun)
        if self._draining:
            message = "the worker drains and accepts no new actions: send the request to the pool or to another worker"
            raise RefusedError(ErrorReason.DRAINING, message)
        if is_full(self._live.values(), request):
            raise BusyError

    def _enqueue(self, invocation_id: str, request: ActionRequest, delivery: Optional[Delivery] = None) -> None:
        def log(text: str) -> None:
            self._log.info("%s", text, extra={"invocation": invocation_id})

        def progress(context: Context) -> None:
            if invocation_id in self._live:
                self._updates.record_progress(context)

        directory = self._scratch / hashlib.sha256(invocation_id.encode()).hexdigest()[:32]
        context = Context(invocation_id, request.action.name, directory, progress, log)
        invocation = Invocation(invocation_id, request, context, [delivery] if delivery else [])
        self._live[invocation_id] = invocation
        if request.action.concurrent:
            self._tasks.spawn(self._perform(invocation))
        else:
            self.turns.waiting.append(invocation)
        self._changed()

    def _changed(self) -> None:
        self.chunks.start_owed()
        turn = self.turns.start_next()
        if turn is not None:
            self._tasks.spawn(self._perform(turn))
        self.chunks.start_next()
        unfinished = self._live or self.chunks.list_accepted() or self.results.unsent or self._logs.unfinished
        if unfinished or self.answers.under_way:
            self.quiet.clear()
        else:
            self.quiet.set()
        self._on_change()

    async def _perform(self, invocation: Invocation) -> None:
        """Run an invocation whose turn it is, and send its reply.

        The turn ends when no part of the action runs any more.
        """
        try:
            if invocation.expires is not None and invocation.expires <= asyncio.get_running_loop().time():
                self._log.info("not run: the request has expired", extra={"invocation": invocation.id})
                del self._live[invocation.id]
                for delivery in invocation.deliveries:
                    await self.answers.acknowledge(delivery)
                return
            invocation.running = True
            if invocation.synchronous:
                self._updates.count_serving(1)
                if invocation.tells_begun and not await self.answers.send_begun(invocation.deliveries[-1]):
                    self._give_up(invocation, UncertainError(again=True))
                    return
            else:
                await self._begin(invocation)
            if invocation.context.stopped is None:
                await self._run(invocation)
            else:  # The invocation was stopped before it began.
                error = build_stop_error(invocation.context.stopped, invocation.request)
                await self._conclude(invocation, Outcome(error=error))
        finally:
            if invocation.running and invocation.synchronous:
                self._updates.count_serving(-1)
            if self.turns.running is invocation:
                self.turns.running = None
            self._changed()

    async def _begin(self, invocation: Invocation) -> None:
        """Record that an Async invocation begins, in the journal and, if needed, at the control plane."""
        if invocation.request.action.idempotent:
            invocation.context.progress()
        else:
            await self.results.announce_begin(invocation.id)
        await self._journal.move(invocation.id, JournalState.STARTED)

    def _give_up(self, invocation: Invocation, refused: RefusedError) -> None:
        """Drop an invocation that has not begun; its requester may send it again."""
        self._log.info("not run: %s", refused, extra={"invocation": invocation.id})
        del self._live[invocation.id]
        for delivery in invocation.deliveries:
            self._tasks.spawn(self.answers.answer(delivery, encode(refused.build_reply())))

    async def _run(self, invocation: Invocation) -> None:
        context, request = invocation.context, invocation.request
        if not invocation.synchronous:
            self._logs.begin(context, self._changed)
        work = asyncio.ensure_future(self._invoke(context, request))
        try:
            extra = {"invocation": context.invocation}
            self._log.info("%s: begins", context.action, extra=extra)
            outcome = await await_outcome(work, context, request)
            ended = "done" if outcome.error is None else f"{outcome.error.reason.value}: {outcome.error.message}"
            self._log.info("%s: %s after %.3f s", context.action, ended, outcome.seconds, extra=extra)
            await self._conclude(invocation, outcome)
            self._logs.end(context)
            if not work.done():
                self._log.warning(
                    "%s ignores the request to stop; the next action waits for its end", context.action, extra=extra
                )
                await asyncio.wait({work}, timeout=self._hang_seconds if invocation is self.turns.running else None)
                if not work.done():
                    self.turns.closed = (
                        True  # No other action gets the turn: the end of the adapter would interrupt it.
                    )
                    raise HungError(
                        f"the action {context.action} still runs {self._hang_seconds:g} s after it was asked to stop"
                    )
        finally:
            context.stop(ErrorReason.INTERRUPTED)
            work.cancel()
            self._logs.end(context)
        if context.has_directory:
            await asyncio.get_running_loop().run_in_executor(None, context.remove_directory)

    async def _conclude(self, invocation: Invocation, outcome: Outcome) -> None:
        """Reply to an invocation that has ended, unless it runs again later."""
        if invocation.synchronous:
            del self._live[invocation.id]
            if not invocation.runs_again:
                reply = encode({"worker": self._bootstrap.worker, **outcome.to_json()})
                self._replies.remember(invocation.id, reply)
                for delivery in invocation.deliveries:
                    self._tasks.spawn(self.answers.answer(delivery, reply))
        elif invocation.runs_again:
            await self._journal.move(invocation.id, JournalState.WAITING)
            del self._live[invocation.id]
        else:
            await self.results.finish(invocation.id, outcome.to_result())
            del self._live[invocation.id]
        self._updates.forget(invocation.id)
        self._changed()

    def cancel(self, invocation_id: str) -> bool:
        """Cancel an invocation or chunk that runs or waits; return False if there is none with this id."""
        invocation = self._live.get(invocation_id)
        if invocation is None:
            return self.chunks.cancel(invocation_id)
        invocation.context.cancel()
        if invocation in self.turns.waiting:
            self.turns.waiting.remove(invocation)
            error = WireError(ErrorReason.CANCELLED, "the action was cancelled before it began")
            self._tasks.spawn(self._conclude(invocation, Outcome(error=error)))
        return True

    def drain(self) -> None:
        """Accept no new actions."""
        self._draining = True
        self.chunks.drain()
        self._changed()

    def return_to_pool(self) -> None:
        """Return waiting requests of the pool, so that other workers take them; a draining worker keeps them."""
        if not self._draining:
            for invocation in self.turns.take_waiting(lambda item: item.from_pool and item.request.tells_begun):
                self._give_up(invocation, BusyError(again=True))

    def drop_session(self, session: Session) -> None:
        """Drop the waiting invocations that came from the pool's queue: the broker delivers them to another worker."""
        for invocation in self.turns.take_waiting(lambda item: item.from_pool and item.came_with(session)):
            del self._live[invocation.id]
        self._changed()

    async def stop(self, timeout: float) -> None:
        """End gracefully, within ``timeout`` seconds: stop running invocations and send the replies.

        Waiting Sync invocations are refused; waiting Async invocations stay in the journal.
        """
        self.turns.closed = self._draining = True
        for invocation in self.turns.take_waiting(lambda _: True):
            if invocation.synchronous:
                error = WireError(ErrorReason.DRAINING, "the worker ended before the action began")
                await self._conclude(invocation, Outcome(error=error))
            else:
                del self._live[invocation.id]
        for context in self.list_running():
            context.stop(ErrorReason.INTERRUPTED)
        self._logs.stop()
        self._changed()
        with contextlib.suppress(asyncio.TimeoutError):
            await within(timeout, self.quiet.wait())

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()
