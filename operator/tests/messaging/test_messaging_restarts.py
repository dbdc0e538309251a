# SPDX-License-Identifier: Apache-2.0
"""Messages and liveness survive when the broker or an adapter is killed."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import pytest
from messaging_workers import WORKER_UID, MakeWorker, Worker, access_to, running, worker_maker

from simyard.guest.messages import Resulted
from simyard.messaging import liveness as liveness_module
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.consumers import CREATED
from simyard.messaging.errors import BrokerUnavailableError
from simyard.messaging.events import OperatorEvents, ReceivedEvent
from simyard.messaging.liveness import RECHECK_SECONDS, Liveness
from simyard.messaging.requests import Requester
from simyard.messaging.topology import build_worker_queue_spec
from simyard_adapter.wire import Event, Request
from simyard_dev.local_broker import LocalBroker

pytestmark = pytest.mark.xdist_group("mortal-broker")

CONSUME = """
import asyncio, sys, aiormq

async def main():
    connection = await aiormq.connect(sys.argv[1])
    channel = await connection.channel()
    await channel.basic_consume(sys.argv[2], print)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Presence:
    """The changes of a queue's presence, as a Liveness reports them."""

    def __init__(
        self,
        access: BrokerAccess,
        admin: BrokerAdmin,
        *,
        grace_seconds: float = 0,
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self.liveness = Liveness(
            access,
            admin,
            on_change=self._changed,
            grace_seconds=grace_seconds,
            statistics_seconds=1,
            recheck_seconds=recheck_seconds,
        )
        self.history: dict[str, list[bool | None]] = {}
        self._changes = asyncio.Event()

    def _changed(self, queue: str | None) -> None:
        for followed, seen in self.history.items():
            seen.append(self.liveness.has_consumer(followed))
        self._changes.set()

    async def becomes(self, queue: str, present: bool | None) -> None:
        async with asyncio.timeout(240):
            while self.liveness.has_consumer(queue) is not present:
                self._changes.clear()
                await self._changes.wait()


@pytest.fixture
def mortal_access(mortal_broker: LocalBroker) -> BrokerAccess:
    return access_to(mortal_broker)


@pytest.fixture
async def mortal_admin(mortal_access: BrokerAccess) -> AsyncIterator[BrokerAdmin]:
    async with contextlib.aclosing(BrokerAdmin(mortal_access)) as admin:
        await admin.ensure_platform()
        yield admin


@pytest.fixture
async def make_mortal_worker(mortal_access: BrokerAccess, mortal_admin: BrokerAdmin) -> AsyncIterator[MakeWorker]:
    async with worker_maker(mortal_access, mortal_admin) as make:
        yield make


@contextlib.asynccontextmanager
async def adapter_process(worker: Worker) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CONSUME,
        str(worker.access.build_amqp_url("adapter")),
        worker.queue,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def made_again(admin: BrokerAdmin, *workers: Worker) -> None:
    """Declare the lost queues of the workers again, as the operator does."""
    await admin.ensure_queues([build_worker_queue_spec(worker.user, WORKER_UID) for worker in workers])


async def test_a_killed_broker_fails_requests_at_once_keeps_what_is_durable_and_then_all_works_again(
    mortal_broker: LocalBroker, mortal_access: BrokerAccess, mortal_admin: BrokerAdmin, make_mortal_worker: MakeWorker
) -> None:
    worker, idle = await make_mortal_worker("pool"), await make_mortal_worker("idle")
    requester = Requester(mortal_access, "test")
    events: asyncio.Queue[ReceivedEvent] = asyncio.Queue()

    async def ask() -> object:
        return await requester.request(worker.queue, worker.user, Request.LOG, {}, timeout_seconds=3600)

    async with running(requester), asyncio.timeout(240):
        await requester.wait_until_connected()
        async with idle.connect() as link:
            await idle.say(link, Event.RESULT, b'{"invocation": "earlier"}')
        with contextlib.suppress(BrokerUnavailableError):
            async with worker.answering() as requests:
                pending = [asyncio.create_task(ask()) for _ in range(10)]
                for _ in pending:
                    await requests.get()
                await asyncio.to_thread(mortal_broker.stop, 0)
                for request in pending:
                    with pytest.raises(BrokerUnavailableError):
                        await request
                with pytest.raises(BrokerUnavailableError, match="no connection"):
                    await ask()
        await asyncio.to_thread(mortal_broker.start)
        await requester.wait_until_connected()
        await made_again(mortal_admin, worker)
        async with worker.answering(b"{}"):
            assert await ask()
        async with running(OperatorEvents(mortal_access, events.put_nowait)):
            event = await events.get()
    assert isinstance(event.message, Resulted)
    assert (event.worker_uid, event.message.invocation) == (WORKER_UID, "earlier")


async def test_a_killed_adapter_its_return_and_a_deleted_queue_are_seen(
    mortal_access: BrokerAccess, mortal_admin: BrokerAdmin, make_mortal_worker: MakeWorker
) -> None:
    early, late = await make_mortal_worker("early"), await make_mortal_worker("late")
    presence = Presence(mortal_access, mortal_admin)
    async with adapter_process(early) as killed:
        async with running(presence.liveness):
            assert presence.liveness.has_consumer(early.queue) is None
            await presence.becomes(early.queue, True)
            await presence.becomes(late.queue, False)
            async with adapter_process(late):
                await presence.becomes(late.queue, True)
                killed.kill()
                await presence.becomes(early.queue, False)
                async with adapter_process(early):
                    await presence.becomes(early.queue, True)
                    await mortal_admin.delete_queues([early.queue])
                    await presence.becomes(early.queue, False)
            await presence.becomes(late.queue, False)
        assert presence.liveness.has_consumer(late.queue) is None


async def test_an_end_that_no_event_tells_of_is_found_by_comparing(
    mortal_access: BrokerAccess,
    mortal_admin: BrokerAdmin,
    make_mortal_worker: MakeWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(liveness_module, "KEYS", (CREATED,))
    worker, other = await make_mortal_worker("early"), await make_mortal_worker("late")
    presence = Presence(mortal_access, mortal_admin, recheck_seconds=0)
    async with running(presence.liveness), adapter_process(worker) as killed, adapter_process(other):
        await presence.becomes(worker.queue, True)
        await presence.becomes(other.queue, True)
        killed.kill()
        await presence.becomes(worker.queue, False)
        assert presence.liveness.has_consumer(other.queue) is True


async def test_after_a_restart_workers_are_unknown_until_they_are_back_or_their_grace_has_passed(
    mortal_broker: LocalBroker,
    mortal_access: BrokerAccess,
    mortal_admin: BrokerAdmin,
    make_mortal_worker: MakeWorker,
) -> None:
    returning, lost = await make_mortal_worker("returning"), await make_mortal_worker("lost")
    presence = Presence(mortal_access, mortal_admin, grace_seconds=15)
    async with running(presence.liveness):
        async with adapter_process(returning), adapter_process(lost):
            await presence.becomes(returning.queue, True)
            await presence.becomes(lost.queue, True)
            await asyncio.to_thread(mortal_broker.stop, 0)
            await presence.becomes(returning.queue, None)
            assert presence.liveness.has_consumer(lost.queue) is None
        await asyncio.to_thread(mortal_broker.start)
        presence.history = {returning.queue: [], lost.queue: []}
        await made_again(mortal_admin, returning, lost)
        async with adapter_process(returning):
            await presence.becomes(lost.queue, False)
            assert presence.liveness.has_consumer(returning.queue) is True
            assert False not in presence.history[returning.queue]
            assert None in presence.history[lost.queue]
            assert True not in presence.history[lost.queue]
