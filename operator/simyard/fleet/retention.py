"""Bounds the ServiceActions of each namespace: unfinished ones are refused above a limit, finished ones deleted."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NoReturn

from simyard.api import names
from simyard.fleet.queue import KeyQueue
from simyard.fleet.registry import Registry, now
from simyard.plan.actions import is_finished
from simyard.plan.queued_action import QueuedAction
from simyard_adapter import wire
from simyard_sites.kubernetes.errors import ConflictError, NotFoundError

SPACING_SECONDS = 1.0
"""Finished actions of a namespace are counted at most so often."""


@dataclass(frozen=True)
class ActionLimits:
    """The most ServiceActions of one namespace."""

    unfinished: int = 10_000
    finished: int = 10_000


class Retention:
    """Decides which actions are not taken, and deletes the oldest finished ones above the limit."""

    def __init__(self, registry: Registry, limits: ActionLimits) -> None:
        self._registry = registry
        self._limits = limits
        self._queue = KeyQueue("action-retention", self._prune, spacing_seconds=SPACING_SECONDS)
        registry.actions.subscribe(self._action_changed)

    async def run(self) -> NoReturn:
        """Prune until cancelled."""
        await self._queue.run()

    def refusal(self, action: QueuedAction) -> tuple[str, str] | None:
        """Return reason and message of an action that is not taken; None when it is, or has been taken before."""
        if action.excess:
            return wire.Reason.INVALID_PARAMETERS.value, f"spec.parameters: {action.excess}"
        namespace, limit = action.metadata.namespace, self._limits.unfinished
        if action.status.conditions or self._registry.actions.count("open", namespace) <= limit:
            return None
        message = f"namespace {namespace} has more than {limit} unfinished ServiceActions: create it again when some"
        return names.Reason.TOO_MANY_ACTIONS, f"{message} have finished or were cancelled"

    async def delete(self, action: QueuedAction) -> None:
        """Delete a ServiceAction, if it is still the same object."""
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

    def _action_changed(self, old: QueuedAction | None, new: QueuedAction | None) -> None:
        if new is not None and is_finished(new) and (old is None or not is_finished(old)):
            namespace = new.metadata.namespace
            if self._registry.actions.count("finished", namespace) > self._limits.finished:
                self._queue.add(namespace)

    async def _prune(self, namespace: str) -> None:
        finished = self._registry.actions.by("finished", namespace)
        surplus = len(finished) - self._limits.finished
        for action in heapq.nsmallest(surplus, finished, key=lambda item: item.status.finished_time or now()):
            if action.metadata.deletion_timestamp is None:
                await self.delete(action)
