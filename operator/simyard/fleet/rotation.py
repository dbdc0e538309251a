"""Has workers use the newest login at the broker, and deletes the former ones: passwords change without a restart.

That a rotation is under way is what the broker has: a login that is not the newest of its user. Which workers still use
it is what the broker says of their consumers. Nothing is remembered that a new operator would miss; what is remembered
here only paces the work. :mod:`simyard.plan.rotation` decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from prometheus_client import Gauge

from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.broker import Broker
from simyard.fleet.logins import ALONE, OF_POOL
from simyard.fleet.master_key import MasterKeyError
from simyard.fleet.orders import Orders
from simyard.fleet.registry import Registry, broker_user_of, queue_of
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.errors import MessagingError
from simyard.messaging.topology import WORKER_QUEUES_PREFIX
from simyard.plan.rotation import Progress, generation_of, progress
from simyard_adapter.wire import Request
from simyard_sites.kubernetes.errors import ApiError

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 5.0
LAST_PAUSE_SECONDS = 20.0
"""Each look costs the broker a list of all consumers: the pauses between looks grow while nothing moves."""
TOLD_PER_BATCH = 50
BATCH_SECONDS = 0.5
"""100 workers in a second connect anew, so that the broker has time for its other work."""
TELL_AGAIN_SECONDS = 30.0
ROTATING = Gauge("simyard_broker_rotating", "Users at the broker that have a login which is to go.")


class Rotation:
    """See the module."""

    def __init__(self, registry: Registry, broker: Broker, admin: BrokerAdmin, orders: Orders) -> None:
        self._registry = registry
        self._broker = broker
        self._admin = admin
        self._orders = orders
        self._time = asyncio.get_running_loop().time
        self._wake = asyncio.Event()
        self._told: dict[tuple[str, str], float] = {}
        self._begun: dict[str, float] = {}
        self._finished: dict[str, float] = {}
        registry.pools.subscribe(self._pool_changed)
        broker.swept = self._wake.set

    async def run(self) -> NoReturn:
        """Rotate until cancelled."""
        await self._wake.wait()  # until the broker was swept: only then it has what it should have
        pause = FIRST_PAUSE_SECONDS
        while True:
            self._wake.clear()
            waits: float | None = pause
            try:
                moved = await self._pass()
                waits = None if moved is None else pause
                pause = FIRST_PAUSE_SECONDS if moved in (None, True) else min(2 * pause, LAST_PAUSE_SECONDS)
            except (MessagingError, ApiError, MasterKeyError) as error:
                log.warning("rotation of the broker's passwords: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(waits):
                    await self._wake.wait()

    def _pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        if old is not None and new is not None and generation_of(old.status) != generation_of(new.status):
            self._wake.set()

    async def _pass(self) -> bool | None:
        """Go on with all users at once; None when the next sweep is soon enough, else whether anything was done."""
        if not self._broker.settled:
            return None
        found = await self._broker.logins.found()
        former = {user: logins for user, logins in self._broker.logins.former(found).items() if self._exists(user)}
        ROTATING.set(len(former))
        self._forget_others({self._broker.logins.newest(user) for user in former})
        if not former:
            return await self._finish(found)
        workers = {user: self._workers(user) for user in former}
        for user, items in workers.items():
            if items:
                await self._broker.ensure_login(user, items)
        consumed = await self._admin.consumer_logins(WORKER_QUEUES_PREFIX)
        moved = False
        for user, logins in former.items():
            newest = self._broker.logins.newest(user)
            using = {item.metadata.uid: consumed.get(queue_of(item), frozenset()) for item in workers[user]}
            state = progress(newest, using)
            moved |= await self._tell(newest, state.outdated)
            if self._may_delete(newest, state):
                await self._broker.delete_former(logins)
                log.info("the former login of %s at the broker is deleted", user)
                moved = True
        return moved

    async def _finish(self, found: Collection[str]) -> bool | None:
        """Forget the former master key, once the user of every worker has its newest login.

        A broker that has lost its data has no former login either: there the former key is still needed.
        """
        logins = self._broker.logins
        if not logins.keys.previous:
            return None
        users = set(map(broker_user_of, self._registry.workers))
        if lacking := [user for user in users if logins.newest(user) not in found]:
            for user in lacking:
                await self._broker.ensure_login(user, self._workers(user))
            return False
        await self._broker.forget_previous_key()
        log.info("no worker uses a password of the former master key: it is forgotten")
        return None

    def _exists(self, user: str) -> bool:
        """Whether the pool or the worker is there; what is left of others is removed by the sweep."""
        if user.startswith(OF_POOL):
            uid = user.removeprefix(OF_POOL)
            return bool(self._registry.pools.count("uid", uid) or self._registry.workers.count("pool", uid))
        return bool(self._workers(user))

    def _workers(self, user: str) -> Sequence[Worker]:
        if user.startswith(OF_POOL):
            return self._registry.workers.by("pool", user.removeprefix(OF_POOL))
        return self._registry.workers.by("uid", user.removeprefix(ALONE))

    def _may_delete(self, newest: str, state: Progress) -> bool:
        """Whether the former logins may go; times begin anew with this process, so that nobody is cut off early."""
        time = self._time()
        if not state.finished:
            self._finished.pop(newest, None)
        return state.may_delete(
            finished_seconds=time - self._finished.setdefault(newest, time) if state.finished else 0.0,
            rotating_seconds=time - self._begun.setdefault(newest, time),
        )

    async def _tell(self, login: str, uids: Sequence[str]) -> bool:
        """Tell workers their newest login, some at a time; return False when all of them were told just now.

        A worker that cannot be told, because its queue is full for instance, holds up no other worker and no other
        pool. It is told again in the next pass, and cut off at the deadline.
        """
        due = [uid for uid in uids if self._told.get((login, uid), float("-inf")) + TELL_AGAIN_SECONDS <= self._time()]
        address = self._broker.address_of(login)
        body = {"username": login, "password": address.password}
        for start in range(0, len(due), TOLD_PER_BATCH):
            if start:
                await asyncio.sleep(BATCH_SECONDS)
            batch = due[start : start + TOLD_PER_BATCH]
            async with asyncio.TaskGroup() as group:
                telling = [group.create_task(self._try_to_tell(uid, login, body)) for uid in batch]
            failed = [error for task in telling if (error := task.result()) is not None]
            if failed:
                log.warning("%d workers could not be told the login %s: %s", len(failed), login, failed[0])
            if len(failed) == len(batch):
                break  # it is the broker: the next pass tells the rest
        return bool(due)

    async def _try_to_tell(self, uid: str, login: str, body: Mapping[str, str]) -> MessagingError | None:
        try:
            await self._orders.give(uid, Request.CREDENTIALS, body, lasting=False)
        except MessagingError as error:
            return error
        self._told[login, uid] = self._time()
        return None

    def _forget_others(self, rotating: Collection[str]) -> None:
        """Forget what is remembered of logins that are not about to replace others."""
        for memory in (self._begun, self._finished):
            for login in [known for known in memory if known not in rotating]:
                del memory[login]
        for key in [known for known in self._told if known[0] not in rotating]:
            del self._told[key]
