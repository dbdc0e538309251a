# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import orjson
import pytest
from aiormq.abc import DeliveredMessage
from messaging_workers import PASSWORD, MakeWorker, Worker, running

from simyard.guest.messages import MAX_REPLY_BYTES, Reply
from simyard.guest.values import ClaimedResult
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.errors import (
    BrokerUnavailableError,
    InvalidReplyError,
    MessagingError,
    NoConsumerError,
    QueueFullError,
    RemoteError,
    ReplyTimeoutError,
)
from simyard.messaging.requests import MAX_ATTEMPTS, Requester
from simyard.messaging.topology import APISERVER_USER, WORKER_QUEUE_MESSAGES, build_apiserver_user_spec
from simyard_adapter.wire import BEGUN, ErrorReason, Request, name_pool_queue


@pytest.fixture
async def requester(access: BrokerAccess, admin: BrokerAdmin) -> AsyncIterator[Requester]:
    """Yield a requester with only the rights of the apiserver."""
    await admin.ensure_user(build_apiserver_user_spec(), PASSWORD)
    requester = Requester(access.as_user(APISERVER_USER, PASSWORD), "test")
    async with running(requester), asyncio.timeout(240):
        await requester.wait_until_connected()
        yield requester


async def ask(requester: Requester, worker: Worker, seconds: float = 10.0) -> str:
    asking = requester.request(worker.queue, worker.user, Request.LOG, {"tailLines": 3}, timeout_seconds=seconds)
    return (await asking).log


async def test_a_request_gets_the_reply_of_its_worker(requester: Requester, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    async with worker.answering(b'{"log": "text"}') as requests:
        assert await ask(requester, worker) == "text"
        request = requests.get_nowait()
    properties = request.header.properties
    assert orjson.loads(request.body) == {"tailLines": 3}
    assert (properties.message_type, properties.expiration, properties.user_id) == ("log", "10000", APISERVER_USER)
    assert properties.message_id


async def test_concurrent_requests_get_their_own_replies(requester: Requester, make_worker: MakeWorker) -> None:
    workers = [await make_worker(f"pool{number}") for number in range(5)]
    async with contextlib.AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker.answering(orjson.dumps({"log": worker.user})))
        answers = await asyncio.gather(*(ask(requester, worker) for worker in workers * 20))
    assert answers == [worker.user for worker in workers * 20]


async def test_an_error_of_the_worker_is_raised(requester: Requester, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    error = b'{"error": {"reason": "UnknownAction", "message": "no such action", "field": "action"}}'
    async with worker.answering(error):
        with pytest.raises(RemoteError, match="no such action") as caught:
            await ask(requester, worker)
    assert (caught.value.error.reason, caught.value.error.field) == (ErrorReason.UNKNOWN_ACTION, "action")


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (b"no JSON", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"log": ' + b"[" * 300 + b"]" * 300 + b"}", "deeper than 32"),
        (b'{"log": "' + b"x" * MAX_REPLY_BYTES + b'"}', "at most"),
    ],
    ids=["text", "array", "deep", "long"],
)
async def test_a_reply_that_cannot_be_read_is_refused(
    reply: bytes, problem: str, requester: Requester, make_worker: MakeWorker
) -> None:
    worker = await make_worker("pool")
    async with worker.answering(reply):
        with pytest.raises(InvalidReplyError, match=problem):
            await ask(requester, worker)


async def test_without_a_queue_there_is_no_consumer_at_once(requester: Requester, make_worker: MakeWorker) -> None:
    worker = replace(await make_worker("pool"), queue="simyard.worker.absent")
    with pytest.raises(NoConsumerError):
        await ask(requester, worker, seconds=3600)
    with pytest.raises(NoConsumerError):
        await requester.publish_persistent(worker.queue, Request.ACTION, {}, "id")


async def test_no_reply_is_a_timeout_and_the_request_expires(requester: Requester, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    with pytest.raises(ReplyTimeoutError):
        await ask(requester, worker, seconds=0.05)
    async with worker.answering(b'{"log": "second"}') as requests:
        assert await ask(requester, worker) == "second"
        assert requests.qsize() == 1


async def test_the_reply_of_another_user_is_ignored(requester: Requester, make_worker: MakeWorker) -> None:
    worker, other = await make_worker("pool"), await make_worker("other")
    async with worker.answering() as requests, worker.connect() as link, other.connect() as other_link:
        asking = asyncio.create_task(ask(requester, worker))
        request = await requests.get()
        await other.reply(other_link, request, b'{"log": "forged"}')
        await worker.reply(link, request, b'{"log": "own"}')
        assert await asking == "own"


async def test_a_full_queue_takes_nothing_more(requester: Requester, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")

    async def publish(number: int) -> None:
        await requester.publish_persistent(worker.queue, Request.ACTION, {}, f"id-{number}")

    await asyncio.gather(*(publish(number) for number in range(WORKER_QUEUE_MESSAGES)))
    with pytest.raises(QueueFullError):
        await publish(WORKER_QUEUE_MESSAGES)
    with pytest.raises(QueueFullError):
        await ask(requester, worker)


async def test_a_durable_request_reaches_the_pools_queue_with_its_id(
    requester: Requester, make_worker: MakeWorker
) -> None:
    worker = await make_worker("pool")
    worker = replace(worker, queue=name_pool_queue(worker.user))
    await requester.publish_persistent(worker.queue, Request.ACTION, {"action": "solve"}, "invocation-1")
    async with worker.answering() as requests:
        request = await requests.get()
    properties = request.header.properties
    assert (properties.message_id, properties.delivery_mode, properties.reply_to) == ("invocation-1", 2, None)
    assert properties.expiration is None


async def test_cancelling_a_request_cancels_it(requester: Requester, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    async with worker.answering() as requests:
        asking = asyncio.create_task(ask(requester, worker))
        await requests.get()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_a_requester_that_does_not_run_refuses_at_once(access: BrokerAccess, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    requester = Requester(access, "test")
    async with running(requester), worker.answering() as requests:
        await requester.wait_until_connected()
        asking = asyncio.create_task(ask(requester, worker))
        await requests.get()
    with pytest.raises(BrokerUnavailableError):
        await asking
    assert not requester.connected
    for attempt in (ask(requester, worker), requester.publish_persistent(worker.queue, Request.LOG, {}, "id")):
        with pytest.raises(MessagingError, match="no connection"):
            await attempt


@contextlib.asynccontextmanager
async def returning(worker: Worker, *, begun: bool, returns: int) -> AsyncIterator[list[str]]:
    """Run a worker that returns the first ``returns`` requests, before or after it begins; yield the received ids."""
    seen: list[str] = []
    async with worker.connect() as link:

        async def answer(request: DeliveredMessage) -> None:
            seen.append(request.header.properties.message_id or "")
            if begun:
                await worker.reply(link, request, b"{}", BEGUN)
            given_back = len(seen) <= returns
            await worker.reply(link, request, GIVEN_BACK if given_back else b'{"result": {"x": 1}}')

        await link.channel.basic_consume(worker.queue, answer, no_ack=True)
        yield seen


GIVEN_BACK = b'{"error": {"reason": "Interrupted", "message": "it may have been begun before"}, "again": true}'


async def act(requester: Requester, worker: Worker) -> Reply:
    return await requester.request(worker.queue, worker.user, Request.ACTION, {"action": "solve"}, timeout_seconds=60)


async def test_a_request_that_comes_back_before_it_was_begun_is_sent_again(
    requester: Requester, make_worker: MakeWorker
) -> None:
    worker = await make_worker("pool")
    async with returning(worker, begun=False, returns=2) as seen:
        assert (await act(requester, worker)).result == ClaimedResult({"x": 1})
    assert len(seen) == 3
    assert len(set(seen)) == 1, "all attempts are the same invocation"


async def test_a_request_that_may_have_been_begun_is_not_sent_again(
    requester: Requester, make_worker: MakeWorker
) -> None:
    worker = await make_worker("pool")
    async with returning(worker, begun=True, returns=1) as seen:
        with pytest.raises(RemoteError) as refused:
            await act(requester, worker)
    assert (refused.value.error.reason, len(seen)) == (ErrorReason.INTERRUPTED, 1)


async def test_a_request_that_always_comes_back_is_given_up(requester: Requester, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    async with returning(worker, begun=False, returns=1000) as seen:
        with pytest.raises(RemoteError):
            await act(requester, worker)
    assert len(seen) == MAX_ATTEMPTS
