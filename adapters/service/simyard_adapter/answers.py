# SPDX-License-Identifier: Apache-2.0
"""The messages that an adapter sends to the clients whose requests it received."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Callable

from simyard_adapter.current_session import CurrentSession
from simyard_adapter.deadline import within
from simyard_adapter.invocations import Delivery
from simyard_adapter.logs import WorkerLog
from simyard_adapter.transport import BrokerError, UnroutableError
from simyard_adapter.wire import BEGUN, REPLIES_EXCHANGE, REPLY, make_reply_key

MIN_REPLY_SECONDS = 1.0


class Answers:
    """The sender of replies and of ``begun`` messages.

    ``under_way`` is the number of replies that are being sent or acknowledged.
    """

    def __init__(self, current: CurrentSession, user: str, log: WorkerLog, on_change: Callable[[], None]) -> None:
        """Create the sender; it calls ``on_change`` after each reply."""
        self._current = current
        self._user = user
        self._log = log
        self._on_change = on_change
        self.under_way = 0

    async def answer(self, delivery: Delivery, reply: bytes) -> None:
        """Send the reply until its deadline passes, then acknowledge the request."""
        self.under_way += 1
        try:
            requester = delivery.requester
            if requester is not None:
                left = delivery.reply_deadline - asyncio.get_running_loop().time()
                publishing = self._current.publish(
                    REPLIES_EXCHANGE,
                    make_reply_key(requester, self._user),
                    REPLY,
                    reply,
                    correlation_id=delivery.properties.correlation_id,
                )
                try:
                    await within(max(left, MIN_REPLY_SECONDS), publishing)
                except (UnroutableError, asyncio.TimeoutError) as error:
                    self._log.info("no client received the reply: %r", error, extra={"invocation": delivery.id})
            await self.acknowledge(delivery)
        finally:
            self.under_way -= 1
            self._on_change()

    async def acknowledge(self, delivery: Delivery) -> None:
        """Acknowledge a request.

        A request whose session has closed cannot be acknowledged. The broker delivers it again, and the adapter
        recognises it by its id.
        """
        if not delivery.session.closed.is_set():
            with contextlib.suppress(BrokerError):
                await delivery.session.acknowledge(delivery.message)
        delivery.session.count_acknowledged()

    async def send_begun(self, delivery: Delivery) -> bool:
        """Tell the requester that the action begins; return False if the action must not begin.

        The message uses the channel that holds the request. If that channel had closed before, the broker would not
        confirm the message; so a confirmation proves that no other worker can have received the request.
        """
        try:
            await delivery.session.publish(
                REPLIES_EXCHANGE,
                make_reply_key(delivery.requester or "", self._user),
                BEGUN,
                b"{}",
                correlation_id=delivery.properties.correlation_id,
            )
        except (BrokerError, UnroutableError):
            return False
        return True
