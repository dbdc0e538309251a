"""One adapter: a connector, a session with the broker that is renewed when it breaks, and the work between them."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from pathlib import Path
from typing import Any, Mapping, Optional

from aiormq.abc import AbstractChannel, DeliveredMessage

from simyard_adapter import __version__
from simyard_adapter.backend import Backend, Host
from simyard_adapter.backoff import backoff_seconds
from simyard_adapter.bootstrap import Bootstrap
from simyard_adapter.consumers import BACKOFF_LAST_SECONDS, WORKER_PREFETCH, Consumer, PoolConsumer
from simyard_adapter.deadline import abandon, within
from simyard_adapter.declarations import InvalidValuesError, Json, check_values
from simyard_adapter.errors import MachineError, StartError
from simyard_adapter.invocations import Delivery, RefusedError
from simyard_adapter.link import UNROUTABLE_RETRY_SECONDS, Link, Tasks
from simyard_adapter.loading import make_backend, write_files
from simyard_adapter.login import Login, read_login, write_login
from simyard_adapter.logs import WorkerLog
from simyard_adapter.news import News
from simyard_adapter.running import HANG_SECONDS, wire_error
from simyard_adapter.transport import BrokerError, Connections, Session, UnroutableError, encode
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, Reason, Request, event_key, identity_of, worker_queue
from simyard_adapter.work import Work

STOP_SECONDS = 15.0
HOOK_SECONDS = 5.0
REFRESH_SECONDS = 12.0


class Adapter:
    """Offers one worker's connector over RabbitMQ. Make it inside the event loop; many may run in one."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        directory: Path,
        *,
        connections: Optional[Connections] = None,
        hang_seconds: float = HANG_SECONDS,
    ) -> None:
        """``directory`` is this worker's own; ``connections`` may be shared by adapters of one broker user.

        ``hang_seconds``: see :class:`~simyard_adapter.work.Work`.
        """
        self._hang_seconds = hang_seconds
        self._bootstrap = bootstrap
        self._directory = directory
        self._connections = connections or Connections(bootstrap.broker, f"{bootstrap.namespace}/{bootstrap.worker}")
        if (login := read_login(directory)) is not None and identity_of(login.username) == bootstrap.broker.identity:
            self._connections.use(login)
        self._log = WorkerLog(f"{bootstrap.namespace}/{bootstrap.worker}")
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """End gracefully: what runs is stopped, what is owed is sent; :meth:`run` returns when that is done."""
        self._stop.set()

    async def run(self) -> None:
        """Run until :meth:`stop`.

        Raises:
            StartError: the connector is wrong.
            MachineError: the directory cannot be used.
            HungError: an action does not end, and keeps others from their turn.
        """
        files = self._directory / "connector"
        try:
            files.mkdir(parents=True, exist_ok=True)
            write_files(self._bootstrap.files, files)
        except OSError as error:
            raise MachineError(f"the directory {self._directory} cannot be used: {error}") from error
        backend = make_backend(self._bootstrap, files)
        running = _Running(self._bootstrap, self._directory, self._log, backend, self._connections, self._hang_seconds)
        await running.run(self._stop)


class _Running:
    """An adapter whose connector was loaded."""

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
        self._connections = connections
        self._tasks = Tasks()
        self._user = bootstrap.broker.identity
        self._link = Link()
        self._news = News(self._link, backend.attributes, self._key, bootstrap.worker)
        self._work = Work(
            bootstrap,
            backend,
            directory,
            self._link,
            self._tasks,
            self._news,
            log,
            on_change=self._adjust_soon,
            hang_seconds=hang_seconds,
        )
        self._host = Host(directory / "connector", log, self._work.running, bootstrap.attributes)
        self._consumer: Optional[Consumer] = None
        self._pool = PoolConsumer(
            connections,
            self._user,
            lambda session, message: self._take(session, message, from_pool=True),
            lambda session, consuming: self._work.may_take_from_pool(session, consuming=consuming),
            self._work.session_lost,
            log,
        )
        self._takes = asyncio.Event()
        self._pool_turn = asyncio.Lock()
        self._session_tasks: set[asyncio.Task[None]] = set()
        self._login_changed = asyncio.Event()
        self._drained: Optional[asyncio.Task[None]] = None

    def _key(self, kind: Event) -> str:
        return event_key(kind, self._user, self._bootstrap.worker_uid)

    async def run(self, stop: asyncio.Event) -> None:
        stopping = self._tasks.spawn(stop.wait())
        try:
            starting = asyncio.ensure_future(self._backend.start(self._host))
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
            raise StartError(f"the connector does not start: {type(error).__name__}: {error}") from error
        try:
            await self._work.recover()
            self._tasks.spawn(self._news.run())
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
            self._log.exception("the connector does not stop as it should")

    async def _end(self) -> None:
        self._log.info("ending")
        self._work.drain()
        await self._pool.adjust()
        if self._consumer is not None:
            with contextlib.suppress(BrokerError):
                await self._consumer.adjust(lambda: False)
        await self._work.stop(STOP_SECONDS)
        if self._link.session is not None:
            with contextlib.suppress(BrokerError):
                await self._news.tell(self._link.session)

    def _spawn_sessions(self) -> None:
        task = self._tasks.spawn(self._sessions())
        self._session_tasks.add(task)
        task.add_done_callback(self._session_tasks.discard)

    async def _sessions(self) -> None:
        """Open one session after the other; pause longer, by a random time, after each attempt that fails.

        When the login changes, others begin beside it, and this one ends (see :meth:`_keep`).
        """
        failures = 0
        while True:
            began = time.monotonic()
            succeeded = False
            try:
                async with self._connections.channel() as channel:
                    succeeded = await self._session(channel)
                reason = "the session ended"
            except BrokerError as error:
                reason = str(error)
            if succeeded:
                return
            failures = 0 if time.monotonic() - began > BACKOFF_LAST_SECONDS else failures + 1
            pause = backoff_seconds(failures, BACKOFF_LAST_SECONDS)
            self._log.warning("no broker (%s); trying again in %.1f s", reason, pause)
            await asyncio.sleep(pause)

    async def _session(self, channel: AbstractChannel) -> bool:
        """Serve until the session ends; True if another one serves by then."""
        session = Session(channel)
        consumer = Consumer(session, worker_queue(self._user, self._bootstrap.worker_uid), WORKER_PREFETCH, self._take)
        pool: Optional[asyncio.Task[None]] = None
        try:
            await consumer.adjust(lambda: True)
            self._consumer = consumer
            if self._bootstrap.pool:
                pool = self._tasks.spawn(self._take_from_pool())
            await self._register(session)
            self._link.attach(session)
            return await self._keep(session, consumer)
        finally:
            self._link.detach(session)
            if self._consumer is consumer:
                self._consumer = None
            if pool is not None:
                pool.cancel()
                await asyncio.wait({pool})

    async def _keep(self, session: Session, consumer: Consumer) -> bool:
        """Return when the session has closed, or another one has replaced it because the login has changed.

        The other one consumes before this one ceases to, so that the worker is never away. What this one was given is
        answered before it closes; its messages would come again otherwise.
        """
        watching = asyncio.ensure_future(consumer.watch())
        changing = asyncio.ensure_future(self._until_outdated(session))
        try:
            await asyncio.wait({watching, changing}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
                return False
            self._spawn_sessions()
            replacing = asyncio.ensure_future(self._link.replaced(session))
            try:
                await asyncio.wait({watching, replacing}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                abandon(replacing)
            if not watching.done():
                await consumer.adjust(lambda: False)
                await asyncio.gather(self._pool.retire(), session.until_settled())
                self._log.info("the login at the broker has changed")
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

    async def _take_from_pool(self) -> None:
        await self._takes.wait()
        async with self._pool_turn:  # of the session that this one replaces
            await self._pool.run()

    async def _register(self, session: Session) -> None:
        """Say that the worker is there, until somebody takes the message."""
        while True:
            self._backend.attributes.take_changes()
            body = {
                "worker": self._bootstrap.worker,
                "bootId": self._boot_id,
                "adapterVersion": __version__,
                "interfaceDigest": self._bootstrap.interface.digest(),
                "attributes": self._backend.attributes.values(),
                "observedAt": time.time(),
                "accepted": self._work.accepted(),
                "takes": self._takes.is_set(),
            }
            kind = Event.REGISTER
            try:
                await session.publish(EVENTS_EXCHANGE, self._key(kind), kind.value, encode(body), persistent=True)
                self._log.info("registered")
                return
            except UnroutableError:
                self._log.warning("nobody takes the registration; trying again in %.0f s", UNROUTABLE_RETRY_SECONDS)
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(UNROUTABLE_RETRY_SECONDS, session.closed.wait())
                    raise BrokerError("the session ended") from None

    def _adjust_soon(self) -> None:
        self._tasks.spawn(self._pool.adjust())

    def _take(self, session: Session, message: DeliveredMessage, *, from_pool: bool = False) -> None:
        session.unsettled += 1
        delivery = Delivery(message, session, from_pool, asyncio.get_running_loop().time())
        self._tasks.spawn(self._handle(delivery))

    async def _handle(self, delivery: Delivery) -> None:
        if delivery.properties.message_type == Request.ACTION.value:
            await self._work.request(delivery, self._pool.adjust)
            return
        try:
            reply: Mapping[str, Any] = await self._reply(delivery)
        except RefusedError as refused:
            reply = {"error": refused.error.to_json()}
        await self._work.answers.answer(delivery, encode(reply))

    async def _reply(self, delivery: Delivery) -> Mapping[str, Any]:
        """Answer what is not an action."""
        body, kind = delivery.body(), delivery.properties.message_type
        if kind == Request.CANCEL.value:
            return {"cancelled": self._work.cancel(str(body.get("invocation")))}
        if kind == Request.LOG.value:
            lines = body.get("tailLines")
            if lines is not None and not isinstance(lines, int):
                raise RefusedError(Reason.INVALID_REQUEST, "must be an integer", "tailLines")
            return {"log": self._log.tail(lines, str(body.get("invocation") or ""))}
        if kind == Request.DRAIN.value:
            self._work.drain()
            if self._drained is None or self._drained.done():
                self._drained = self._tasks.spawn(self._tell_drained())
            return {}
        if kind == Request.TAKE.value:
            self._takes.set()
            return {}
        if kind == Request.CREDENTIALS.value:
            await self._change_login(delivery, body)
            return {}
        if kind == Request.GET_ATTRIBUTES.value:
            return await self._attributes(body.get("names"))
        if kind == Request.SET_ATTRIBUTES.value:
            return await self._set_attributes(body.get("values"))
        raise RefusedError(Reason.INVALID_REQUEST, f"unknown type of request: {kind!r}")

    async def _change_login(self, delivery: Delivery, body: Mapping[str, Any]) -> None:
        """Use another login from now on, also when this process ends now."""
        try:
            login = Login.from_json(body)
        except ValueError as error:
            raise RefusedError(Reason.INVALID_REQUEST, str(error)) from None
        if identity_of(login.username) != self._user:
            raise RefusedError(Reason.INVALID_REQUEST, "the login is of another user", "username")
        await asyncio.get_running_loop().run_in_executor(None, write_login, self._directory, login)
        self._connections.use(login)
        self._login_changed.set()

    async def _tell_drained(self) -> None:
        await self._work.quiet.wait()
        body = encode({"worker": self._bootstrap.worker})
        await self._link.publish_surely(EVENTS_EXCHANGE, self._key(Event.DRAINED), Event.DRAINED.value, body)

    async def _attributes(self, names: Any) -> Mapping[str, Any]:
        if names is not None:
            if not isinstance(names, list):
                raise RefusedError(Reason.INVALID_REQUEST, "must be a list", "names")
            for name in names:
                self._known(name, f"names.{name}")
        with contextlib.suppress(asyncio.TimeoutError):
            await within(REFRESH_SECONDS, self._backend.refresh())
        return {"values": self._backend.attributes.values(names), "observedAt": time.time()}

    def _known(self, name: Any, path: str) -> bool:
        declared = self._bootstrap.interface.attribute(str(name))
        if declared is None:
            raise RefusedError(Reason.UNKNOWN_ATTRIBUTE, f"there is no attribute {name!r}", path)
        return declared.mutable

    async def _set_attributes(self, values: Any) -> Mapping[str, Any]:
        if not isinstance(values, dict):
            raise RefusedError(Reason.INVALID_REQUEST, "must be an object", "values")
        for name in values:
            if not self._known(name, f"values.{name}"):
                raise RefusedError(Reason.INVALID_PARAMETERS, f"the attribute {name} is not mutable", f"values.{name}")
        try:
            checked: dict[str, Json] = check_values(
                values, self._bootstrap.interface.attributes, "values", partial=True
            )
        except InvalidValuesError as error:
            raise RefusedError.of_values(error) from None
        for name, value in checked.items():
            try:
                await self._backend.set_attribute(name, value)
            except Exception as error:  # the connector's own hook: its failure is the answer
                failure = wire_error(error)
                raise RefusedError(failure.reason, failure.message, f"values.{name}") from error
        return {"values": self._backend.attributes.values(checked), "observedAt": time.time()}
