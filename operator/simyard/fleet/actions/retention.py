# SPDX-License-Identifier: Apache-2.0
"""Limits the ServiceActions of each namespace: refuses unfinished actions above a limit, and deletes finished ones.

Both the number and the bytes of a namespace's actions have limits. One object has up to 1.5 MiB (etcd's limit for a
request). With a limit of the number alone, such as 20,000 objects, one namespace could fill etcd. Each change in the
cache updates the sums, because it would cost too much to add up all actions at each change.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from typing import NoReturn

from simyard.api import names
from simyard.fleet.registry import Registry, get_time
from simyard.fleet.work_queue import KeyQueue
from simyard.plan.actions import is_finished
from simyard.plan.queued_action import QueuedAction
from simyard_adapter import wire
from simyard_adapter.limits import MIB
from simyard_sites.kubernetes.errors import ConflictError, NotFoundError

SPACING_SECONDS = 1.0
"""Minimum time between two passes that delete the finished actions of a namespace."""


@dataclass(frozen=True)
class ActionLimits:
    """The maximum numbers of unfinished and of finished ServiceActions of one namespace.

    Attributes:
        unfinished_mib: Maximum size of all unfinished actions together, as JSON.
        finished_mib: Maximum size of all finished actions together, as JSON.
    """

    unfinished: int = 10_000
    finished: int = 10_000
    unfinished_mib: int = 256
    finished_mib: int = 256


class Retention:
    """Component that checks the limits of all namespaces, and deletes the oldest finished actions above them."""

    def __init__(self, registry: Registry, limits: ActionLimits) -> None:
        self._registry = registry
        self._limits = limits
        self._unfinished_bytes: Counter[str] = Counter()
        self._finished_bytes: Counter[str] = Counter()
        self._queue = KeyQueue("action-retention", self._prune, spacing_seconds=SPACING_SECONDS)

    async def run(self) -> NoReturn:
        """Delete surplus actions until cancelled."""
        await self._queue.run()

    def check_room(self, action: QueuedAction) -> tuple[str, str] | None:
        """Return the reason and the message with which an unfinished action is refused; None if there is room for it.

        An action that was accepted before is not refused any more.
        """
        if action.excess:
            return wire.ErrorReason.INVALID_PARAMETERS.value, f"spec.parameters: {action.excess}"
        if action.status.conditions:
            return None
        namespace, limits = action.metadata.namespace, self._limits
        if self._registry.actions.count("open", namespace) > limits.unfinished:
            excess = f"more than {limits.unfinished} unfinished ServiceActions"
        elif self._unfinished_bytes[namespace] > limits.unfinished_mib * MIB:
            excess = f"unfinished ServiceActions of more than {limits.unfinished_mib} MiB together"
        else:
            return None
        message = f"namespace {namespace} has {excess}: create it again after some have finished or were cancelled"
        return names.Reason.TOO_MANY_ACTIONS, message

    async def delete(self, action: QueuedAction) -> None:
        """Delete a ServiceAction, but not a new object with the same name."""
        metadata = action.metadata
        try:
            left = await self._registry.client.delete(
                names.SERVICE_ACTIONS, metadata.name, metadata.namespace, uid=metadata.uid
            )
        except (NotFoundError, ConflictError):
            left = None
        if left is None:
            self._registry.actions.forget(action)
        else:
            self._registry.actions.learn(left)

    def action_changed(self, old: QueuedAction | None, new: QueuedAction | None) -> None:
        """Update the sums of a namespace, and ask for the deletion of finished actions if they exceed a limit."""
        for action, sign in ((old, -1), (new, 1)):
            if action is not None:
                sums = self._finished_bytes if is_finished(action) else self._unfinished_bytes
                sums[action.metadata.namespace] += sign * action.stored_bytes
                if not sums[action.metadata.namespace]:
                    del sums[action.metadata.namespace]
        if new is not None and is_finished(new) and max(self._count_surplus(new.metadata.namespace)) > 0:
            self._queue.add(new.metadata.namespace)

    def _count_surplus(self, namespace: str) -> tuple[int, int]:
        """Return by how many objects and by how many bytes the finished actions of a namespace exceed the limits."""
        number = self._registry.actions.count("finished", namespace) - self._limits.finished
        return number, self._finished_bytes[namespace] - self._limits.finished_mib * MIB

    async def _prune(self, namespace: str) -> None:
        number, size = self._count_surplus(namespace)
        finished = self._registry.actions.list_by("finished", namespace)
        oldest = [(item.status.finished_time or get_time(), item.metadata.uid, item) for item in finished]
        heapq.heapify(oldest)
        while oldest and (number > 0 or size > 0):
            action = heapq.heappop(oldest)[-1]
            number, size = number - 1, size - action.stored_bytes
            if action.metadata.deletion_timestamp is None:
                await self.delete(action)
