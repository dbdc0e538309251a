# SPDX-License-Identifier: Apache-2.0
"""Moves workers to the newest login at the broker without a restart, and deletes the former logins.

The broker has the whole state of a rotation. A user with a former login, in addition to its newest one, is in a
rotation. The list of consumers shows which workers still use a former login. This process remembers only times, so a
new operator can continue the rotation. :mod:`simyard.plan.rotation` makes the decisions.
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
from simyard.fleet.broker.logins import ALONE, OF_POOL
from simyard.fleet.broker.master_key import MasterKeyError
from simyard.fleet.broker.orders import Orders
from simyard.fleet.broker.provisioning import Broker
from simyard.fleet.registry import Registry, get_broker_user, get_queue
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.errors import MessagingError
from simyard.messaging.topology import WORKER_QUEUES_PREFIX
from simyard.plan.rotation import Progress, get_generation, measure_progress
from simyard_adapter.backoff import compute_delay
from simyard_adapter.wire import Request
from simyard_sites.kubernetes.errors import ApiError

log = logging.getLogger(__name__)

WORKERS_PER_BATCH = 50
BATCH_SECONDS = 0.5
"""Pause between two batches, so that only 100 workers reconnect in a second and the broker has time for other work."""
RESEND_SECONDS = 30.0
ROTATING = Gauge("simyard_broker_rotating", "Users at the broker with a login that a rotation replaces.")


class Rotation:
    """Component that carries out the rotations of all broker users."""

    def __init__(
        self, registry: Registry, broker: Broker, admin: BrokerAdmin, orders: Orders, timing: Timing = PRODUCTION
    ) -> None:
        self._timing = timing
        self._registry = registry
        self._broker = broker
        self._admin = admin
        self._orders = orders
        self._time = asyncio.get_running_loop().time
        self._wake = asyncio.Event()
        self._sent_at: dict[tuple[str, str], float] = {}
        self._begun: dict[str, float] = {}
        self._finished: dict[str, float] = {}

    def wake(self) -> None:
        """Ask for a pass now."""
        self._wake.set()

    async def run(self) -> NoReturn:
        """Rotate until cancelled."""
        await self._wake.wait()  # the first sweep creates missing users and queues
        idle_passes = 0
        while True:
            self._wake.clear()
            waits: float | None = self._compute_pause(idle_passes)
            try:
                moved = await self._pass()
                waits = None if moved is None else waits
                idle_passes = 0 if moved in (None, True) else idle_passes + 1
            except (MessagingError, ApiError, MasterKeyError) as error:
                log.warning("the rotation of the broker's passwords is delayed: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(waits):
                    await self._wake.wait()

    def _compute_pause(self, idle_passes: int) -> float:
        """Return the seconds before the next pass, after a number of passes without progress.

        A pass makes the broker list all its consumers. So the pauses grow while nothing changes.
        """
        return compute_delay(idle_passes, self._timing.rotation_first_seconds, self._timing.rotation_max_seconds)

    def pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        """Ask for a pass when the generation of a pool's credentials has changed."""
        if old is not None and new is not None and get_generation(old.status) != get_generation(new.status):
            self._wake.set()

    async def _pass(self) -> bool | None:
        """Continue the rotation of every user.

        Returns True if this pass changed something, False if it changed nothing, None if no pass is needed before the
        next sweep.
        """
        if not self._broker.is_swept:
            return None
        found = await self._broker.logins.list_found()
        former = {user: logins for user, logins in self._broker.logins.find_former(found).items() if self._exists(user)}
        ROTATING.set(len(former))
        self._forget_others({self._broker.logins.get_newest(user) for user in former})
        if not former:
            return await self._finish(found)
        workers = {user: self._workers(user) for user in former}
        for user, items in workers.items():
            if items:
                await self._broker.ensure_login(user, items)
        consumed = await self._admin.list_consumer_logins(WORKER_QUEUES_PREFIX)
        moved = False
        for user, logins in former.items():
            newest = self._broker.logins.get_newest(user)
            using = {item.metadata.uid: consumed.get(get_queue(item), frozenset()) for item in workers[user]}
            state = measure_progress(newest, using)
            moved |= await self._send_login(newest, state.outdated)
            if self._may_delete(newest, state):
                await self._broker.delete_former(logins)
                log.info("the former login of %s at the broker is deleted", user)
                moved = True
        return moved

    async def _finish(self, found: Collection[str]) -> bool | None:
        """End the rotation of the master key if the user of every worker has its newest login.

        The check is necessary because a broker that has lost its data has no former logins, although workers still use
        passwords of the former key.
        """
        logins = self._broker.logins
        if not (logins.keys.previous or logins.keys.following):
            return None
        users = set(map(get_broker_user, self._registry.workers))
        if lacking := [user for user in users if logins.get_newest(user) not in found]:
            for user in lacking:
                await self._broker.ensure_login(user, self._workers(user))
            return False
        await self._broker.end_rotation()
        log.info("the former master key is deleted: no worker uses a password of it any more")
        if logins.keys.following:
            log.info("the next rotation starts: it was requested during this one")
        return None

    def _exists(self, user: str) -> bool:
        """Return whether the pool or the worker of a user exists. If not, the sweep deletes the user."""
        if user.startswith(OF_POOL):
            uid = user.removeprefix(OF_POOL)
            return bool(self._registry.pools.count("uid", uid) or self._registry.workers.count("pool", uid))
        return bool(self._workers(user))

    def _workers(self, user: str) -> Sequence[Worker]:
        if user.startswith(OF_POOL):
            return self._registry.workers.list_by("pool", user.removeprefix(OF_POOL))
        return self._registry.workers.list_by("uid", user.removeprefix(ALONE))

    def _may_delete(self, newest: str, state: Progress) -> bool:
        """Return whether the former logins of a user may be deleted.

        A new process measures the times from its own start, so that it cuts off no worker too early.
        """
        time = self._time()
        if not state.finished:
            self._finished.pop(newest, None)
        return state.may_delete(
            finished_seconds=time - self._finished.setdefault(newest, time) if state.finished else 0.0,
            rotating_seconds=time - self._begun.setdefault(newest, time),
            linger_seconds=self._timing.login_linger_seconds,
            deadline_seconds=self._timing.login_deadline_seconds,
        )

    async def _send_login(self, login: str, uids: Sequence[str]) -> bool:
        """Send workers their newest login in batches; return False if the login was sent to all of them a moment ago.

        A worker that cannot receive the login, for example because its queue is full, delays no other worker and no
        other pool. The next pass sends it the login again. At the deadline, the worker loses its connection.
        """
        due = [uid for uid in uids if self._sent_at.get((login, uid), float("-inf")) + RESEND_SECONDS <= self._time()]
        address = self._broker.build_login_address(login)
        body = {"username": login, "password": address.password}
        for start in range(0, len(due), WORKERS_PER_BATCH):
            if start:
                await asyncio.sleep(BATCH_SECONDS)
            batch = due[start : start + WORKERS_PER_BATCH]
            async with asyncio.TaskGroup() as group:
                sends = [group.create_task(self._try_to_send(uid, login, body)) for uid in batch]
            failed = [error for task in sends if (error := task.result()) is not None]
            if failed:
                log.warning("the login could not be sent to %d workers (login %s): %s", len(failed), login, failed[0])
            if len(failed) == len(batch):
                break  # the broker does not work: the next pass sends the login to the other workers
        return bool(due)

    async def _try_to_send(self, uid: str, login: str, body: Mapping[str, str]) -> MessagingError | None:
        try:
            await self._orders.send(uid, Request.CREDENTIALS, body, lasting=False)
        except MessagingError as error:
            return error
        self._sent_at[login, uid] = self._time()
        return None

    def _forget_others(self, rotating: Collection[str]) -> None:
        """Forget the times of the logins that are not in ``rotating``."""
        for memory in (self._begun, self._finished):
            for login in [known for known in memory if known not in rotating]:
                del memory[login]
        for key in [known for known in self._sent_at if known[0] not in rotating]:
            del self._sent_at[key]
