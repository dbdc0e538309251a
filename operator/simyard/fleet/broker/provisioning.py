# SPDX-License-Identifier: Apache-2.0
"""Creates and deletes users and queues at the broker: one user and one queue per pool, and one queue per worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NoReturn

from simyard.api.names import APISERVER_BROKER_SECRET, FRONTEND_BROKER_SECRET
from simyard.api.worker import Worker
from simyard.fleet.broker.health import BrokerHealth
from simyard.fleet.broker.logins import ALONE, OF_POOL, Logins
from simyard.fleet.broker.master_key import SECRETS, MasterKey, MasterKeyError, build_secret
from simyard.fleet.frontends.occi_broker import OcciBroker
from simyard.fleet.registry import Registry, find_removed, get_broker_user, get_pool_uid, get_queue
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.credentials import derive_password
from simyard.messaging.errors import BrokerRefusedError, BrokerUnavailableError, MessagingError
from simyard.messaging.metrics import MESSAGES_BOUNDED
from simyard.messaging.topology import (
    APISERVER_USER,
    WORKER_QUEUES_PREFIX,
    QueueSpec,
    UserLimits,
    build_apiserver_user_spec,
    build_pool_queue_spec,
    build_worker_queue_spec,
)
from simyard_adapter.bootstrap import BrokerAddress
from simyard_adapter.limits import MAX_BROKER_MESSAGE_BYTES
from simyard_adapter.wire import name_pool_queue, name_pool_user, name_worker_queue, parse_identity
from simyard_sites.kubernetes.errors import ApiError, NotFoundError

log = logging.getLogger(__name__)

SWEEP_SECONDS = 3600.0


class Broker:
    """Component that creates, deletes and restores the platform's users and queues at the broker.

    If a pool was deleted without its finalizer, its user and queues are deleted after its last Worker. A regular sweep
    deletes the users and queues that a crash has left behind. It finds queues by their names, and users by their
    permissions on the virtual host.

    Attributes:
        prepared: event that is set once the platform's own exchanges, queues and users exist.
        logins: the logins with which workers connect; see :mod:`simyard.fleet.broker.rotation`.
        is_swept: True if a sweep has ended since users or queues may last have been lost.
        on_swept: functions to call after each sweep.
        reachable: True if the broker answered the last request; a change of this value calls ``changed``.
    """

    def __init__(
        self,
        access: BrokerAccess,
        worker_access: BrokerAccess,
        admin: BrokerAdmin,
        health: BrokerHealth,
        registry: Registry,
        occi: OcciBroker,
        *,
        namespace: str,
        changed: Callable[[], None],
        timing: Timing = PRODUCTION,
    ) -> None:
        self._access, self._timing = access, timing
        self._occi = occi
        self._worker_access = worker_access
        self._admin = admin
        self._health = health
        self._registry = registry
        self._namespace = namespace
        self._changed = changed
        self._master_key = MasterKey(registry.client, namespace, self.sweep_soon)
        self.logins = Logins(registry, admin)
        self.is_swept = False
        self.on_swept: list[Callable[[], None]] = []
        self._lock = asyncio.Lock()
        self._released: set[str] = set()
        self._left_pools: set[str] = set()
        self._lost: set[str] = set()
        self._wake = asyncio.Event()
        self._sweep_at = 0.0
        self._swept = False
        self.prepared = asyncio.Event()
        self.reachable = False

    @property
    def problem(self) -> str:
        """The reason why the broker cannot serve workers; empty if it can serve them."""
        if not self.reachable:
            return "the message broker cannot be reached"
        return f"the message broker accepts no messages: {self._health.alarm}" if self._health.alarm else ""

    async def ensure_workers(self, workers: Collection[Worker]) -> None:
        """Create the users and queues of these workers.

        Raises:
            MessagingError: the broker did not create all of them.
        """
        if not self.prepared.is_set():
            raise BrokerUnavailableError("the broker has not been reached yet")
        of_user = _by_user(workers)
        specs = [build_worker_queue_spec(user, item.metadata.uid) for user, items in of_user.items() for item in items]
        try:
            await self._ensure_queues(specs)
            for user, items in of_user.items():
                await self._ensure_user(user, items)
        except MessagingError:
            self._set_reachable(False)
            self.sweep_soon()
            raise
        self._set_reachable(True)
        if late := [worker for worker in workers if self._registry.get_gone_since(worker.metadata.uid) is not None]:
            self._release(late)
            self.sweep_soon()

    async def _ensure_queues(self, specs: Sequence[QueueSpec]) -> None:
        """Declare the queues of workers; a queue that an earlier version declared in another way does not change."""
        try:
            await self._admin.ensure_queues(specs)
        except BrokerRefusedError:
            found = await self._admin.list_queues(WORKER_QUEUES_PREFIX)
            if not any(spec.name in found for spec in specs):
                raise
            await self._admin.ensure_queues([spec for spec in specs if spec.name not in found])

    def redeclare_queue(self, queue: str) -> None:
        """Ask for a new declaration of a Worker's queue, because the broker's node with this queue is down."""
        uid = queue.rpartition(".")[2]
        if self._registry.find_worker(uid) is not None:
            self._lost.add(uid)
            self._wake.set()

    def build_worker_address(self, worker: Worker) -> BrokerAddress:
        """Return the address and the credentials with which the worker's adapter connects."""
        user = get_broker_user(worker)
        return self.build_login_address(self.logins.get_newest(user))

    def build_login_address(self, login: str) -> BrokerAddress:
        """Return the address and the credentials for connections with a login."""
        return self._worker_access.as_user(login, self.logins.keys.derive_password(login)).build_address()

    async def ensure_login(self, user: str, workers: Sequence[Worker]) -> None:
        """Create the newest login of these workers' user, unless all of these workers are deleted.

        Raises:
            MessagingError: the broker did not create it.
        """
        await self._ensure_user(user, workers)

    async def delete_former(self, logins: Iterable[str]) -> None:
        """Delete the former logins among the given logins; the broker then closes their connections.

        Raises:
            MessagingError: the broker did not delete them.
        """
        async with self._lock:
            for names in self.logins.find_former(logins).values():
                for name in names:
                    await self.logins.delete(name)

    async def end_rotation(self) -> None:
        """Remove the former master key, which no worker uses any more, and start the next rotation if requested.

        Raises:
            ApiError: the API server did not remove it.
            MasterKeyError: the Secret holds no usable key.
        """
        keys = await self._master_key.end_rotation(self.logins.keys)
        if keys.number == self.logins.keys.number:
            self.logins.keys = keys
        else:
            self.sweep_soon()  # the sweep reads the new key, and creates the logins with passwords of this key

    async def watch_key(self) -> NoReturn:
        """Ask for a sweep each time the master key changes, until cancelled."""
        await self._master_key.run()

    async def remove_pool(self, pool_uid: str) -> None:
        """Delete the user of a pool with all its logins and connections, and all queues of the pool.

        Raises:
            MessagingError: the broker did not delete all of them.
        """
        user = name_pool_user(pool_uid)
        async with self._lock:  # without the lock, another task could create the user again after its deletion
            await self.logins.delete_user(user)
            queues = await self._admin.list_queues(f"{WORKER_QUEUES_PREFIX}{user}.")
            await self._admin.delete_queues([*queues, name_pool_queue(user)])

    async def cut_off(self, user: str) -> None:
        """Close the connections of a broker user of workers, and forbid new connections.

        Raises:
            MessagingError: the broker did not close or forbid them.
        """
        async with self._lock:
            await self.logins.cut_off(user)

    async def release(self, user: str) -> None:
        """Permit a broker user that was cut off to connect again. A user that was deleted is not created again.

        Raises:
            MessagingError: the broker did not change the limits.
        """
        async with self._lock:
            await self.logins.release(user, self._limits(user))

    async def cut_off_users(self) -> Collection[str]:
        """Return the broker users of workers that this or an earlier process has cut off.

        Raises:
            MessagingError: the broker did not answer.
        """
        found = map(parse_identity, await self._admin.list_users_without_connections())
        return {user for user in found if user.startswith((ALONE, OF_POOL))}

    async def close_queue(self, user: str, worker_uid: str) -> bool:
        """Delete the queue of a deleted Worker; return False if the queue may still exist.

        ``user`` is empty if it is unknown, because the Worker was deleted before this process started. Then the first
        sweep deletes the queue.

        Raises:
            MessagingError: the broker did not delete it.
        """
        if user:
            await self._admin.delete_queues([name_worker_queue(user, worker_uid)])
        return bool(user) or self._swept

    def sweep_soon(self) -> None:
        """Ask for a sweep now, because the broker was away, or some users and queues may be missing or left over."""
        self._sweep_at = 0.0
        self.is_swept = False
        self.logins.forget()
        self._wake.set()

    async def run(self) -> NoReturn:
        """Delete the queues of deleted Workers in bulk, and sweep the broker at intervals, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            try:
                if sweeps := loop.time() >= self._sweep_at:
                    self._sweep_at = loop.time() + SWEEP_SECONDS
                    await self._prepare()
                await self._delete_released()
                await self._restore_lost()
                self._set_reachable(True)
                if sweeps:
                    await self._sweep()
                    self._swept = True
                    self.is_swept = self._sweep_at > 0
                    for swept in self.on_swept:
                        swept()
                waits = SWEEP_SECONDS
            except (MessagingError, ApiError, MasterKeyError) as error:
                log.warning("broker: %s", error)
                self._set_reachable(False)
                self.is_swept = False
                self._sweep_at = 0.0
                waits = self._timing.broker_retry_seconds
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(waits):
                    await self._wake.wait()

    async def _prepare(self) -> None:
        """Create exchanges, the operator's queues, and the users of apiserver and frontends with their Secrets."""
        keys = self.logins.keys = await self._master_key.read()
        await self._admin.ensure_platform()
        password = derive_password(keys.key, APISERVER_USER)
        await self._admin.ensure_user(build_apiserver_user_spec(), password)
        await self._write_secret(APISERVER_BROKER_SECRET, self._access.as_user(APISERVER_USER, password).to_secret())
        self.prepared.set()
        await self._check_message_size()
        await self._write_secret(FRONTEND_BROKER_SECRET, await self._occi.prepare(keys.key))

    async def _check_message_size(self) -> None:
        """Warn if the broker does not limit the size of messages: one worker could fill the memory of all receivers."""
        bounded = await self._admin.has_message_limit()
        MESSAGES_BOUNDED.set(bounded)
        if not bounded:
            problem = "the broker accepts messages of more than %d bytes: set max_message_size in its configuration"
            log.warning(problem, MAX_BROKER_MESSAGE_BYTES)

    async def _write_secret(self, name: str, texts: Mapping[str, str]) -> None:
        client = self._registry.client
        body = build_secret(name, self._namespace, {key: text.encode() for key, text in texts.items()})
        try:
            found = await client.get(SECRETS, name, self._namespace)
        except NotFoundError:
            await client.create(SECRETS, body, self._namespace)
        else:
            if found.get("data") != body["data"]:
                path = f"/api/v1/namespaces/{self._namespace}/secrets/{name}"
                await client.request("PUT", path, body=body, resource=SECRETS)

    def _set_reachable(self, value: bool) -> None:
        if self.reachable != value:
            self.reachable = value
            self._changed()

    async def _ensure_user(self, user: str, workers: Sequence[Worker], *, restoring: bool = False) -> None:
        """Create the newest login of the user of these workers, unless all these Workers are deleted.

        With ``restoring``, also create the former logins that workers may still use.
        """
        async with self._lock:
            alive = [item for item in workers if self._registry.get_gone_since(item.metadata.uid) is None]
            if not alive:
                return
            worker = alive[0]
            pool_uid = get_pool_uid(worker)
            limits = self._limits(user)
            if pool_uid and not self.logins.has_newest(user):
                await self._admin.ensure_queues([build_pool_queue_spec(user)])
            await self.logins.ensure(user, limits)
            if restoring:
                await self.logins.ensure_former(user, limits)

    def _limits(self, user: str) -> UserLimits:
        of_pool = user.startswith(OF_POOL)
        return UserLimits.of_pool(self._registry.workers.count("pool", user.removeprefix(OF_POOL)) if of_pool else 1)

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Ask for the deletion of a deleted Worker's queue, and of its pool's user if the pool is deleted as well."""
        if (left := find_removed(old, new)) is not None:
            uid = get_pool_uid(left)
            if uid and not self._registry.pools.count("uid", uid):
                self._left_pools.add(uid)
            self._release([left])

    def _release(self, workers: Iterable[Worker]) -> None:
        self._released.update(map(get_queue, workers))
        self._wake.set()

    async def _delete_released(self) -> None:
        while self._released:
            queues = frozenset(self._released)
            await self._delete(queues, {user for queue in queues if (user := _user_of(queue)).startswith(ALONE)})
            self._released -= queues
        for uid in list(self._left_pools):
            if not self._registry.workers.count("pool", uid) and not self._registry.pools.count("uid", uid):
                await self.remove_pool(uid)
            self._left_pools.discard(uid)

    async def _restore_lost(self) -> None:
        while self._lost:
            lost = frozenset(self._lost)
            await self.ensure_workers(
                [worker for uid in lost if (worker := self._registry.find_worker(uid)) is not None]
            )
            self._lost -= lost

    async def _delete(self, queues: Iterable[str], users: Iterable[str]) -> None:
        for user in users:
            await self.logins.delete_user(user)
        await self._admin.delete_queues(queues)

    async def _sweep(self) -> None:
        """Restore missing queues and users. After a pause, delete those that still have no Worker and no pool."""
        found = {
            name
            for prefix in (WORKER_QUEUES_PREFIX, _POOL_QUEUES_PREFIX)
            for name in await self._admin.list_queues(prefix)
        }
        if missing := [worker for worker in self._registry.workers if get_queue(worker) not in found]:
            await self.ensure_workers(missing)
            for user, items in _by_user(missing).items():
                await self._ensure_user(user, items, restoring=True)
        known = {parse_identity(login) for login in await self.logins.list_found()}
        await asyncio.sleep(self._timing.sweep_settle_seconds)
        async with self._lock:  # no other task creates or deletes users during the deletion
            workers = {get_queue(worker): worker for worker in self._registry.workers}
            users = {name_pool_user(pool.metadata.uid) for pool in self._registry.pools}
            users |= {get_broker_user(worker) for worker in workers.values()}
            wanted = workers.keys() | {name_pool_queue(user) for user in users}
            stale = [name for name in found if name not in wanted]
            await self._delete(stale, {*known, *map(_user_of, stale)} - users)


_POOL_QUEUES_PREFIX = name_pool_queue("")


def _by_user(workers: Iterable[Worker]) -> dict[str, list[Worker]]:
    found: dict[str, list[Worker]] = {}
    for worker in workers:
        found.setdefault(get_broker_user(worker), []).append(worker)
    return found


def _user_of(queue: str) -> str:
    """Return the broker user that the name of a worker's or pool's queue contains."""
    return queue.split(".")[2]
