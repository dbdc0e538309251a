"""The invocations of one adapter, from the request to the confirmed answer."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from typing import Awaitable, Callable, Optional

from simyard_adapter.answers import Answers
from simyard_adapter.backend import Backend
from simyard_adapter.bootstrap import Bootstrap
from simyard_adapter.context import Context
from simyard_adapter.deadline import within
from simyard_adapter.declarations import ActionMode
from simyard_adapter.errors import HungError
from simyard_adapter.invocations import (
    ActionRequest,
    Delivery,
    Invocation,
    Outcome,
    RefusedError,
    Replies,
    Turns,
    UncertainError,
    must_not_run,
)
from simyard_adapter.journal import Journal, State
from simyard_adapter.link import Link, Tasks
from simyard_adapter.logs import WorkerLog
from simyard_adapter.news import News
from simyard_adapter.programs import end_leftovers
from simyard_adapter.running import HANG_SECONDS, outcome_of, stop_error
from simyard_adapter.transport import Session, encode
from simyard_adapter.wire import (
    EVENTS_EXCHANGE,
    Event,
    Reason,
    WireError,
    event_key,
    worker_queue,
)

SYNC_LIMIT = 9
CONCURRENT_SYNC_LIMIT = 14
"""How many Sync invocations may be there when one more comes, and when one more of a concurrent action comes (a cancel,
say): fewer than the prefetch of 16, so that requests of other kinds always get through."""

ASYNC_LIMIT = 1000
CONCURRENT_ASYNC_LIMIT = 32


class Work:
    """The invocations that are accepted, run and answered.

    Attributes:
        turns: those of exclusive actions.
        quiet: set while nothing runs, waits, or is still to be answered.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        backend: Backend,
        directory: Path,
        link: Link,
        tasks: Tasks,
        news: News,
        log: WorkerLog,
        on_change: Callable[[], None],
        hang_seconds: float = HANG_SECONDS,
    ) -> None:
        """``on_change`` is called when ``turns`` may have changed.

        ``hang_seconds``: how long an action that was stopped may keep others from their turn before the adapter ends.
        """
        self._hang_seconds = hang_seconds
        self.turns = Turns()
        self.quiet = asyncio.Event()
        self._bootstrap = bootstrap
        self._backend = backend
        self._scratch = directory / "scratch"
        self._journal = Journal(directory / "journal.sqlite3")
        self._link = link
        self._tasks = tasks
        self._news = news
        self._log = log
        self._on_change = on_change
        self._replies = Replies()
        self._live: dict[str, Invocation] = {}
        self._unsent: set[str] = set()
        self.answers = Answers(link, bootstrap.broker.identity, log, self._changed)
        self._draining = False
        self._stopping = False

    async def recover(self) -> None:
        """Continue what an earlier adapter in this directory left: its programs are ended, its journal is read on."""
        if self._scratch.exists():
            ended = await asyncio.get_running_loop().run_in_executor(None, self._clear_scratch)
            self._log.info("ended %d programs that an earlier adapter left", ended)
        for entry in await self._journal.entries(State.WAITING, State.STARTED, State.FINISHED):
            if entry.state is State.FINISHED:
                self._unsent.add(entry.id)
                self._tasks.spawn(self._send(entry.id, entry.result))
                continue
            try:
                request = ActionRequest.read(json.loads(entry.request), self._bootstrap.interface)
                if entry.state is State.STARTED and not request.action.idempotent:
                    raise RefusedError(Reason.INTERRUPTED, "the worker's adapter ended while it ran")
                self._enqueue(entry.id, request)
            except RefusedError as refused:
                await self._finish(entry.id, Outcome(error=refused.error))
        self._changed()

    def _clear_scratch(self) -> int:
        ended = end_leftovers(self._scratch)
        shutil.rmtree(self._scratch, ignore_errors=True)
        return ended

    def running(self) -> list[Context]:
        """The invocations that run now."""
        return [invocation.context for invocation in self._live.values() if invocation.running]

    def accepted(self) -> list[str]:
        """The Async invocations whose result the control plane does not have yet."""
        return [item.id for item in self._live.values() if not item.synchronous] + sorted(self._unsent)

    def may_take_from_pool(self, session: Session, *, consuming: bool) -> bool:
        """This worker is free for the pool's queue: nothing runs or waits.

        An unacknowledged Sync invocation from there holds back the next one by itself (the prefetch is 1), so that a
        consumer need not be stopped for it.
        """
        if self._draining:
            return False
        running = self.turns.running
        if not consuming or running is None or self.turns.waiting:
            return self.turns.free
        return any(item.from_pool and item.session is session for item in running.deliveries)

    async def request(self, delivery: Delivery, on_taken: Callable[[], Awaitable[None]]) -> None:
        """Take a request for an action; ``on_taken`` is awaited before an Async one is acknowledged."""
        asynchronous = False
        try:
            body = delivery.body()
            asynchronous = body.get("mode") == ActionMode.ASYNC.value
            if not delivery.id:
                raise RefusedError(Reason.INVALID_REQUEST, "the request has no message id")
            request = ActionRequest.read(body, self._bootstrap.interface)
            asynchronous = request.mode is ActionMode.ASYNC
            if asynchronous:
                await self._take_async(delivery, request)
                await on_taken()
                await self.answers.acknowledge(delivery)
            else:
                await self._take_sync(delivery, request)
        except RefusedError as refused:
            outcome = Outcome(error=refused.error)
            self._log.info("refused: %s", refused, extra={"invocation": delivery.id})
            if asynchronous:
                await self._link.publish_surely(*self._result_event(self._result(delivery.id, outcome)))
                await self.answers.acknowledge(delivery)
            else:
                await self.answers.answer(delivery, encode(refused.reply()))

    async def _take_sync(self, delivery: Delivery, request: ActionRequest) -> None:
        reply, live = self._replies.get(delivery.id), self._live.get(delivery.id)
        if reply is not None:
            await self.answers.answer(delivery, reply)
        elif live is not None and live.synchronous:
            live.deliveries.append(delivery)
        elif live is not None:
            raise RefusedError(Reason.INVALID_REQUEST, "an Async invocation has this id")
        else:
            self._admit(delivery, request)
            self._enqueue(delivery.id, request, delivery)

    async def _take_async(self, delivery: Delivery, request: ActionRequest) -> None:
        entry = await self._journal.find(delivery.id)
        if entry is None:
            self._admit(delivery, request)
            if await self._journal.accept(delivery.id, delivery.message.body):
                self._enqueue(delivery.id, request)
        elif entry.result:
            await self._link.publish_surely(*self._result_event(entry.result))

    def _admit(self, delivery: Delivery, request: ActionRequest) -> None:
        """Refuse what is not known yet and may not be run now."""
        if must_not_run(delivery, request):
            raise UncertainError(again=delivery.from_pool and request.tells_begun)
        if self._draining:
            raise RefusedError(Reason.DRAINING, "the worker takes no new actions")
        concurrent, synchronous = request.action.concurrent, request.mode is ActionMode.SYNC
        live = [item for item in self._live.values() if item.synchronous == synchronous]
        if synchronous:
            full = len(live) >= (CONCURRENT_SYNC_LIMIT if concurrent else SYNC_LIMIT)
        elif concurrent:
            full = sum(item.request.action.concurrent for item in live) >= CONCURRENT_ASYNC_LIMIT
        else:
            full = len(live) >= ASYNC_LIMIT
        if full:
            raise RefusedError(Reason.BUSY, "too many invocations run or wait on this worker")

    def _enqueue(self, invocation_id: str, request: ActionRequest, delivery: Optional[Delivery] = None) -> None:
        def log(text: str) -> None:
            self._log.info("%s", text, extra={"invocation": invocation_id})

        def progress(context: Context) -> None:
            if invocation_id in self._live:
                self._news.progress(context)

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
        turn = None if self._stopping else self.turns.next()
        if turn is not None:
            self._tasks.spawn(self._perform(turn))
        if self._live or self._unsent or self.answers.under_way:
            self.quiet.clear()
        else:
            self.quiet.set()
        self._on_change()

    async def _perform(self, invocation: Invocation) -> None:
        """Run an invocation whose turn it is, and settle it. Its turn ends when nothing of it runs any more."""
        try:
            if invocation.expires is not None and invocation.expires <= asyncio.get_running_loop().time():
                self._log.info("not run: nobody waits for it any more", extra={"invocation": invocation.id})
                del self._live[invocation.id]
                for delivery in invocation.deliveries:
                    await self.answers.acknowledge(delivery)
                return
            invocation.running = True
            if invocation.synchronous:
                self._news.serving(1)
                if invocation.tells_begun and not await self.answers.tell_begun(invocation.deliveries[-1]):
                    self._give_up(invocation)
                    return
            else:
                await self._begin(invocation)
            if invocation.context.stopped is None:
                await self._run(invocation)
            else:  # while it was written down
                error = stop_error(invocation.context.stopped, invocation.request)
                await self._settle(invocation, Outcome(error=error))
        finally:
            if invocation.running and invocation.synchronous:
                self._news.serving(-1)
            if self.turns.running is invocation:
                self.turns.running = None
            self._changed()

    async def _begin(self, invocation: Invocation) -> None:
        """Write down that an Async invocation begins, and tell.

        Of one that must not run twice the control plane is told first, so that it can give what this worker never
        began to another one: what comes here after the queue was deleted never begins.
        """
        if invocation.request.action.idempotent:
            invocation.context.progress()
        else:
            key = event_key(Event.BEGUN, self._bootstrap.broker.identity, self._bootstrap.worker_uid)
            body = encode({"worker": self._bootstrap.worker, "invocation": invocation.id})
            await self._link.publish_surely(EVENTS_EXCHANGE, key, Event.BEGUN.value, body)
            await self._link.see_queue(worker_queue(self._bootstrap.broker.identity, self._bootstrap.worker_uid))
        await self._journal.move(invocation.id, State.STARTED)

    def _give_up(self, invocation: Invocation) -> None:
        """It did not begin, and whoever is given it next cannot know that: only its requester can."""
        self._log.info("not run: it may be another worker's by now", extra={"invocation": invocation.id})
        del self._live[invocation.id]
        for delivery in invocation.deliveries:
            self._tasks.spawn(self.answers.answer(delivery, encode(UncertainError(again=True).reply())))

    async def _run(self, invocation: Invocation) -> None:
        context, request = invocation.context, invocation.request
        work = asyncio.ensure_future(self._backend.invoke(context, request.parameters))
        try:
            outcome = await outcome_of(work, context, request)
            ended = "done" if outcome.error is None else f"{outcome.error.reason.value}: {outcome.error.message}"
            extra = {"invocation": context.invocation}
            self._log.info("%s: %s after %.3f s", context.action, ended, outcome.seconds, extra=extra)
            await self._settle(invocation, outcome)
            if not work.done():
                self._log.warning("%s ignores its stop; the next one waits for its end", context.action, extra=extra)
                held = invocation is self.turns.running
                await asyncio.wait({work}, timeout=self._hang_seconds if held else None)
                if not work.done():
                    self._stopping = True  # nobody else gets the turn: it would be interrupted
                    raise HungError(f"{context.action} still runs {self._hang_seconds:g} s after it was stopped")
        finally:
            context.stop(Reason.INTERRUPTED)
            work.cancel()
        if context.has_directory:
            await asyncio.get_running_loop().run_in_executor(None, context.remove_directory)

    async def _settle(self, invocation: Invocation, outcome: Outcome) -> None:
        """Answer an invocation that has ended, unless it is to be run again."""
        if invocation.synchronous:
            del self._live[invocation.id]
            if not invocation.runs_again:
                reply = encode({"worker": self._bootstrap.worker, **outcome.to_json()})
                self._replies.remember(invocation.id, reply)
                for delivery in invocation.deliveries:
                    self._tasks.spawn(self.answers.answer(delivery, reply))
        elif invocation.runs_again:
            await self._journal.move(invocation.id, State.WAITING)
            del self._live[invocation.id]
        else:
            await self._finish(invocation.id, outcome)
            del self._live[invocation.id]
        self._news.forget(invocation.id)
        self._changed()

    async def _finish(self, invocation_id: str, outcome: Outcome) -> None:
        """Keep the result of an Async invocation, and send it."""
        result = self._result(invocation_id, outcome)
        await self._journal.finish(invocation_id, result)
        self._unsent.add(invocation_id)
        self._tasks.spawn(self._send(invocation_id, result))

    def _result(self, invocation_id: str, outcome: Outcome) -> bytes:
        return encode(
            {
                "worker": self._bootstrap.worker,
                "invocation": invocation_id,
                "startedAt": outcome.started_at,
                **outcome.to_json(),
            }
        )

    def _result_event(self, result: bytes) -> tuple[str, str, str, bytes]:
        key = event_key(Event.RESULT, self._bootstrap.broker.identity, self._bootstrap.worker_uid)
        return EVENTS_EXCHANGE, key, Event.RESULT.value, result

    async def _send(self, invocation_id: str, result: bytes) -> None:
        await self._link.publish_surely(*self._result_event(result))
        await self._journal.confirm(invocation_id)
        self._unsent.discard(invocation_id)
        self._changed()

    def cancel(self, invocation_id: str) -> bool:
        """Cancel an invocation that runs or waits; False if there is none."""
        invocation = self._live.get(invocation_id)
        if invocation is None:
            return False
        invocation.context.cancel()
        if invocation in self.turns.waiting:
            self.turns.waiting.remove(invocation)
            error = WireError(Reason.CANCELLED, "it was cancelled before it began")
            self._tasks.spawn(self._settle(invocation, Outcome(error=error)))
        return True

    def drain(self) -> None:
        """Take nothing new."""
        self._draining = True
        self._changed()

    def session_lost(self, session: Session) -> None:
        """Give up what waits here and came from the pool's queue: the broker gives it to another worker."""
        for invocation in list(self.turns.waiting):
            if invocation.deliveries and all(
                item.from_pool and item.session is session for item in invocation.deliveries
            ):
                self.turns.waiting.remove(invocation)
                del self._live[invocation.id]
        self._changed()

    async def stop(self, timeout: float) -> None:
        """End gracefully: what waits is refused or stays in the journal, what runs is stopped, answers go out."""
        self._stopping = self._draining = True
        for invocation in list(self.turns.waiting):
            self.turns.waiting.remove(invocation)
            if invocation.synchronous:
                error = WireError(Reason.DRAINING, "the worker ended before it began")
                await self._settle(invocation, Outcome(error=error))
            else:
                del self._live[invocation.id]
        for context in self.running():
            context.stop(Reason.INTERRUPTED)
        self._changed()
        with contextlib.suppress(asyncio.TimeoutError):
            await within(timeout, self.quiet.wait())

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()
