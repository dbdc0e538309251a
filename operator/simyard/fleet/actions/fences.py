# SPDX-License-Identifier: Apache-2.0
"""Proves that a dead worker has not begun an action, and never will.

The problem: another worker may run an action again only if the first worker never began it. A worker that was only
suspended could still begin the action.

The approach: before an action that must not run twice, a worker announces the begin. The broker confirms the
announcement, and the worker checks that its own queue still exists (:attr:`simyard_adapter.wire.Event.BEGUN`). The
operator deletes the queue of the dead worker. From then on the worker cannot begin an action, and the begin of each
earlier action was confirmed before. The operator then reads events for a while without falling behind, and so receives
all these announcements.
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
    """The broker user of a dead worker, and the time since which the worker cannot begin an action."""

    user: str
    since: float


class Fences:
    """The fences of actions whose workers are dead, by the uid of the action."""

    def __init__(
        self,
        registry: Registry,
        broker: Broker,
        heard_seconds: Callable[[str], float],
        unsettled_seconds: Callable[[], float],
        timing: Timing = PRODUCTION,
    ) -> None:
        """Create an empty collection of fences.

        ``heard_seconds`` returns the time for which all events of a broker user have been received without a gap.
        ``unsettled_seconds`` returns the age of the oldest event that was received and is not written yet.
        """
        self._registry = registry
        self._broker = broker
        self._heard_seconds = heard_seconds
        self._unsettled_seconds = unsettled_seconds
        self._timing = timing
        self._time = asyncio.get_running_loop().time
        self._raised: dict[str, _Fence] = {}

    async def raise_for(self, action_uid: str, worker_uid: str) -> None:
        """Delete the queue of a dead worker, so that the worker cannot begin an action any more.

        Raises:
            MessagingError: the broker did not delete the queue.
        """
        if action_uid in self._raised:
            return
        user = self._registry.find_sender(worker_uid)
        if await self._broker.close_queue(user, worker_uid):
            self._raised[action_uid] = _Fence(user, self._time())

    def is_closed(self, action_uid: str) -> bool:
        """Return whether the worker cannot begin an action any more, and all its announcements were received."""
        fence = self._raised.get(action_uid)
        if fence is None or self._unsettled_seconds() >= (passed := self._time() - fence.since):
            return False
        return min(passed, self._heard_seconds(fence.user)) >= self._timing.read_on_seconds

    def forget(self, action_uid: str) -> None:
        """Forget the fence of an action."""
        self._raised.pop(action_uid, None)
