"""Which workers are there: whose queue has a consumer."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from aiormq.abc import DeliveredMessage

from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import Link, stay_connected
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
"""RabbitMQ's default of ``collect_statistics_interval``: a consumer appears so late in the management API."""
RECHECK_SECONDS = 300.0
"""How often all consumers are compared with the management API: a node of the broker that dies tells of none of its."""
CONNECTION_NAME = "simyard liveness"

PresenceListener = Callable[[str | None], None]
"""Called with the queue whose presence changed, or with None when that of any may have; it must not block."""


class Liveness:
    """Keeps for every worker queue whether it has a consumer.

    The broker must have the plugin ``rabbitmq_event_exchange``, its exchange in the virtual host of ``access``.
    ``on_deleted`` is called with a worker's queue that was deleted, by whomever, or lost with its node.
    ``grace_seconds`` is how long adapters have to come back after the broker was unreachable; at least a second more
    than ``statistics_seconds``, because their return may have been before the first event.
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
        self._settled = False
        self._connected = False

    @property
    def connected(self) -> bool:
        """Whether the broker tells who is there."""
        return self._connected

    def recheck_soon(self) -> None:
        """Compare all consumers with the management API: a node of the broker may have gone, and told of none."""
        self._recheck_now.set()

    def present(self, queue: str) -> bool | None:
        """Whether the queue has a consumer.

        None while that is unknown: the broker is unreachable, or was until ``grace_seconds`` ago and no consumer has
        been seen since.
        """
        if not self._connected:
            return None
        return queue in self._consumers or (False if self._settled else None)

    async def run(self) -> NoReturn:
        """Watch until cancelled; reconnects by itself."""
        await stay_connected(self._access, CONNECTION_NAME, self._serve)

    async def _serve(self, link: Link) -> None:
        self._recent = []
        try:
            await self._follow(link)
            await self._take_snapshot()
            self._connected = True
            CONNECTED.labels(CONNECTION_NAME).set(1)
            self._on_change(None)
            await self._settle(link)
            self._settled, self._recent, self._missed = True, None, frozenset()
            self._on_change(None)
            while True:
                await self._recheck(link)
        finally:
            self._settled = False
            self._consumers = Consumers()
            CONSUMERS.set(math.nan)
            if self._connected:
                self._connected = False
                self._on_change(None)

    async def _follow(self, link: Link) -> None:
        declared = await link.channel.queue_declare(exclusive=True)
        queue = declared.queue or ""
        for key in KEYS:
            await link.channel.queue_bind(queue, BROKER_EVENTS_EXCHANGE, key)
        await link.channel.basic_consume(queue, self._on_event, no_ack=True)

    async def _settle(self, link: Link) -> None:
        """Wait until the grace has passed, and see the consumers that no event tells of as they appear."""
        left = max(self._grace_seconds, self._lag_seconds)
        while left > 0:
            pause = min(left, self._lag_seconds)
            await _wait(link, pause)
            left -= pause
            await self._take_snapshot()
            self._on_change(None)

    async def _recheck(self, link: Link) -> None:
        """Find what no event has told.

        What is missing once may be due to a node of the broker that answered too late: it is gone when it is missing
        twice.
        """
        if not self._missed:  # what is missing for the first time is looked for again at once
            await _wait(link, self._recheck_seconds, self._recheck_now)
        self._recheck_now.clear()
        self._recent = []
        await _wait(link, self._lag_seconds)
        try:
            found = await self._snapshot()
        except MessagingError as error:
            log.warning("%s: consumers are not compared: %s", CONNECTION_NAME, error)
            return
        finally:
            self._recent = None
        missed = self._consumers.queues - found.queues
        changed = self._consumers.correct(found, missed & self._missed)
        self._missed = missed - self._missed
        self._tell(changed)

    async def _take_snapshot(self) -> None:
        """Learn the consumers that were there before their events could be seen."""
        self._consumers = await self._snapshot()
        CONSUMERS.set(len(self._consumers))

    async def _snapshot(self) -> Consumers:
        """All consumers as the management API sees them, which may be late, corrected by newer events."""
        found = Consumers(await self._admin.consumers(WORKER_QUEUES_PREFIX))
        for event in self._recent or ():
            found.apply(event)
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
        self._tell(self._consumers.apply(event))

    def _is_ours(self, headers: Mapping[str, object]) -> bool:
        return headers.get("vhost") == self._access.vhost

    def _tell(self, changed: Iterable[str]) -> None:
        CONSUMERS.set(len(self._consumers))
        if self._connected:
            for queue in changed:
                self._on_change(queue)


async def _wait(link: Link, seconds: float, enough: asyncio.Event | None = None) -> None:
    """Wait for that time or until it is ``enough``, and raise what ends the link if that comes first."""
    ending = asyncio.ensure_future(link.until_lost())
    waiting = asyncio.ensure_future((enough or asyncio.Event()).wait())
    try:
        await asyncio.wait({ending, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            ending.result()
    finally:
        ending.cancel()
        waiting.cancel()
