# SPDX-License-Identifier: Apache-2.0
"""Proves that a lost worker has not begun an action, and never will.

The problem: an action that must not run twice may run on another worker only if the lost worker never began it. But a
lost worker may only be suspended, and could still begin the action.

The approach: before a worker begins such an action, it publishes the event ``begun``, waits until the broker confirms
it, and then checks that its own queue still exists (:attr:`simyard_adapter.wire.Event.BEGUN`). The operator deletes the
queue of the lost worker. After that, the worker cannot begin an action, and the broker has the ``begun`` events of all
actions that the worker began before. The operator then reads events for ``read_on_seconds`` without falling behind, and
so receives all these events. An action without such an event never began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from simyard.fleet.broker.provisioning import Broker
from simyard.fleet.registry import Registry
from simyard.fleet.timing import PRODUCTION, Timing


@dataclass(frozen=True, slots=True)
class _Fence:
    """The fence of one action: the broker user of its lost worker, and the time at which its queue was deleted."""

    user: str
    since: float


class Fences:
    """The fences of all actions whose workers are lost, by the uid of the action."""

    def __init__(
        self,
        registry: Registry,
        broker: Broker,
        heard_seconds: Callable[[str], float],
        unsettled_seconds: Callable[[], float],
        timing: Timing = PRODUCTION,
    ) -> None:
        """Create an empty collection of fences.

        ``heard_seconds`` returns the time for which the operator has received all events of a broker user without a
        gap. ``unsettled_seconds`` returns the age of the oldest received event whose effect is not written yet.
        """
        self._registry = registry
        self._broker = broker
        self._heard_seconds = heard_seconds
        self._unsettled_seconds = unsettled_seconds
        self._timing = timing
        self._time = asyncio.get_running_loop().time
        self._raised: dict[str, _Fence] = {}

    async def raise_for(self, action_uid: str, worker_uid: str) -> None:
        """Raise the fence of an action: delete the queue of its lost worker, so that the worker cannot begin it.

        Raises:
            MessagingError: the broker did not delete the queue.
        """
        if action_uid in self._raised:
            return
        user = self._registry.find_sender(worker_uid)
        if await self._broker.close_queue(user, worker_uid):
            self._raised[action_uid] = _Fence(user, self._time())

    def is_closed(self, action_uid: str) -> bool:
        """Return whether the lost worker cannot begin the action, and the operator has received all its events."""
        fence = self._raised.get(action_uid)
        if fence is None or self._unsettled_seconds() >= (passed := self._time() - fence.since):
            return False
        return min(passed, self._heard_seconds(fence.user)) >= self._timing.read_on_seconds

    def forget(self, action_uid: str) -> None:
        """Forget the fence of an action."""
        self._raised.pop(action_uid, None)
