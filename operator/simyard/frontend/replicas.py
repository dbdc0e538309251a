"""Replicas of a frontend: one client sees its own writes on every one of them.

Every replica answers from its own copies, which the watch of the Kubernetes API keeps true some milliseconds later, and
under load some hundred. A client whose requests go to different replicas would read what was before its own write. So
the replica that has written tells the others what (resource, uid, resourceVersion), and answers its client when all of
them have it in their copies: they wait for their watch, and ask the API server if it is late. Reads cost nothing more,
and clients need to know of no token.

The broker carries the messages, on an exchange of the frontends alone. Each replica has an exclusive queue, so that the
end of a replica is known at once: a message to it comes back as unroutable. A replica that hangs delays writes once by
``CONFIRM_SECONDS``; then nobody waits for it until it is heard again. Replicas find each other by a greeting to all,
when they connect and every ``GREETING_SECONDS``. A replica without a connection to the broker waits for nobody, and
nobody for it: then replicas lag behind each other by their watch. Objects never come from a message, only from the API
server.
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

from simyard.frontend.written import Record, Told, Written
from simyard.messaging.access import AccessSource
from simyard.messaging.connection import Link, stay_connected, translated
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
Apply = Callable[[Iterable[Written], Iterable[Told]], Awaitable[None]]
"""Returns when the copies of this replica have what was written."""

CONFIRMED = Histogram(
    "simyard_occi_replicas_seconds", "How long answers waited until the other replicas had what was written."
)
UNCONFIRMED = Counter("simyard_occi_replicas_late_total", "Replicas that did not confirm a write in time.")


@dataclass(slots=True)
class _Replica:
    """Another replica; ``late``: it has not confirmed in time, and was not heard of since."""

    queue: str
    late: bool = False
    waiting: dict[int, asyncio.Future[None]] = field(default_factory=dict)


class Replicas:
    """The other replicas of this frontend; ``run`` must run meanwhile."""

    def __init__(self, group: str, apply: Apply, *, confirm_seconds: float = CONFIRM_SECONDS) -> None:
        """``group``: the same for all frontends of the same entities, and for no other."""
        self._group = group
        self._apply = apply
        self._confirm_seconds = confirm_seconds
        self._link: Link | None = None
        self._queue = ""
        self._others: dict[str, _Replica] = {}
        self._number = 0
        self._places = asyncio.Semaphore(MAX_APPLIED_AT_ONCE)

    @property
    def known(self) -> int:
        """The number of other replicas that are awaited."""
        return sum(not other.late for other in self._others.values())

    async def run(self, access: AccessSource) -> NoReturn:
        """Stay connected until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(stay_connected(access, _NAME, self._serve, confirms=True))
            group.create_task(self._greet())
        raise AssertionError("the tasks end by cancellation only")

    async def confirmed(self, record: Record) -> None:
        """Return when every other replica shows what was written, or did not say so in time."""
        others = list(self._others.values())
        if not record or not others:
            return
        with CONFIRMED.time():
            objects = [asdict(item) for item in record.objects.values()]
            told = [asdict(item) for item in record.told]
            for start in range(0, max(1, len(objects)), MAX_OBJECTS_PER_MESSAGE):
                body = {"objects": objects[start : start + MAX_OBJECTS_PER_MESSAGE], "told": told}
                await asyncio.gather(*(self._tell(other, body) for other in others))
                told = []

    async def _tell(self, other: _Replica, body: Mapping[str, object]) -> None:
        self._number += 1
        number = self._number
        confirmed = other.waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._confirm_seconds):
                await self._send("written", other.queue, {**body, "number": number}, mandatory=True)
                if not other.late:
                    await confirmed
        except MessagingError:
            self._others.pop(other.queue, None)  # its queue is gone, and it with that; or we are cut off
        except TimeoutError:
            other.late = True
            UNCONFIRMED.inc()
            log.warning("replica %s did not confirm a write within %.1f s", other.queue, self._confirm_seconds)
        finally:
            other.waiting.pop(number, None)

    async def _serve(self, link: Link) -> None:
        queue = f"{REPLY_QUEUES_PREFIX}frontend-{secrets.token_hex(8)}"
        channel = link.channel
        await channel.queue_declare(queue, exclusive=True, arguments={"x-max-length": 10_000})
        for key in (self._group, queue):
            await channel.queue_bind(queue, FRONTENDS_EXCHANGE, key)

        async def receive(delivered: DeliveredMessage) -> None:  # each message has a task of the channel's
            kind, body = delivered.header.properties.message_type, _read(delivered.body)
            if kind == "written":
                await self._take(body)
            else:
                await self._hear(kind or "", body)

        self._link, self._queue = link, queue
        try:
            await channel.basic_consume(queue, receive, no_ack=True)
            CONNECTED.labels(_NAME).set(1)
            await self._send("greeting", self._group, {})
            await link.until_lost()
        finally:
            self._link = None
            self._others.clear()

    async def _greet(self) -> NoReturn:
        while True:
            await asyncio.sleep(GREETING_SECONDS)
            with suppress(MessagingError):  # the connection that is made anew greets, too
                await self._send("greeting", self._group, {})

    async def _hear(self, kind: str, body: dict[str, object]) -> None:
        sender = body.get("from")
        if not isinstance(sender, str) or sender == self._queue:
            return
        other = self._others.get(sender)
        if other is None:
            other = self._others[sender] = _Replica(sender)
            with suppress(MessagingError):
                await self._send("greeting", sender, {})  # a new one need not wait for our next greeting
        other.late = False
        number = body.get("number")
        waiting = other.waiting.get(number) if isinstance(number, int) else None
        if kind == "confirmed" and waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _take(self, body: dict[str, object]) -> None:
        try:
            objects = [Written(**item) for item in body["objects"]]  # type: ignore[attr-defined]
            told = [Told(**item) for item in body["told"]]  # type: ignore[attr-defined]
            sender = str(body["from"])
        except (KeyError, TypeError) as error:
            log.warning("a message of another replica cannot be read (is it of another version?): %r", error)
            return
        try:
            async with self._places:
                await self._apply(objects, told)
            await self._send("confirmed", sender, {"number": body.get("number")})
        except (MessagingError, OcciError) as error:
            log.warning("replica %s does not hear that its write is here: %s", sender, error)

    async def _send(self, kind: str, key: str, body: Mapping[str, object], *, mandatory: bool = False) -> None:
        if self._link is None:
            return
        with translated():
            await self._link.channel.basic_publish(
                orjson.dumps({"from": self._queue, **body}),
                exchange=FRONTENDS_EXCHANGE,
                routing_key=key,
                properties=Properties(message_type=kind),
                mandatory=mandatory,
            )


def _read(body: bytes) -> dict[str, object]:
    try:
        read = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return read if isinstance(read, dict) else {}
