"""What an adapter says to those who sent it requests."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Callable

from simyard_adapter.deadline import within
from simyard_adapter.invocations import Delivery
from simyard_adapter.link import Link
from simyard_adapter.logs import WorkerLog
from simyard_adapter.transport import BrokerError, UnroutableError
from simyard_adapter.wire import BEGUN, REPLIES_EXCHANGE, REPLY, reply_key

LAST_REPLY_SECONDS = 1.0


class Answers:
    """Replies, and what is said before them. ``under_way`` counts the replies that are not acknowledged yet."""

    def __init__(self, link: Link, user: str, log: WorkerLog, on_change: Callable[[], None]) -> None:
        """``on_change`` is called when one is done."""
        self._link = link
        self._user = user
        self._log = log
        self._on_change = on_change
        self.under_way = 0

    async def answer(self, delivery: Delivery, reply: bytes) -> None:
        """Reply as long as it is of use, then acknowledge the request."""
        self.under_way += 1
        try:
            requester = delivery.requester
            if requester is not None:
                left = delivery.reply_deadline - asyncio.get_running_loop().time()
                publishing = self._link.publish(
                    REPLIES_EXCHANGE,
                    reply_key(requester, self._user),
                    REPLY,
                    reply,
                    correlation_id=delivery.properties.correlation_id,
                )
                try:
                    await within(max(left, LAST_REPLY_SECONDS), publishing)
                except (UnroutableError, asyncio.TimeoutError) as error:
                    self._log.info("nobody took the reply: %r", error, extra={"invocation": delivery.id})
            await self.acknowledge(delivery)
        finally:
            self.under_way -= 1
            self._on_change()

    async def acknowledge(self, delivery: Delivery) -> None:
        """Acknowledge a request, unless its session is gone: then it comes again, and is known."""
        if not delivery.session.closed.is_set():
            with contextlib.suppress(BrokerError):
                await delivery.session.acknowledge(delivery.message)
        delivery.session.settle()

    async def tell_begun(self, delivery: Delivery) -> bool:
        """Whether it may begin: the broker took this message, while this worker had the request.

        It goes over the channel that holds the request: had that ended before, the message would not be confirmed.
        """
        try:
            await delivery.session.publish(
                REPLIES_EXCHANGE,
                reply_key(delivery.requester or "", self._user),
                BEGUN,
                b"{}",
                correlation_id=delivery.properties.correlation_id,
            )
        except (BrokerError, UnroutableError):
            return False
        return True
