"""OCCI over AMQP: the queue that all frontends of an endpoint share (Cloud4E's binding).

A request is acknowledged when its response is with the broker. So a request that a frontend could not finish comes to
another one; what changes something carries a key (:attr:`~simyard.frontend.exchange.OcciRequest.key`), under which the
backend does it once. A message that nobody can understand or answer goes to the dead letters.
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

from simyard.frontend.amqp_messages import Call, Envelope, message, read
from simyard.frontend.budget import SendingBudget
from simyard.frontend.exchange import Identity, OcciRequest, OcciResponse
from simyard.frontend.handlers import refusal
from simyard.frontend.metrics import IN_FLIGHT, Transport, answered
from simyard.frontend.repetitions import Repetitions
from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import Link, stay_connected, translated
from simyard.messaging.errors import BrokerRefusedError, BrokerUnavailableError, MessagingError
from simyard.messaging.metrics import CONNECTED
from simyard.messaging.occi_topology import request_queue
from simyard.occi.errors import OcciError

log = logging.getLogger(__name__)

PREFETCH = 100
"""Most of these wait: for the results of actions, or for one of the ``PLACES``."""
PLACES = 10
"""So many requests at a time are answered beside the actions."""
MOST_ACTIONS_OF_ONE = 40
"""So many actions of one user are under way here: their results may take long, and whoever waits for many must leave
room to the others.
"""
HANDLE_SECONDS = 120.0
PUBLISH_SECONDS = 10.0
CANCEL_SECONDS = 5.0

UNANSWERABLE = prometheus_client.Counter(
    "simyard_occi_amqp_unanswerable_total", "Messages that went to the dead letters: malformed, and without reply_to."
)
REPLIES_LOST = prometheus_client.Counter(
    "simyard_occi_amqp_replies_lost_total", "Responses whose queue was gone or full.", ["reason"]
)
_IN_FLIGHT = IN_FLIGHT.labels(Transport.AMQP.value)

Handle = Callable[[OcciRequest], Awaitable[OcciResponse]]
Identify = Callable[[str], Awaitable[Identity]]
"""The user whose token it is; raises OcciError 401 or 503."""


class AmqpServer:
    """Answers the requests of a queue; ``run`` must run meanwhile."""

    def __init__(self, endpoint: str, handle: Handle, identify: Identify) -> None:
        """``endpoint``: the URL after which the queue is named, and with which absolute URIs begin."""
        self.queue = request_queue(endpoint)
        self._base = endpoint.rstrip("/")
        self._handle = handle
        self._identify = identify
        self._repetitions = Repetitions()
        self._tasks: asyncio.TaskGroup | None = None
        self._publisher: Link | None = None
        self._publishing = asyncio.Event()
        self._consuming: Link | None = None
        self._draining = False
        self._paused = False
        self._wake = asyncio.Event()
        self._places = asyncio.Semaphore(PLACES)
        self._actions: Counter[str] = Counter()
        self._sending = SendingBudget()
        self._in_flight = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def connected(self) -> bool:
        """Whether requests are received, and can be answered."""
        return self._consuming is not None and self._publishing.is_set()

    async def run(self, access: BrokerAccess) -> NoReturn:
        """Serve until cancelled; reconnects by itself. ``access`` is to the clients' virtual host."""
        self._paused = False
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            group.create_task(stay_connected(access, "frontend responses", self._serve_responses, confirms=True))
            group.create_task(stay_connected(access, "frontend requests", self._serve_requests))
        raise AssertionError("the tasks end by cancellation only")

    async def drain(self) -> None:
        """Take no new request from now on, and return when those that were taken are answered."""
        self._draining = True
        await self.pause()

    async def pause(self) -> None:
        """Take no new request until ``run`` is called again, and return when those that were taken are answered.

        What the broker has sent already when it is told belongs to those.
        """
        self._paused = True
        self._wake.set()
        await self._quiet.wait()
        await self._idle.wait()

    async def _serve_responses(self, link: Link) -> None:
        self._publisher = link
        self._publishing.set()
        try:
            CONNECTED.labels("frontend responses").set(1)
            await link.until_lost()
        finally:
            self._publisher = None
            self._publishing.clear()

    async def _serve_requests(self, link: Link) -> None:
        group = self._tasks
        assert group is not None, "run makes it"

        async def receive(delivered: DeliveredMessage) -> None:
            self._begin()
            group.create_task(self._serve(link, delivered)).add_done_callback(lambda _: self._end())

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
        await link.until_lost()

    def _begin(self) -> None:
        self._in_flight += 1
        self._idle.clear()
        _IN_FLIGHT.inc()

    def _end(self) -> None:
        self._in_flight -= 1
        _IN_FLIGHT.dec()
        if not self._in_flight:
            self._idle.set()

    async def _serve(self, link: Link, delivered: DeliveredMessage) -> None:
        """Answer a message and settle it; what cannot be answered now is given back."""
        tag = delivered.delivery_tag
        assert tag is not None, "a delivery has a tag"
        envelope = Envelope.of(delivered.header.properties)
        # When the connection is lost meanwhile, the broker gives the message to another consumer.
        with suppress(MessagingError):
            response = await self._answer(delivered, envelope)
            try:
                if response is not None and envelope.reply_to and not link.lost.done():
                    await self._reply(envelope, response, last=bool(delivered.redelivered))
            except MessagingError as error:
                log.warning("a request is given back: %s", error)
                with translated():
                    await link.channel.basic_nack(tag, requeue=True)
                return
            with translated():
                if response is None:
                    UNANSWERABLE.inc()
                    await link.channel.basic_reject(tag, requeue=False)
                else:
                    await link.channel.basic_ack(tag)

    async def _answer(self, delivered: DeliveredMessage, envelope: Envelope) -> OcciResponse | None:
        """The response; None when the message cannot be understood, and nobody waits for an answer."""
        clock = asyncio.get_running_loop().time
        started, method = clock(), "other"
        try:
            async with asyncio.timeout(HANDLE_SECONDS):
                call = read(delivered.header.properties, delivered.body, self._base)
                method = call.method
                response = await self._carry_out(call, redelivered=bool(delivered.redelivered))
        except OcciError as error:
            if method == "other" and not envelope.reply_to:
                return None
            response = refusal(error, envelope.accept)
        except TimeoutError:
            response = refusal(OcciError(504, f"no answer within {HANDLE_SECONDS:g} s"), envelope.accept)
        except Exception:  # a defect that one request meets must not end the others
            log.exception("a request ended with an error of ours")
            response = refusal(OcciError(500, "the frontend failed; its log says how"), envelope.accept)
        answered(Transport.AMQP, method, response.status, clock() - started)
        return response

    async def _carry_out(self, call: Call, *, redelivered: bool) -> OcciResponse:
        request = call.by(await self._identify(call.token), self._base)
        if redelivered and call.method == "POST" and not request.key:
            raise OcciError(
                504,
                "a frontend ended while it carried out this request, so it may have been carried out: look, and send"
                " it again if not; a request with the property message_id is carried out once",
            )
        if not request.key:
            return await self._admitted(request)
        response = await self._repetitions.once(request.key, lambda: self._admitted(request))
        if redelivered and call.method == "DELETE" and response.status == 404:
            return replace(response, status=200, body=b"OK")  # the frontend that ended has deleted it
        return response

    async def _admitted(self, request: OcciRequest) -> OcciResponse:
        """Handle a request when there is a place for it; actions have their own, since they may wait for long."""
        user = request.identity.user
        if request.method != "POST" or "action" not in request.query:
            async with self._places:
                response = await self._handle(request)
        elif self._actions[user] >= MOST_ACTIONS_OF_ONE:
            raise OcciError(503, f"{MOST_ACTIONS_OF_ONE} of your actions are under way here; send this one again later")
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
        """Give the response to the broker; a queue that is gone or full is the client's affair.

        Raises:
            MessagingError: the broker did not take it, and unless it is the ``last`` attempt, also when it refuses it.
        """
        body, properties = message(envelope, response)
        try:
            with self._sending.sending(body):
                async with asyncio.timeout(PUBLISH_SECONDS):
                    await self._publishing.wait()
                    if self._publisher is None:
                        raise BrokerUnavailableError("there is no connection to the broker")
                    with translated():
                        try:
                            await self._publisher.channel.basic_publish(
                                body, routing_key=envelope.reply_to, properties=properties, mandatory=True
                            )
                        except PublishError:
                            REPLIES_LOST.labels("gone").inc()
                        except DeliveryError:
                            REPLIES_LOST.labels("full").inc()
        except BrokerRefusedError:
            # It closes the channel for all who publish at the moment, so whose response it refused is not known.
            if not last:
                raise
            REPLIES_LOST.labels("refused").inc()
        except TimeoutError:
            raise BrokerUnavailableError(f"the broker did not confirm within {PUBLISH_SECONDS:g} s") from None
