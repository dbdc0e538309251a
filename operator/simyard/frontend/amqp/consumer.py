# SPDX-License-Identifier: Apache-2.0
"""Consumer of the queue that all frontends of an endpoint share: OCCI over AMQP (Cloud4E's binding).

The frontend acknowledges a request when the broker has confirmed the response. If a frontend ends before, the broker
delivers the request to another frontend. A request that changes something has an idempotency key
(:attr:`~simyard.frontend.exchange.OcciRequest.key`), so the backend carries it out once. The frontend rejects a message
that it cannot parse and that has no reply queue; the broker moves it to the dead-letter queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

import prometheus_client
from aiormq.abc import DeliveredMessage
from aiormq.exceptions import DeliveryError, PublishError

from simyard.frontend.amqp.messages import Envelope, UnauthenticatedRequest, build_message, read_request
from simyard.frontend.budget import SendingBudget
from simyard.frontend.changes.repetitions import Repetitions
from simyard.frontend.exchange import Identity, OcciRequest, OcciResponse
from simyard.frontend.handlers import make_error_response
from simyard.frontend.metrics import IN_FLIGHT, Transport, count_request
from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import BrokerChannel, stay_connected, translate_errors
from simyard.messaging.errors import BrokerRefusedError, BrokerUnavailableError, MessagingError
from simyard.messaging.metrics import CONNECTED
from simyard.messaging.occi_topology import name_request_queue
from simyard.occi.errors import OcciError

log = logging.getLogger(__name__)

PREFETCH = 100
"""Maximum number of unacknowledged messages of a consumer.

Most of them wait for results of actions, or for their turn.
"""
MAX_REQUESTS_AT_ONCE = 10
"""Maximum number of requests, other than actions, that the frontend handles at a time."""
MAX_ACTIONS_PER_USER = 40
"""Maximum number of actions of one user that are in progress in this process.

Actions may take long, so a user with many actions must leave room for other users.
"""
HANDLE_SECONDS = 120.0
PUBLISH_SECONDS = 10.0
CANCEL_SECONDS = 5.0

UNANSWERABLE = prometheus_client.Counter(
    "simyard_occi_amqp_unanswerable_total",
    "Messages that went to the dead letters, because they are malformed and have no reply_to.",
)
REPLIES_LOST = prometheus_client.Counter(
    "simyard_occi_amqp_replies_lost_total", "Responses whose queue was gone or full.", ["reason"]
)
_IN_FLIGHT = IN_FLIGHT.labels(Transport.AMQP.value)

Handle = Callable[[OcciRequest], Awaitable[OcciResponse]]
Identify = Callable[[str], Awaitable[Identity]]
"""A function that returns the user of a token. It raises OcciError 401 or 503."""


class AmqpServer:
    """A consumer of requests and publisher of responses; it works while ``run`` runs."""

    def __init__(self, endpoint: str, handle: Handle, identify: Identify) -> None:
        """Create the server.

        ``endpoint`` is the URL from which the name of the queue follows. Absolute URIs begin with it.
        """
        self.queue = name_request_queue(endpoint)
        self._base = endpoint.rstrip("/")
        self._handle = handle
        self._identify = identify
        self._repetitions = Repetitions()
        self._tasks: asyncio.TaskGroup | None = None
        self._publisher: BrokerChannel | None = None
        self._publishing = asyncio.Event()
        self._consuming: BrokerChannel | None = None
        self._draining = False
        self._paused = False
        self._wake = asyncio.Event()
        self._places = asyncio.Semaphore(MAX_REQUESTS_AT_ONCE)
        self._actions: Counter[str] = Counter()
        self._sending = SendingBudget()
        self._in_flight = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def connected(self) -> bool:
        """True while the server can receive requests and send responses."""
        return self._consuming is not None and self._publishing.is_set()

    async def run(self, access: BrokerAccess) -> NoReturn:
        """Serve until cancelled; reconnect after failures. ``access`` is the access to the clients' virtual host."""
        self._paused = False
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            group.create_task(stay_connected(access, "frontend responses", self._serve_responses, confirms=True))
            group.create_task(stay_connected(access, "frontend requests", self._serve_requests))
        raise AssertionError("the tasks end by cancellation only")

    async def drain(self) -> None:
        """Stop accepting requests, and return when the accepted requests are answered."""
        self._draining = True
        await self.pause()

    async def pause(self) -> None:
        """Stop accepting requests until ``run`` is called again; return when the accepted requests are answered.

        Messages that the broker has already sent count as accepted.
        """
        self._paused = True
        self._wake.set()
        await self._quiet.wait()
        await self._idle.wait()

    async def _serve_responses(self, link: BrokerChannel) -> None:
        self._publisher = link
        self._publishing.set()
        try:
            CONNECTED.labels("frontend responses").set(1)
            await link.wait_until_lost()
        finally:
            self._publisher = None
            self._publishing.clear()

    async def _serve_requests(self, link: BrokerChannel) -> None:
        group = self._tasks
        assert group is not None, "run makes it"

        async def receive(delivered: DeliveredMessage) -> None:
            self._begin_request()
            group.create_task(self._serve(link, delivered)).add_done_callback(lambda _: self._end_request())

        await self._publishing.wait()
        if not self._draining and not self._paused:
            self._wake.clear()
            self._quiet.clear()
            try:
                await link.channel.basic_qos(prefetch_count=PREFETCH)
                consumer = await link.channel.basic_consume(self.queue, receive)
                self._consuming = link
                CONNECTED.labels("frontend requests").set(1)
                link.lost.add_done_callback(lambda _: self._wake.set())
                await self._wake.wait()
                if not link.lost.done() and consumer.consumer_tag is not None:
                    async with asyncio.timeout(CANCEL_SECONDS):
                        await link.channel.basic_cancel(consumer.consumer_tag)
            except TimeoutError:
                raise BrokerUnavailableError("the broker did not end the consumer in time") from None
            finally:
                self._consuming = None
                self._quiet.set()
        await link.wait_until_lost()

    def _begin_request(self) -> None:
        self._in_flight += 1
        self._idle.clear()
        _IN_FLIGHT.inc()

    def _end_request(self) -> None:
        self._in_flight -= 1
        _IN_FLIGHT.dec()
        if not self._in_flight:
            self._idle.set()

    async def _serve(self, link: BrokerChannel, delivered: DeliveredMessage) -> None:
        """Respond to a message, then acknowledge it; requeue it if the broker does not accept the response now."""
        tag = delivered.delivery_tag
        assert tag is not None, "a delivery has a tag"
        envelope = Envelope.of(delivered.header.properties)
        # If the connection is lost during the request, the broker gives the message to another consumer.
        with suppress(MessagingError):
            response = await self._answer(delivered, envelope)
            try:
                if response is not None and envelope.reply_to and not link.lost.done():
                    await self._reply(envelope, response, last=bool(delivered.redelivered))
            except MessagingError as error:
                log.warning("a request is requeued: %s", error)
                with translate_errors():
                    await link.channel.basic_nack(tag, requeue=True)
                return
            with translate_errors():
                if response is None:
                    UNANSWERABLE.inc()
                    await link.channel.basic_reject(tag, requeue=False)
                else:
                    await link.channel.basic_ack(tag)

    async def _answer(self, delivered: DeliveredMessage, envelope: Envelope) -> OcciResponse | None:
        """Return the response; None if the message cannot be parsed and has no reply queue."""
        clock = asyncio.get_running_loop().time
        started, method = clock(), "other"
        try:
            async with asyncio.timeout(HANDLE_SECONDS):
                unauthenticated = read_request(delivered.header.properties, delivered.body, self._base)
                method = unauthenticated.method
                response = await self._execute(unauthenticated, redelivered=bool(delivered.redelivered))
        except OcciError as error:
            if method == "other" and not envelope.reply_to:
                return None
            response = make_error_response(error, envelope.accept)
        except TimeoutError:
            response = make_error_response(OcciError(504, f"no answer within {HANDLE_SECONDS:g} s"), envelope.accept)
        except Exception:  # a defect in one request must not end the others
            log.exception("a request failed with an unexpected error")
            response = make_error_response(
                OcciError(500, "the frontend failed; its log has the reason"), envelope.accept
            )
        count_request(Transport.AMQP, method, response.status, clock() - started)
        return response

    async def _execute(self, unauthenticated: UnauthenticatedRequest, *, redelivered: bool) -> OcciResponse:
        request = unauthenticated.authenticate(await self._identify(unauthenticated.token), self._base)
        if redelivered and unauthenticated.method == "POST" and not request.key:
            raise OcciError(
                504,
                "a frontend ended during this request, which may have been carried out: check it, and send the request"
                " again if it was not; a request with the property message_id is carried out once",
            )
        if not request.key:
            return await self._handle_in_turn(request)
        response = await self._repetitions.run_once(request.key, lambda: self._handle_in_turn(request))
        if redelivered and unauthenticated.method == "DELETE" and response.status == 404:
            return replace(response, status=200, body=b"OK")  # another frontend, which has ended, deleted the entity
        return response

    async def _handle_in_turn(self, request: OcciRequest) -> OcciResponse:
        """Wait until fewer than the permitted number of requests are in progress, then handle the request.

        Actions are counted separately, because they may take long.
        """
        user = request.identity.user
        if request.method != "POST" or "action" not in request.query:
            async with self._places:
                response = await self._handle(request)
        elif self._actions[user] >= MAX_ACTIONS_PER_USER:
            raise OcciError(
                503,
                f"{MAX_ACTIONS_PER_USER} of your actions are in progress here; send this one again later",
            )
        else:
            self._actions[user] += 1
            try:
                response = await self._handle(request)
            finally:
                self._actions[user] -= 1
                if not self._actions[user]:
                    del self._actions[user]
        self._sending.check(response.body)
        return response

    async def _reply(self, envelope: Envelope, response: OcciResponse, *, last: bool) -> None:
        """Publish the response. If the reply queue is missing or full, count the lost response and raise no error.

        Raises:
            MessagingError: the broker did not accept the response. In the ``last`` attempt, a refusal by the broker
                raises no error.
        """
        body, properties = build_message(envelope, response)
        try:
            with self._sending.sending(body):
                async with asyncio.timeout(PUBLISH_SECONDS):
                    await self._publishing.wait()
                    if self._publisher is None:
                        raise BrokerUnavailableError("there is no connection to the broker")
                    with translate_errors():
                        try:
                            await self._publisher.channel.basic_publish(
                                body, routing_key=envelope.reply_to, properties=properties, mandatory=True
                            )
                        except PublishError:
                            REPLIES_LOST.labels("gone").inc()
                        except DeliveryError:
                            REPLIES_LOST.labels("full").inc()
        except BrokerRefusedError:
            # The broker closes the channel for all its publishers, so the refused response is unknown.
            if not last:
                raise
            REPLIES_LOST.labels("refused").inc()
        except TimeoutError:
            raise BrokerUnavailableError(f"the broker did not confirm within {PUBLISH_SECONDS:g} s") from None
