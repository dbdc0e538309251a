# SPDX-License-Identifier: Apache-2.0
"""Liveness of workers: the adapter of a worker is present while the worker's own queue has a consumer.

Heartbeats of ten thousand workers would cost the operator and the broker constant work, and a busy operator would take
workers with late heartbeats for lost workers. The broker already knows which queues have consumers, and reports every
change (``rabbitmq_event_exchange``). So the operator reads one snapshot from the management API, and then the changes.

This approach has three gaps. First, the management API is late by the broker's statistics interval. So the operator
applies the events of the last seconds to each snapshot. Second, after an outage of the broker, adapters need time to
reconnect. So for a grace period, it is unknown whether a queue without a known consumer has one. Third, a broker node
that fails does not report the end of its consumers. So the operator compares its record with the management API from
time to time. If two comparisons in a row do not find a queue, the queue counts as a queue without a consumer.
Invariant: while the operator cannot reach the broker, it regards no worker as lost because of its consumer.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from aiormq.abc import DeliveredMessage

from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import BrokerChannel, stay_connected
from simyard.messaging.consumers import (
    CHANNEL_CLOSED,
    CONNECTION_CLOSED,
    CREATED,
    DELETED,
    QUEUE_DELETED,
    ConsumerEvent,
    Consumers,
)
from simyard.messaging.errors import MessagingError
from simyard.messaging.metrics import CONNECTED, CONSUMERS
from simyard.messaging.topology import WORKER_QUEUES_PREFIX

log = logging.getLogger(__name__)

BROKER_EVENTS_EXCHANGE = "amq.rabbitmq.event"
KEYS = (CREATED, DELETED, CHANNEL_CLOSED, CONNECTION_CLOSED, QUEUE_DELETED)
STATISTICS_SECONDS = 5.0
"""Delay until the management API shows a new consumer: RabbitMQ's default for ``collect_statistics_interval``."""
RECHECK_SECONDS = 300.0
"""Interval between two comparisons of all consumers with the management API."""
CONNECTION_NAME = "simyard liveness"

PresenceListener = Callable[[str | None], None]
"""Function that gets the queue whose presence changed, or None if any queue may have changed; it must not block."""


class Liveness:
    """Component that knows, from the consumers of queues, which workers are present.

    The broker must have the plugin ``rabbitmq_event_exchange``, with its exchange in the virtual host of ``access``.
    The component calls ``on_deleted`` with a worker's queue after the queue was deleted or was lost with its node.
    ``grace_seconds`` is the time in which adapters can reconnect after an outage of the broker. It is extended to a
    second more than ``statistics_seconds``, because adapters may reconnect before this process receives events.
    """

    def __init__(
        self,
        access: BrokerAccess,
        admin: BrokerAdmin,
        *,
        on_change: PresenceListener,
        on_deleted: Callable[[str], None] | None = None,
        grace_seconds: float = 30.0,
        statistics_seconds: float = STATISTICS_SECONDS,
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self._access = access
        self._admin = admin
        self._on_change = on_change
        self._on_deleted = on_deleted
        self._recheck_now = asyncio.Event()
        self._grace_seconds = grace_seconds
        self._lag_seconds = statistics_seconds + 1.0
        self._recheck_seconds = recheck_seconds
        self._consumers = Consumers()
        self._recent: list[ConsumerEvent] | None = None
        self._missed: frozenset[str] = frozenset()
        self._grace_passed = False
        self._connected = False

    @property
    def connected(self) -> bool:
        """True while the broker reports changes of consumers to this process."""
        return self._connected

    def recheck_soon(self) -> None:
        """Compare all consumers with the management API soon, because a node of the broker may have failed."""
        self._recheck_now.set()

    def has_consumer(self, queue: str) -> bool | None:
        """Return whether the queue has a consumer; None if this is unknown.

        It is unknown while this process cannot reach the broker. For a queue without a known consumer, it also stays
        unknown for the grace period after that.
        """
        if not self._connected:
            return None
        return queue in self._consumers or (False if self._grace_passed else None)

    async def run(self) -> NoReturn:
        """Follow the broker's events until cancelled; reconnect when the connection is lost."""
        await stay_connected(self._access, CONNECTION_NAME, self._serve)

    async def _serve(self, link: BrokerChannel) -> None:
        self._recent = []
        try:
            await self._follow(link)
            await self._take_snapshot()
            self._connected = True
            CONNECTED.labels(CONNECTION_NAME).set(1)
            self._on_change(None)
            await self._wait_for_grace_period(link)
            self._grace_passed, self._recent, self._missed = True, None, frozenset()
            self._on_change(None)
            while True:
                await self._recheck(link)
        finally:
            self._grace_passed = False
            self._consumers = Consumers()
            CONSUMERS.set(math.nan)
            if self._connected:
                self._connected = False
                self._on_change(None)

    async def _follow(self, link: BrokerChannel) -> None:
        declared = await link.channel.queue_declare(exclusive=True)
        queue = declared.queue or ""
        for key in KEYS:
            await link.channel.queue_bind(queue, BROKER_EVENTS_EXCHANGE, key)
        await link.channel.basic_consume(queue, self._on_event, no_ack=True)

    async def _wait_for_grace_period(self, link: BrokerChannel) -> None:
        """Wait for the grace period. Take snapshots in this time, to find the consumers that no event reported."""
        left = max(self._grace_seconds, self._lag_seconds)
        while left > 0:
            pause = min(left, self._lag_seconds)
            await _wait(link, pause)
            left -= pause
            await self._take_snapshot()
            self._on_change(None)

    async def _recheck(self, link: BrokerChannel) -> None:
        """Compare all consumers with the management API, and apply changes that no event reported.

        The method removes a queue only if two comparisons in a row do not find it, because the answer of a node can be
        late.
        """
        if not self._missed:  # missing queues need a second comparison at once
            await _wait(link, self._recheck_seconds, self._recheck_now)
        self._recheck_now.clear()
        self._recent = []
        await _wait(link, self._lag_seconds)
        try:
            found = await self._snapshot()
        except MessagingError as error:
            log.warning("%s: the comparison of all consumers failed: %s", CONNECTION_NAME, error)
            return
        finally:
            self._recent = None
        missed = self._consumers.queues - found.queues
        changed = self._consumers.correct(found, missed & self._missed)
        self._missed = missed - self._missed
        self._notify(changed)

    async def _take_snapshot(self) -> None:
        """Read the consumers that existed before this process received events."""
        self._consumers = await self._snapshot()
        CONSUMERS.set(len(self._consumers))

    async def _snapshot(self) -> Consumers:
        """Return all consumers of the management API, and apply newer events to them, because the API may be late."""
        found = Consumers(await self._admin.list_consumers(WORKER_QUEUES_PREFIX))
        for event in self._recent or ():
            found.apply_event(event)
        return found

    async def _on_event(self, message: DeliveredMessage) -> None:
        headers = message.header.properties.headers or {}
        if message.routing_key == QUEUE_DELETED:
            queue = str(headers.get("name"))
            if self._on_deleted is not None and queue.startswith(WORKER_QUEUES_PREFIX) and self._is_ours(headers):
                self._on_deleted(queue)
            return
        event = ConsumerEvent.read(message.routing_key or "", headers)
        if event.consumer is not None and (
            not event.consumer.queue.startswith(WORKER_QUEUES_PREFIX) or not self._is_ours(headers)
        ):
            return
        if self._recent is not None:
            self._recent.append(event)
        self._notify(self._consumers.apply_event(event))

    def _is_ours(self, headers: Mapping[str, object]) -> bool:
        return headers.get("vhost") == self._access.vhost

    def _notify(self, changed: Iterable[str]) -> None:
        CONSUMERS.set(len(self._consumers))
        if self._connected:
            for queue in changed:
                self._on_change(queue)


async def _wait(link: BrokerChannel, seconds: float, enough: asyncio.Event | None = None) -> None:
    """Wait for ``seconds`` or until ``enough`` is set; raise BrokerUnavailableError if the channel is lost first."""
    ending = asyncio.ensure_future(link.wait_until_lost())
    waiting = asyncio.ensure_future((enough or asyncio.Event()).wait())
    try:
        await asyncio.wait({ending, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            ending.result()
    finally:
        ending.cancel()
        waiting.cancel()
