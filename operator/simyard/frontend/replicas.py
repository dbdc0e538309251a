# SPDX-License-Identifier: Apache-2.0
"""Makes sure that after a write, every replica of a frontend shows the write to the client.

Problem: every replica answers from its own copies. The watch of the Kubernetes API updates them some milliseconds after
a write, and some hundred milliseconds under load. A client whose requests reach different replicas could read the state
before its own write.

Approach: the replica that has written sends the other replicas the resource, uid and resourceVersion of the object.
Each of them waits until its watch has received this version, asks the API server if the watch is late, and confirms.
The first replica answers its client when all others have confirmed. The alternative is a token that the client sends
with each read. Every read would then have to wait for the watch, and clients would have to support the token.

The broker carries the messages, on an exchange that only frontends use. Each replica has an exclusive queue, so the
others notice its end at once: the broker returns a message to it as unroutable. A replica that hangs delays one write,
by ``CONFIRM_SECONDS``; then no replica waits for it until it sends a message again. Replicas find each other by a
greeting to all, which they send when they connect and every ``GREETING_SECONDS``. If a replica has no connection to the
broker, the replicas do not wait for each other; a client may then read a state that is as old as the delay of the
watch. A message contains no object: replicas get objects only from the API server.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import NoReturn

import orjson
from aiormq import spec
from aiormq.abc import DeliveredMessage
from prometheus_client import Counter, Histogram

from simyard.frontend.changes.written import Record, ReportedValues, Written
from simyard.messaging.access import AccessSource
from simyard.messaging.connection import BrokerChannel, stay_connected, translate_errors
from simyard.messaging.errors import MessagingError
from simyard.messaging.metrics import CONNECTED
from simyard.messaging.topology import FRONTENDS_EXCHANGE, REPLY_QUEUES_PREFIX
from simyard.occi.errors import OcciError

log = logging.getLogger(__name__)

CONFIRM_SECONDS = 1.0
GREETING_SECONDS = 5.0
MAX_OBJECTS_PER_MESSAGE = 1_000
MAX_APPLIED_AT_ONCE = 100
_NAME = "frontend replicas"
Properties = spec.Basic.Properties
Apply = Callable[[Iterable[Written], Iterable[ReportedValues]], Awaitable[None]]
"""A function that waits until the copies of this replica have the writes."""

CONFIRMED = Histogram(
    "simyard_occi_replicas_seconds", "Time for which answers waited until the other replicas had the writes."
)
UNCONFIRMED = Counter("simyard_occi_replicas_late_total", "Replicas that did not confirm a write in time.")


@dataclass(slots=True)
class _Replica:
    """A replica of this frontend that is ``late`` if it did not confirm a write in time and has sent nothing since."""

    queue: str
    late: bool = False
    waiting: dict[int, asyncio.Future[None]] = field(default_factory=dict)


class Replicas:
    """The other replicas of this frontend. The object finds them while ``run`` runs."""

    def __init__(self, group: str, apply: Apply, *, confirm_seconds: float = CONFIRM_SECONDS) -> None:
        """Create the link to the other replicas.

        ``group`` is the same for all frontends of the same entities, and differs for all other frontends.
        """
        self._group = group
        self._apply = apply
        self._confirm_seconds = confirm_seconds
        self._link: BrokerChannel | None = None
        self._queue = ""
        self._others: dict[str, _Replica] = {}
        self._number = 0
        self._places = asyncio.Semaphore(MAX_APPLIED_AT_ONCE)

    @property
    def known(self) -> int:
        """The number of other replicas whose confirmation a write waits for."""
        return sum(not other.late for other in self._others.values())

    async def run(self, access: AccessSource) -> NoReturn:
        """Stay connected until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(stay_connected(access, _NAME, self._serve, confirms=True))
            group.create_task(self._greet())
        raise AssertionError("the tasks end by cancellation only")

    async def wait_confirmed(self, record: Record) -> None:
        """Wait until every other replica has confirmed the writes, at most for ``confirm_seconds``."""
        others = list(self._others.values())
        if not record or not others:
            return
        with CONFIRMED.time():
            objects = [asdict(item) for item in record.objects.values()]
            reports = [asdict(item) for item in record.reports]
            for start in range(0, max(1, len(objects)), MAX_OBJECTS_PER_MESSAGE):
                body = {"objects": objects[start : start + MAX_OBJECTS_PER_MESSAGE], "told": reports}
                await asyncio.gather(*(self._send_written(other, body) for other in others))
                reports = []

    async def _send_written(self, other: _Replica, body: Mapping[str, object]) -> None:
        self._number += 1
        number = self._number
        confirmed = other.waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._confirm_seconds):
                await self._send("written", other.queue, {**body, "number": number}, mandatory=True)
                if not other.late:
                    await confirmed
        except MessagingError:
            self._others.pop(other.queue, None)  # the replica has ended, or the connection is lost
        except TimeoutError:
            other.late = True
            UNCONFIRMED.inc()
            log.warning("replica %s did not confirm a write within %.1f s", other.queue, self._confirm_seconds)
        finally:
            other.waiting.pop(number, None)

    async def _serve(self, link: BrokerChannel) -> None:
        queue = f"{REPLY_QUEUES_PREFIX}frontend-{secrets.token_hex(8)}"
        channel = link.channel
        await channel.queue_declare(queue, exclusive=True, arguments={"x-max-length": 10_000})
        for key in (self._group, queue):
            await channel.queue_bind(queue, FRONTENDS_EXCHANGE, key)

        async def receive(delivered: DeliveredMessage) -> None:  # the channel runs a task for each message
            kind, body = delivered.header.properties.message_type, _parse(delivered.body)
            if kind == "written":
                await self._apply_written(body)
            else:
                await self._apply_signal(kind or "", body)

        self._link, self._queue = link, queue
        try:
            await channel.basic_consume(queue, receive, no_ack=True)
            CONNECTED.labels(_NAME).set(1)
            await self._send("greeting", self._group, {})
            await link.wait_until_lost()
        finally:
            self._link = None
            self._others.clear()

    async def _greet(self) -> NoReturn:
        while True:
            await asyncio.sleep(GREETING_SECONDS)
            with suppress(MessagingError):  # a new connection also begins with a greeting
                await self._send("greeting", self._group, {})

    async def _apply_signal(self, kind: str, body: dict[str, object]) -> None:
        sender = body.get("from")
        if not isinstance(sender, str) or sender == self._queue:
            return
        other = self._others.get(sender)
        if other is None:
            other = self._others[sender] = _Replica(sender)
            with suppress(MessagingError):
                await self._send("greeting", sender, {})  # so a new replica need not wait for the next greeting
        other.late = False
        number = body.get("number")
        waiting = other.waiting.get(number) if isinstance(number, int) else None
        if kind == "confirmed" and waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _apply_written(self, body: dict[str, object]) -> None:
        try:
            objects = [Written(**item) for item in body["objects"]]  # type: ignore[attr-defined]
            reports = [ReportedValues(**item) for item in body["told"]]  # type: ignore[attr-defined]
            sender = str(body["from"])
        except (KeyError, TypeError) as error:
            log.warning(
                "a message of another replica cannot be read, perhaps because it has another version: %r", error
            )
            return
        try:
            async with self._places:
                await self._apply(objects, reports)
            await self._send("confirmed", sender, {"number": body.get("number")})
        except (MessagingError, OcciError) as error:
            log.warning("a write of replica %s could not be confirmed: %s", sender, error)

    async def _send(self, kind: str, key: str, body: Mapping[str, object], *, mandatory: bool = False) -> None:
        if self._link is None:
            return
        with translate_errors():
            await self._link.channel.basic_publish(
                orjson.dumps({"from": self._queue, **body}),
                exchange=FRONTENDS_EXCHANGE,
                routing_key=key,
                properties=Properties(message_type=kind),
                mandatory=mandatory,
            )


def _parse(body: bytes) -> dict[str, object]:
    try:
        read = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return read if isinstance(read, dict) else {}
