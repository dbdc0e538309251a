"""What workers need at the broker: a user and a queue per pool, a queue per worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from simyard.api.names import APISERVER_BROKER_SECRET, FRONTEND_BROKER_SECRET
from simyard.api.worker import Worker
from simyard.fleet.broker_health import BrokerHealth
from simyard.fleet.logins import ALONE, OF_POOL, Logins
from simyard.fleet.master_key import SECRETS, MasterKey, MasterKeyError, secret_body
from simyard.fleet.occi_broker import OcciBroker
from simyard.fleet.registry import Registry, broker_user_of, gone, pool_uid_of, queue_of
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
    apiserver_user_spec,
    pool_queue_spec,
    worker_queue_spec,
)
from simyard_adapter.bootstrap import BrokerAddress
from simyard_adapter.limits import MAX_BROKER_MESSAGE_BYTES
from simyard_adapter.wire import identity_of, pool_queue, pool_user, worker_queue
from simyard_sites.kubernetes.errors import ApiError, NotFoundError

log = logging.getLogger(__name__)

SWEEP_SECONDS = 3600.0
SWEEP_SETTLE_SECONDS = 5.0
RETRY_SECONDS = 2.0


class Broker:
    """Makes and removes users and queues; remembers what it made, and puts right what differs after a reconnect.

    What belongs to a pool that went without its finalizer is removed after the pool's last Worker. The sweep finds
    what a crash left behind: queues by their names, and users by their permissions on this virtual host.

    Attributes:
        prepared: set once the platform's own exchanges, queues and users are there.
        logins: under which workers connect; see :mod:`simyard.fleet.rotation`.
        settled: whether the broker was swept since it was last found to lack something.
        swept: called after each sweep.
        reachable: whether the broker answered last time; ``changed`` is called when that changes.
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
    ) -> None:
        self._access = access
        self._occi = occi
        self._worker_access = worker_access
        self._admin = admin
        self._health = health
        self._registry = registry
        self._namespace = namespace
        self._changed = changed
        self._master_key = MasterKey(registry.client, namespace, self.sweep_soon)
        self.logins = Logins(registry, admin)
        self.settled = False
        self.swept: Callable[[], None] = lambda: None
        self._lock = asyncio.Lock()
        self._released: set[str] = set()
        self._left_pools: set[str] = set()
        self._lost: set[str] = set()
        self._wake = asyncio.Event()
        self._sweep_at = 0.0
        self._swept = False
        self.prepared = asyncio.Event()
        self.reachable = False
        registry.workers.subscribe(self._worker_changed)

    @property
    def problem(self) -> str:
        """Why workers cannot be served; empty when they can."""
        if not self.reachable:
            return "the message broker cannot be reached"
        return f"the message broker takes no messages: {self._health.alarm}" if self._health.alarm else ""

    async def ensure_workers(self, workers: Collection[Worker]) -> None:
        """Users and queues of these workers exist when this returns.

        Raises:
            MessagingError: the broker did not do it.
        """
        if not self.prepared.is_set():
            raise BrokerUnavailableError("the broker has not been reached yet")
        of_user = _by_user(workers)
        specs = [worker_queue_spec(user, item.metadata.uid) for user, items in of_user.items() for item in items]
        try:
            await self._ensure_queues(specs)
            for user, items in of_user.items():
                await self._ensure_user(user, items)
        except MessagingError:
            self._set_reachable(False)
            self.sweep_soon()
            raise
        self._set_reachable(True)
        if late := [worker for worker in workers if self._registry.worker_gone(worker.metadata.uid) is not None]:
            self._release(late)
            self.sweep_soon()

    async def _ensure_queues(self, specs: Sequence[QueueSpec]) -> None:
        """Declare the queues of workers; those that an earlier version made stay as they are."""
        try:
            await self._admin.ensure_queues(specs)
        except BrokerRefusedError:
            found = await self._admin.queues(WORKER_QUEUES_PREFIX)
            if not any(spec.name in found for spec in specs):
                raise
            await self._admin.ensure_queues([spec for spec in specs if spec.name not in found])

    def queue_lost(self, queue: str) -> None:
        """Make the queue of a Worker that exists again: its node at the broker is away."""
        uid = queue.rpartition(".")[2]
        if self._registry.worker(uid) is not None:
            self._lost.add(uid)
            self._wake.set()

    def address_for(self, worker: Worker) -> BrokerAddress:
        """Where and as whom the worker's adapter connects."""
        user = broker_user_of(worker)
        return self.address_of(self.logins.newest(user))

    def address_of(self, login: str) -> BrokerAddress:
        """Where and with which password a worker connects under a login."""
        return self._worker_access.as_user(login, self.logins.keys.password(login)).address()

    async def ensure_login(self, user: str, workers: Sequence[Worker]) -> None:
        """The newest login of the user of these workers exists when this returns, unless all of them are gone.

        Raises:
            MessagingError: the broker did not do it.
        """
        await self._ensure_user(user, workers)

    async def delete_former(self, logins: Iterable[str]) -> None:
        """Delete logins that are not the newest of their users; their connections end.

        Raises:
            MessagingError: the broker did not do it.
        """
        async with self._lock:
            for names in self.logins.former(logins).values():
                for name in names:
                    await self.logins.delete(name)

    async def forget_previous_key(self) -> None:
        """Remove the former master key: nobody uses a password of it any more.

        Raises:
            ApiError: the API server did not do it.
        """
        await self._master_key.forget_previous(self.logins.keys)
        self.logins.keys = replace(self.logins.keys, previous=b"")

    async def watch_key(self) -> NoReturn:
        """Sweep when the master key changes, until cancelled."""
        await self._master_key.run()

    async def remove_pool(self, pool_uid: str) -> None:
        """Delete the user with its logins (which ends their connections) and every queue of a pool.

        Raises:
            MessagingError: the broker did not do it.
        """
        user = pool_user(pool_uid)
        async with self._lock:  # not while the user is being made: it would be left, without queues to find it by
            await self.logins.delete_user(user)
            queues = await self._admin.queues(f"{WORKER_QUEUES_PREFIX}{user}.")
            await self._admin.delete_queues([*queues, pool_queue(user)])

    async def cut_off(self, user: str) -> None:
        """Close the connections of a worker's broker user, and permit it none.

        Raises:
            MessagingError: the broker did not do it.
        """
        async with self._lock:
            await self.logins.cut_off(user)

    async def release(self, user: str) -> None:
        """Permit a broker user that was cut off its connections again; one that is gone stays so.

        Raises:
            MessagingError: the broker did not do it.
        """
        async with self._lock:
            await self.logins.release(user, self._limits(user))

    async def cut_off_users(self) -> Collection[str]:
        """Return the workers' broker users that are cut off, by this process or an earlier one.

        Raises:
            MessagingError: the broker did not say it.
        """
        found = map(identity_of, await self._admin.users_without_connections())
        return {user for user in found if user.startswith((ALONE, OF_POOL))}

    async def close_queue(self, user: str, worker_uid: str) -> bool:
        """Delete the queue of a Worker that is gone; False if that cannot be said yet.

        Of a Worker that went before this process began the user is not known (empty), but the first sweep deletes its
        queue.

        Raises:
            MessagingError: the broker did not do it.
        """
        if user:
            await self._admin.delete_queues([worker_queue(user, worker_uid)])
        return bool(user) or self._swept

    def sweep_soon(self) -> None:
        """What is at the broker may differ from what we made: it was away, or something ended halfway."""
        self._sweep_at = 0.0
        self.settled = False
        self.logins.forget()
        self._wake.set()

    async def run(self) -> NoReturn:
        """Delete the queues of Workers that are gone, in bulk, and sweep now and then, until cancelled."""
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
                    self.settled = self._sweep_at > 0
                    self.swept()
                waits = SWEEP_SECONDS
            except (MessagingError, ApiError, MasterKeyError) as error:
                log.warning("broker: %s", error)
                self._set_reachable(False)
                self.settled = False
                self._sweep_at = 0.0
                waits = RETRY_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(waits):
                    await self._wake.wait()

    async def _prepare(self) -> None:
        """Exchanges, the operator's queues, and the users of the apiserver and of the frontends, with their Secrets."""
        keys = self.logins.keys = await self._master_key.read()
        await self._admin.ensure_platform()
        password = derive_password(keys.key, APISERVER_USER)
        await self._admin.ensure_user(apiserver_user_spec(), password)
        await self._write_secret(APISERVER_BROKER_SECRET, self._access.as_user(APISERVER_USER, password).to_secret())
        self.prepared.set()
        await self._check_message_size()
        await self._write_secret(FRONTEND_BROKER_SECRET, await self._occi.prepare(keys.key))

    async def _check_message_size(self) -> None:
        """Warn of a broker that takes messages of any size: one worker could fill the memory of all who read them."""
        bounded = await self._admin.bounds_messages()
        MESSAGES_BOUNDED.set(bounded)
        if not bounded:
            problem = "the broker takes messages of more than %d bytes: set max_message_size in its configuration"
            log.warning(problem, MAX_BROKER_MESSAGE_BYTES)

    async def _write_secret(self, name: str, texts: Mapping[str, str]) -> None:
        client = self._registry.client
        body = secret_body(name, self._namespace, {key: text.encode() for key, text in texts.items()})
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
        """The user of these workers, unless all of them are gone meanwhile: then it is, or will be, removed.

        ``restoring``: with the logins that workers may still use.
        """
        async with self._lock:
            alive = [item for item in workers if self._registry.worker_gone(item.metadata.uid) is None]
            if not alive:
                return
            worker = alive[0]
            pool_uid = pool_uid_of(worker)
            limits = self._limits(user)
            if pool_uid and not self.logins.has_newest(user):
                await self._admin.ensure_queues([pool_queue_spec(user)])
            await self.logins.ensure(user, limits)
            if restoring:
                await self.logins.ensure_former(user, limits)

    def _limits(self, user: str) -> UserLimits:
        of_pool = user.startswith(OF_POOL)
        return UserLimits.of_pool(self._registry.workers.count("pool", user.removeprefix(OF_POOL)) if of_pool else 1)

    def _worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        if (left := gone(old, new)) is not None:
            uid = pool_uid_of(left)
            if uid and not self._registry.pools.count("uid", uid):
                self._left_pools.add(uid)
            self._release([left])

    def _release(self, workers: Iterable[Worker]) -> None:
        self._released.update(map(queue_of, workers))
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
            await self.ensure_workers([worker for uid in lost if (worker := self._registry.worker(uid)) is not None])
            self._lost -= lost

    async def _delete(self, queues: Iterable[str], users: Iterable[str]) -> None:
        for user in users:
            await self.logins.delete_user(user)
        await self._admin.delete_queues(queues)

    async def _sweep(self) -> None:
        """Remove queues and users without a Worker or pool, when they are still so after a while."""
        found = {
            name for prefix in (WORKER_QUEUES_PREFIX, _POOL_QUEUES_PREFIX) for name in await self._admin.queues(prefix)
        }
        if missing := [worker for worker in self._registry.workers if queue_of(worker) not in found]:
            await self.ensure_workers(missing)
            for user, items in _by_user(missing).items():
                await self._ensure_user(user, items, restoring=True)
        known = {identity_of(login) for login in await self.logins.found()}
        await asyncio.sleep(SWEEP_SETTLE_SECONDS)
        async with self._lock:  # not while a user is being made
            workers = {queue_of(worker): worker for worker in self._registry.workers}
            users = {pool_user(pool.metadata.uid) for pool in self._registry.pools}
            users |= {broker_user_of(worker) for worker in workers.values()}
            wanted = workers.keys() | {pool_queue(user) for user in users}
            stale = [name for name in found if name not in wanted]
            await self._delete(stale, {*known, *map(_user_of, stale)} - users)


_POOL_QUEUES_PREFIX = pool_queue("")


def _by_user(workers: Iterable[Worker]) -> dict[str, list[Worker]]:
    found: dict[str, list[Worker]] = {}
    for worker in workers:
        found.setdefault(broker_user_of(worker), []).append(worker)
    return found


def _user_of(queue: str) -> str:
    """The broker user in the name of a worker's or pool's queue."""
    return queue.split(".")[2]
