"""Which workers are there: whose queue has a consumer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

from aiormq.abc import DeliveredMessage

from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import Link, stay_connected
from simyard.messaging.metrics import CONNECTED, CONSUMERS
from simyard.messaging.topology import WORKER_QUEUES_PREFIX

BROKER_EVENTS_EXCHANGE = "amq.rabbitmq.event"
CREATED = "consumer.created"
DELETED = "consumer.deleted"
STATISTICS_SECONDS = 5.0
"""RabbitMQ's default of ``collect_statistics_interval``: a consumer appears so late in the management API."""
CONNECTION_NAME = "simyard liveness"

PresenceListener = Callable[[str | None], None]
"""Called with the queue whose presence changed, or with None when that of any may have; it must not block."""
Consumer = tuple[str, str]
"""Queue and consumer tag."""


class Liveness:
    """Keeps for every worker queue whether it has a consumer.

    The broker must have the plugin ``rabbitmq_event_exchange``, its exchange in the virtual host of ``access``.
    ``grace_seconds`` is how long adapters have to come back after the broker was unreachable; at least a second more
    than ``statistics_seconds``, because their return may have been before the first event.
    """

    def __init__(
        self,
        access: BrokerAccess,
        admin: BrokerAdmin,
        *,
        on_change: PresenceListener,
        grace_seconds: float = 30.0,
        statistics_seconds: float = STATISTICS_SECONDS,
    ) -> None:
        self._access = access
        self._admin = admin
        self._on_change = on_change
        self._grace_seconds = grace_seconds
        self._lag_seconds = statistics_seconds + 1.0
        self._consumers: dict[str, set[str]] = {}
        self._recent: dict[Consumer, bool] | None = None
        self._connected = False

    @property
    def connected(self) -> bool:
        """Whether the broker tells who is there."""
        return self._connected

    def present(self, queue: str) -> bool | None:
        """Whether the queue has a consumer.

        None while that is unknown: the broker is unreachable, or was until ``grace_seconds`` ago and no consumer has
        been seen since.
        """
        if not self._connected:
            return None
        return queue in self._consumers or (None if self._recent is not None else False)

    async def run(self) -> NoReturn:
        """Watch until cancelled; reconnects by itself."""
        await stay_connected(self._access, CONNECTION_NAME, self._serve)

    async def _serve(self, link: Link) -> None:
        self._recent = {}
        try:
            await self._follow(link)
            await self._take_snapshot()
            self._connected = True
            CONNECTED.labels(CONNECTION_NAME).set(1)
            self._on_change(None)
            await self._settle(link)
            self._recent = None
            self._on_change(None)
            await link.until_lost()
        finally:
            self._consumers = {}
            CONSUMERS.set(math.nan)
            if self._connected:
                self._connected = False
                self._on_change(None)

    async def _follow(self, link: Link) -> None:
        declared = await link.channel.queue_declare(exclusive=True)
        queue = declared.queue or ""
        for key in (CREATED, DELETED):
            await link.channel.queue_bind(queue, BROKER_EVENTS_EXCHANGE, key)
        await link.channel.basic_consume(queue, self._on_event, no_ack=True)

    async def _settle(self, link: Link) -> None:
        """Wait until the grace has passed, and see the consumers that no event tells of as they appear."""
        left = max(self._grace_seconds, self._lag_seconds)
        while left > 0:
            pause = min(left, self._lag_seconds)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await link.until_lost()
            left -= pause
            await self._take_snapshot()
            self._on_change(None)

    async def _take_snapshot(self) -> None:
        """Learn the consumers that were there before their events could be seen."""
        snapshot = await self._admin.consumer_tags(WORKER_QUEUES_PREFIX)
        self._consumers = overlay(snapshot, self._recent or {})
        CONSUMERS.set(len(self._consumers))

    async def _on_event(self, message: DeliveredMessage) -> None:
        headers = message.header.properties.headers or {}
        queue, tag = str(headers.get("queue")), str(headers.get("consumer_tag"))
        if not queue.startswith(WORKER_QUEUES_PREFIX) or headers.get("vhost") != self._access.vhost:
            return
        created = message.routing_key == CREATED
        if self._recent is not None:
            self._recent[queue, tag] = created
        before = queue in self._consumers
        change(self._consumers, queue, tag, created)
        CONSUMERS.set(len(self._consumers))
        if self._connected and before != (queue in self._consumers):
            self._on_change(queue)


def change(consumers: dict[str, set[str]], queue: str, tag: str, created: bool) -> None:
    """Add or remove one consumer; a queue without consumers is not kept."""
    tags = consumers.setdefault(queue, set())
    if created:
        tags.add(tag)
    else:
        tags.discard(tag)
    if not tags:
        del consumers[queue]


def overlay(snapshot: Mapping[str, frozenset[str]], recent: Mapping[Consumer, bool]) -> dict[str, set[str]]:
    """The consumers by queue: those of a snapshot, which may be late, corrected by newer events."""
    consumers = {queue: set(tags) for queue, tags in snapshot.items()}
    for (queue, tag), created in recent.items():
        change(consumers, queue, tag, created)
    return consumers
