"""Fences: proof that a worker that is gone never began an action, and never will.

A worker says that it begins an action that must not run twice, the broker confirms that, and only then it asks for its
own queue and begins (:attr:`simyard_adapter.wire.Event.BEGUN`). So after the queue is deleted it begins nothing more,
and what it began before was confirmed before. When the operator has read on for a while without falling behind, it has
heard all of that. Without the queue's deletion a worker that was only suspended could still begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from simyard.fleet.broker import Broker
from simyard.fleet.registry import Registry

READ_ON_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Fence:
    """The broker user of a worker that is gone, and since when the worker can begin nothing more."""

    user: str
    since: float


class Fences:
    """The actions, by uid, whose workers are gone, each with the time since when its worker can begin nothing more."""

    def __init__(
        self,
        registry: Registry,
        broker: Broker,
        heard_seconds: Callable[[str], float],
        unsettled_seconds: Callable[[], float],
    ) -> None:
        """``heard_seconds``: for how long all events of a broker user have been heard, without a gap.

        ``unsettled_seconds``: how long the oldest event waits that was heard and is not written yet.
        """
        self._registry = registry
        self._broker = broker
        self._heard_seconds = heard_seconds
        self._unsettled_seconds = unsettled_seconds
        self._time = asyncio.get_running_loop().time
        self._raised: dict[str, _Fence] = {}

    async def raise_for(self, action_uid: str, worker_uid: str) -> None:
        """Make sure that a worker that is gone can begin nothing more.

        Raises:
            MessagingError: the broker did not do its part.
        """
        if action_uid in self._raised:
            return
        user = self._registry.sender(worker_uid)
        if await self._broker.close_queue(user, worker_uid):
            self._raised[action_uid] = _Fence(user, self._time())

    def is_closed(self, action_uid: str) -> bool:
        """Return whether the worker can begin nothing more, and everything was heard that it said before."""
        fence = self._raised.get(action_uid)
        if fence is None or self._unsettled_seconds() >= (passed := self._time() - fence.since):
            return False
        return min(passed, self._heard_seconds(fence.user)) >= READ_ON_SECONDS

    def forget(self, action_uid: str) -> None:
        """Drop what is known of an action."""
        self._raised.pop(action_uid, None)
