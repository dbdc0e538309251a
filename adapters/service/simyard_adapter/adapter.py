# SPDX-License-Identifier: Apache-2.0
"""An adapter: a connector, a session with the broker, and the requests that arrive through it.

A session ends when its connection breaks, its queue is deleted, or the worker's login changes; the next one follows.
Accepted invocations and unsent results belong to the adapter and not to a session, so they survive this change.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from pathlib import Path
from typing import Any, Mapping, Optional

from aiormq.abc import AbstractChannel, DeliveredMessage

from simyard_adapter import __version__
from simyard_adapter.action_logs import ActionLogs
from simyard_adapter.attribute_requests import AttributeRequests
from simyard_adapter.backend import Backend, BackendEnvironment
from simyard_adapter.backoff import draw_delay
from simyard_adapter.bootstrap import Bootstrap
from simyard_adapter.consumers import MAX_BACKOFF_SECONDS, WORKER_PREFETCH, Consumer, PoolConsumer
from simyard_adapter.current_session import UNROUTABLE_RETRY_SECONDS, CurrentSession, Tasks
from simyard_adapter.deadline import abandon, within
from simyard_adapter.errors import MachineError, StartError
from simyard_adapter.file_questions import FileQuestions
from simyard_adapter.invocations import Delivery, RefusedError
from simyard_adapter.loading import make_backend, write_files
from simyard_adapter.log_requests import LogRequests
from simyard_adapter.login import Login, read_login, write_login
from simyard_adapter.logs import WorkerLog
from simyard_adapter.running import MAX_HANG_SECONDS
from simyard_adapter.transport import BrokerError, Connections, Session, UnroutableError, encode
from simyard_adapter.updates import Updates
from simyard_adapter.wire import (
    EVENTS_EXCHANGE,
    ErrorReason,
    Event,
    Request,
    make_event_key,
    name_worker_queue,
    parse_identity,
)
from simyard_adapter.work import Work
from simyard_adapter.worker_files import WorkerFiles

STOP_SECONDS = 15.0
HOOK_SECONDS = 5.0


class Adapter:
    """The adapter of one worker. Create it inside the event loop; one loop may run many adapters."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        directory: Path,
        *,
        connections: Optional[Connections] = None,
        hang_seconds: float = MAX_HANG_SECONDS,
    ) -> None:
        """Prepare an adapter; ``directory`` is its own, ``connections`` may belong to all adapters of a broker user.

        ``hang_seconds`` is the limit in :class:`~simyard_adapter.work.Work`.
        """
        self._hang_seconds = hang_seconds
        self._bootstrap = bootstrap
        self._directory = directory
        self._connections = connections or Connections(bootstrap.broker, f"{bootstrap.namespace}/{bootstrap.worker}")
        if (login := read_login(directory)) is not None and parse_identity(login.username) == bootstrap.broker.identity:
            self._connections.use(login)
        self._log = WorkerLog(f"{bootstrap.namespace}/{bootstrap.worker}")
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask the adapter to stop its actions, send the results that it owes, and return from :meth:`run`."""
        self._stop.set()

    async def run(self) -> None:
        """Run the adapter until :meth:`stop` is called.

        Raises:
            StartError: The connector is wrong or does not start.
            MachineError: The directory cannot be used.
            HungError: An action does not end and keeps other actions from running.
        """
        files = self._directory / "connector"
        try:
            files.mkdir(parents=True, exist_ok=True)
            write_files(self._bootstrap.files, files)
        except OSError as error:
            raise MachineError(f"cannot use the directory {self._directory}: {error}") from error
        backend = make_backend(self._bootstrap, files)
        running = _Running(self._bootstrap, self._directory, self._log, backend, self._connections, self._hang_seconds)
        await running.run(self._stop)


class _Running:
    """An adapter whose connector is loaded."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        directory: Path,
        log: WorkerLog,
        backend: Backend,
        connections: Connections,
        hang_seconds: float,
    ) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._boot_id = uuid.uuid4().hex
        self._log = log
        self._backend = backend
        self._attributes = AttributeRequests(bootstrap.interface, backend)
        self._connections = connections
        self._tasks = Tasks()
        self._user = bootstrap.broker.identity
        self._current = CurrentSession()
        self._updates = Updates(self._current, backend.attributes, self._key, bootstrap.worker)
        self._questions = FileQuestions(bootstrap, self._current)
        files = WorkerFiles(self._questions, backend, directory / "files" / "cache")
        logs = ActionLogs(
            bootstrap,
            directory / "files" / "logs",
            self._current,
            self._tasks,
            files.upload_file,
            lambda: self._questions.has_store,
        )
        self._log_requests = LogRequests(log, logs)
        # fmt: off
        self._work = Work(
            bootstrap, files, directory, self._current, self._tasks, self._updates, log, logs,
            on_change=lambda: self._pool.adjust_soon(), hang_seconds=hang_seconds,
        )
        # fmt: on
        self._environment = BackendEnvironment(
            directory / "connector", log, self._work.list_running, bootstrap.attributes
        )
        self._consumer: Optional[Consumer] = None
        self._pool = PoolConsumer(
            connections,
            self._user,
            lambda session, message: self._receive(session, message, from_pool=True),
            self._work,
            self._tasks.spawn,
            log,
        )
        self._uses_pool = asyncio.Event()
        self._pool_turn = asyncio.Lock()
        self._session_tasks: set[asyncio.Task[None]] = set()
        self._login_changed = asyncio.Event()
        self._drained: Optional[asyncio.Task[None]] = None

    def _key(self, kind: Event) -> str:
        return make_event_key(kind, self._user, self._bootstrap.worker_uid)

    async def run(self, stop: asyncio.Event) -> None:
        stopping = self._tasks.spawn(stop.wait())
        try:
            starting = asyncio.ensure_future(self._backend.start(self._environment))
            try:
                await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                abandon(starting)
            if starting.done():
                await self._work_until(stopping, starting)
        finally:
            await self._tasks.close()
            self._work.close()

    async def _work_until(self, stopping: "asyncio.Future[Any]", started: "asyncio.Future[None]") -> None:
        try:
            started.result()
        except Exception as error:
            raise StartError(f"the connector failed to start: {type(error).__name__}: {error}") from error
        try:
            await self._work.recover()
            self._tasks.spawn(self._updates.run())
            self._spawn_sessions()
            await asyncio.wait({stopping, self._tasks.failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._tasks.failed.done():
                self._tasks.failed.result()
            await self._end()
            for sessions in self._session_tasks:
                sessions.cancel()
            await asyncio.gather(*self._session_tasks, return_exceptions=True)
        finally:
            await self._stop_backend()

    async def _stop_backend(self) -> None:
        try:
            await within(HOOK_SECONDS, self._backend.stop())
        except Exception:  # noqa: BLE001 - the connector's own hook, and nothing comes after it
            self._log.exception("the connector failed to stop")

    async def _end(self) -> None:
        self._log.info("the adapter is ending")
        self._work.drain()
        await self._pool.adjust()
        if self._consumer is not None:
            with contextlib.suppress(BrokerError):
                await self._consumer.adjust(lambda: False)
        await self._work.stop(STOP_SECONDS)
        if self._current.session is not None:
            with contextlib.suppress(BrokerError):
                await self._updates.send(self._current.session)

    def _spawn_sessions(self) -> None:
        task = self._tasks.spawn(self._sessions())
        self._session_tasks.add(task)
        task.add_done_callback(self._session_tasks.discard)

    async def _sessions(self) -> None:
        """Keep one session open: open the next one after each end, with a growing random pause after each failure.

        When the login changes, a second task like this one starts, and this one returns (see :meth:`_keep`).
        """
        failures = 0
        while True:
            began = time.monotonic()
            succeeded = False
            try:
                async with self._connections.open_channel() as channel:
                    succeeded = await self._session(channel)
                reason = "the session ended"
            except BrokerError as error:
                reason = str(error)
            if succeeded:
                return
            failures = 0 if time.monotonic() - began > MAX_BACKOFF_SECONDS else failures + 1
            pause = draw_delay(failures, MAX_BACKOFF_SECONDS)
            self._log.warning("no session with the broker (%s); trying again in %.1f s", reason, pause)
            await asyncio.sleep(pause)

    async def _session(self, channel: AbstractChannel) -> bool:
        """Serve one session until it ends; return True if another session serves by then."""
        session = Session(channel)
        queue = name_worker_queue(self._user, self._bootstrap.worker_uid)
        consumer = Consumer(session, queue, WORKER_PREFETCH, self._receive)
        pool: Optional[asyncio.Task[None]] = None
        try:
            await consumer.adjust(lambda: True)
            self._consumer = consumer
            if self._bootstrap.pool:
                pool = self._tasks.spawn(self._consume_pool())
            await self._register(session)
            self._current.attach(session)
            return await self._keep(session, consumer)
        finally:
            self._current.detach(session)
            if self._consumer is consumer:
                self._consumer = None
            if pool is not None:
                pool.cancel()
                await asyncio.wait({pool})

    async def _keep(self, session: Session, consumer: Consumer) -> bool:
        """Return when the session has closed, or when another session has replaced it because the login has changed.

        The new session consumes before the old one stops, so the worker is never without a consumer. The old session
        answers the requests it has received before it closes; otherwise the broker would deliver them again.
        """
        watching = asyncio.ensure_future(consumer.watch())
        changing = asyncio.ensure_future(self._until_outdated(session))
        try:
            await asyncio.wait({watching, changing}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
                return False
            self._spawn_sessions()
            replacing = asyncio.ensure_future(self._current.wait_until_replaced(session))
            try:
                await asyncio.wait({watching, replacing}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                abandon(replacing)
            if not watching.done():
                await consumer.adjust(lambda: False)
                await asyncio.gather(self._pool.retire(), session.wait_until_acknowledged())
                self._log.info("using the new login at the broker")
            return True
        except BrokerError:
            if changing.done():
                return True
            raise
        finally:
            abandon(watching)
            abandon(changing)

    async def _until_outdated(self, session: Session) -> None:
        while session.username == self._connections.username:
            self._login_changed.clear()
            await self._login_changed.wait()

    async def _consume_pool(self) -> None:
        await self._uses_pool.wait()
        async with self._pool_turn:  # Wait until the session that this one replaces has left the pool's queue.
            await self._pool.run()

    async def _register(self, session: Session) -> None:
        """Publish the registration, again until a queue accepts it."""
        while True:
            self._backend.attributes.collect_changes()
            body = {
                "worker": self._bootstrap.worker,
                "bootId": self._boot_id,
                "adapterVersion": __version__,
                "interfaceDigest": self._bootstrap.interface.compute_digest(),
                "attributes": self._backend.attributes.get_values(),
                "observedAt": time.time(),
                "accepted": self._work.list_accepted(),
                "takes": self._uses_pool.is_set(),
            }
            kind = Event.REGISTER
            try:
                await session.publish(EVENTS_EXCHANGE, self._key(kind), kind.value, encode(body), persistent=True)
                self._log.info("registered")
                return
            except UnroutableError:
                self._log.warning("no queue accepts the registration; trying again in %.0f s", UNROUTABLE_RETRY_SECONDS)
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(UNROUTABLE_RETRY_SECONDS, session.closed.wait())
                    raise BrokerError("the session ended") from None

    def _receive(self, session: Session, message: DeliveredMessage, *, from_pool: bool = False) -> None:
        session.unacknowledged += 1
        delivery = Delivery(message, session, from_pool, asyncio.get_running_loop().time())
        self._tasks.spawn(self._handle(delivery))

    async def _handle(self, delivery: Delivery) -> None:
        if delivery.properties.message_type == Request.ACTION.value:
            await self._work.handle_request(delivery, self._pool.adjust)
            return
        if delivery.properties.message_type == Request.TASKS.value:
            await self._work.chunks.handle_request(delivery)
            return
        try:
            reply: Mapping[str, Any] = await self._reply(delivery)
        except RefusedError as refused:
            reply = {"error": refused.error.to_json()}
        await self._work.answers.answer(delivery, encode(reply))

    async def _reply(self, delivery: Delivery) -> Mapping[str, Any]:
        """Handle a request that is not an action, and return its reply."""
        body, kind = delivery.parse_body(), delivery.properties.message_type
        if kind == Request.CANCEL.value:
            return {"cancelled": self._work.cancel(str(body.get("invocation")))}
        if kind == Request.LOG.value:
            return await self._log_requests.read(body)
        if kind == Request.DRAIN.value:
            self._work.drain()
            if self._drained is None or self._drained.done():
                self._drained = self._tasks.spawn(self._send_drained())
            return {}
        if kind == Request.FILES.value:
            self._questions.apply_answer(body)
            return {}
        if kind == Request.TAKE.value:
            self._uses_pool.set()
            return {}
        if kind == Request.CREDENTIALS.value:
            await self._change_login(delivery, body)
            return {}
        if kind == Request.GET_ATTRIBUTES.value:
            return await self._attributes.read(body.get("names"))
        if kind == Request.SET_ATTRIBUTES.value:
            return await self._attributes.write(body.get("values"))
        raise RefusedError(ErrorReason.INVALID_REQUEST, f"unknown type of request: {kind!r}")

    async def _change_login(self, delivery: Delivery, body: Mapping[str, Any]) -> None:
        """Store the login in the request, so that it survives this process, and use it from now on."""
        try:
            login = Login.from_json(body)
        except ValueError as error:
            raise RefusedError(ErrorReason.INVALID_REQUEST, str(error)) from None
        if parse_identity(login.username) != self._user:
            raise RefusedError(ErrorReason.INVALID_REQUEST, "must be a login of the same broker user", "username")
        await asyncio.get_running_loop().run_in_executor(None, write_login, self._directory, login)
        self._connections.use(login)
        self._login_changed.set()

    async def _send_drained(self) -> None:
        await self._work.quiet.wait()
        body = encode({"worker": self._bootstrap.worker})
        await self._current.publish_until_routed(EVENTS_EXCHANGE, self._key(Event.DRAINED), Event.DRAINED.value, body)
