"""What workers need at the broker: a user and a queue per pool, a queue per worker."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NoReturn

from simyard_adapter.bootstrap import BrokerAddress
from simyard_adapter.wire import pool_queue, pool_user, standalone_user

from simyard.api.base import Json
from simyard.api.names import Resource
from simyard.api.worker import Worker
from simyard.fleet.registry import Registry, broker_user_of, pool_uid_of, queue_of
from simyard.kube.client import KubeClient
from simyard.kube.errors import AlreadyExistsError, NotFoundError
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.credentials import derive_password, new_master_key
from simyard.messaging.errors import MessagingError
from simyard.messaging.topology import (
    APISERVER_USER,
    WORKER_QUEUES_PREFIX,
    apiserver_user_spec,
    pool_queue_spec,
    pool_user_spec,
    standalone_user_spec,
    worker_queue_spec,
)

log = logging.getLogger(__name__)

SECRETS = Resource("", "v1", "secrets", "Secret")
MASTER_KEY_SECRET = "simyard-broker-master-key"  # noqa: S105 (a name)
APISERVER_SECRET = "simyard-apiserver-broker"  # noqa: S105 (a name)
SWEEP_SECONDS = 3600.0
SWEEP_SETTLE_SECONDS = 5.0
RETRY_SECONDS = 2.0


async def master_key(client: KubeClient, namespace: str) -> bytes:
    """The key from which passwords are derived; made by whoever needs it first."""
    try:
        secret = await client.get(SECRETS, MASTER_KEY_SECRET, namespace)
    except NotFoundError:
        try:
            secret = await client.create(
                SECRETS, _secret(MASTER_KEY_SECRET, namespace, {"key": new_master_key()}), namespace
            )
        except AlreadyExistsError:
            secret = await client.get(SECRETS, MASTER_KEY_SECRET, namespace)
    return base64.b64decode(secret["data"]["key"])


class Broker:
    """Makes and removes users and queues; remembers what it made, and puts right what differs after a reconnect.

    ``address`` is where workers dial: it may differ from where the operator does.
    """

    def __init__(self, access: BrokerAccess, worker_access: BrokerAccess, admin: BrokerAdmin, registry: Registry) -> None:
        self._access = access
        self._worker_access = worker_access
        self._admin = admin
        self._registry = registry
        self._key = b""
        self._users: set[str] = set()
        self._lock = asyncio.Lock()
        self._released: set[str] = set()
        self._wake = asyncio.Event()
        self._sweep_at = 0.0
        self.reachable = False
        registry.workers.subscribe(self._worker_changed)

    async def prepare(self, client: KubeClient, namespace: str) -> None:
        """Once, before anything else: exchanges, the operator's queues, the apiserver's user and its Secret.

        Raises:
            ApiError, MessagingError: the API server or the broker did not do it.
        """
        self._key = await master_key(client, namespace)
        await self._admin.ensure_platform()
        password = derive_password(self._key, APISERVER_USER)
        await self._admin.ensure_user(apiserver_user_spec(), password)
        self.reachable = True
        data = {name: text.encode() for name, text in self._access.as_user(APISERVER_USER, password).to_secret().items()}
        body = _secret(APISERVER_SECRET, namespace, data)
        try:
            found = await client.get(SECRETS, APISERVER_SECRET, namespace)
        except NotFoundError:
            await client.create(SECRETS, body, namespace)
            return
        if found.get("data") != body["data"]:
            await client.patch(SECRETS, APISERVER_SECRET, {"data": body["data"]}, namespace)

    async def ensure_workers(self, workers: Collection[Worker]) -> None:
        """Users and queues of these workers exist when this returns.

        Raises:
            MessagingError: the broker did not do it.
        """
        try:
            for worker in {broker_user_of(item): item for item in workers}.values():
                await self._ensure_user(worker)
            await self._admin.ensure_queues(
                [worker_queue_spec(broker_user_of(item), item.metadata.uid) for item in workers]
            )
        except MessagingError:
            self.reachable = False
            raise
        self.reachable = True
        self._released |= {
            queue_of(item) for item in workers if self._registry.worker_gone(item.metadata.uid) is not None
        }

    def address_for(self, worker: Worker) -> BrokerAddress:
        """Where and as whom the worker's adapter connects."""
        user = broker_user_of(worker)
        return self._worker_access.as_user(user, derive_password(self._key, user)).address()

    async def remove_pool(self, pool_uid: str) -> None:
        """Delete the user (which ends its connections) and every queue of a pool.

        Raises:
            MessagingError: the broker did not do it.
        """
        user = pool_user(pool_uid)
        queues = await self._admin.queues(f"{WORKER_QUEUES_PREFIX}{user}.")
        await self._admin.delete_queues([*queues, pool_queue(user)])
        await self._admin.delete_user(user)
        self._users.discard(user)

    def reconnected(self) -> None:
        """The broker is back, perhaps with less than it had: look soon."""
        self._sweep_at = 0.0
        self._users.clear()
        self._wake.set()

    async def run(self) -> NoReturn:
        """Delete the queues of Workers that are gone, in bulk, and sweep now and then, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            try:
                await self._delete_released()
                if loop.time() >= self._sweep_at:
                    await self._sweep()
                    self._sweep_at = loop.time() + SWEEP_SECONDS
                self.reachable = True
                waits = SWEEP_SECONDS
            except MessagingError as error:
                self.reachable = False
                log.warning("broker: %s", error)
                waits = RETRY_SECONDS
            try:
                async with asyncio.timeout(waits):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _ensure_user(self, worker: Worker) -> None:
        user, pool_uid = broker_user_of(worker), pool_uid_of(worker)
        async with self._lock:
            if user in self._users:
                return
            spec = pool_user_spec(pool_uid) if pool_uid else standalone_user_spec(worker.metadata.uid)
            await self._admin.ensure_user(spec, derive_password(self._key, user))
            if pool_uid:
                await self._admin.ensure_queues([pool_queue_spec(user)])
            self._users.add(user)

    def _worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._released.add(queue_of(old))
            self._wake.set()

    async def _delete_released(self) -> None:
        while self._released:
            names = frozenset(self._released)
            await self._admin.delete_queues(names)
            self._released -= names

    async def _sweep(self) -> None:
        """Queues and users without a Worker or pool are removed when they are still so after a while."""
        queues = frozenset(await self._admin.queues(WORKER_QUEUES_PREFIX))
        users = frozenset(await self._admin.users())
        await asyncio.sleep(SWEEP_SETTLE_SECONDS)
        wanted = {queue_of(worker): worker for worker in self._registry.workers}
        await self._admin.delete_queues(queues - wanted.keys())
        for user in _worker_users(users) - self._wanted_users(wanted.values()):
            await self._admin.delete_user(user)
        missing = [worker for queue, worker in wanted.items() if queue not in queues]
        if missing:
            await self.ensure_workers(missing)

    def _wanted_users(self, workers: Iterable[Worker]) -> set[str]:
        pools = {pool_user(pool.metadata.uid) for pool in self._registry.pools}
        return pools | {broker_user_of(worker) for worker in workers}


def _worker_users(users: Iterable[str]) -> set[str]:
    return {user for user in users if user.startswith((pool_user(""), standalone_user("")))}


def _secret(name: str, namespace: str, data: dict[str, bytes]) -> Json:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "Opaque",
        "data": encoded,
    }


def worker_access(access: BrokerAccess, host: str, port: int) -> BrokerAccess:
    """The same broker as workers reach it; empty host and port 0 keep the operator's own."""
    return replace(access, host=host or access.host, port=port or access.port)
