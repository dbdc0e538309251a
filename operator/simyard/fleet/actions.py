"""Dispatches ServiceActions: the objects are the queue, and each step is written before it is done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import NoReturn

from prometheus_client import Counter

from simyard.api import names
from simyard.api.base import Metadata
from simyard.api.service_action import ServiceAction, ServiceActionStatus
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.assignment import Assignment
from simyard.fleet.fences import Fences
from simyard.fleet.queue import KeyQueue
from simyard.fleet.registry import Registry, gone, now, queue_of, target_key
from simyard.fleet.retention import ActionLimits, Retention
from simyard.fleet.statuses import write_status
from simyard.guest.messages import Begun, Progressed, Resulted
from simyard.messaging.errors import NoConsumerError
from simyard.messaging.events import ReceivedEvent
from simyard.messaging.requests import Requester
from simyard.plan.actions import (
    Need,
    Sent,
    Target,
    declared_action,
    failed,
    invocation_id,
    is_finished,
    plan_action,
    progressed,
    resulted,
    timeout_seconds,
    uid_of_invocation,
)
from simyard.plan.queued_action import QueuedAction
from simyard.plan.service import PublishedService
from simyard.plan.times import seconds_until
from simyard_adapter import wire
from simyard_adapter.declarations import ActionMode, Json
from simyard_sites.kubernetes.errors import ApiError, ConflictError, NotFoundError, TooLargeError
from simyard_sites.kubernetes.resource import Resource

FINISHED = Counter("simyard_service_actions_finished_total", "ServiceActions that ended, by how.", ["reason"])
for ending in (
    names.Reason.SUCCEEDED,
    names.Reason.TARGET_NOT_FOUND,
    names.Reason.TOO_MANY_ACTIONS,
    names.Reason.WORKER_LOST,
    wire.Reason.UNKNOWN_ACTION,
    wire.Reason.INVALID_PARAMETERS,
    wire.Reason.ACTION_FAILED,
    wire.Reason.CONNECTOR_CRASHED,
    wire.Reason.TIMED_OUT,
    wire.Reason.CANCELLED,
    wire.Reason.INTERRUPTED,
    wire.Reason.RESULT_TOO_LARGE,
    wire.Reason.INVALID_RESULT,
):
    FINISHED.labels(ending.value)  # a counter that begins at 1 has no rate: its first is lost
PROGRESS_SPACING_SECONDS = 1.0
LARGE_RESULT_REMEDY = "parameters and result share one object: return less, or where the program has stored it"


@dataclass(slots=True)
class _Sending:
    """When an invocation was sent, and known to be begun, by the loop's clock."""

    invocation: str
    first: float
    last: float
    begun: float | None = None


class Actions:
    """Sees each ServiceAction through: assigned, published, its result written, deleted when its time has come."""

    def __init__(self, registry: Registry, requester: Requester, fences: Fences, limits: ActionLimits) -> None:
        self._registry = registry
        self._retention = Retention(registry, limits)
        self._requester = requester
        self._fences = fences
        self._time = asyncio.get_running_loop().time
        self._since = now()
        self._queue = KeyQueue("action", self._reconcile, concurrency=16)
        self._assignment = Assignment(registry, self._queue.add)
        self._sent: dict[str, _Sending] = {}
        self._abandoned: dict[str, ServiceAction] = {}
        self._cancelled: set[str] = set()
        self._progress: dict[str, Begun | Progressed] = {}
        self._results: dict[str, Resulted] = {}
        registry.actions.subscribe(self._action_changed)
        registry.workers.subscribe(self._worker_changed)
        registry.pools.subscribe(self._pool_changed)
        registry.services.subscribe(self._service_changed)

    async def run(self) -> NoReturn:
        """Dispatch until cancelled."""
        self._since = now()
        await self._queue.run()

    async def assign(self) -> NoReturn:
        """Assign until cancelled."""
        await self._assignment.run()

    async def prune(self) -> NoReturn:
        """Delete finished actions above the limit until cancelled."""
        await self._retention.run()

    def reconnected(self) -> None:
        """The broker is back: what was published may be lost, and publishing it again does no harm."""
        self._sent.clear()
        self._cancelled.clear()
        for action in self._registry.actions:
            if not is_finished(action):
                self._queue.add(action.metadata.uid)

    def take(self, event: ReceivedEvent) -> Awaitable[object] | None:
        """Apply what a worker says of an action; return the write of what must not be forgotten, to await.

        Each action is written by itself: one that the API server keeps refusing holds up no other.
        """
        message = event.message
        if not isinstance(message, Begun | Progressed | Resulted):
            return None
        uid = uid_of_invocation(message.invocation)
        action = self._registry.action(uid)
        if action is None or is_finished(action) or action.status.worker_uid != event.worker_uid:
            return None
        if message.invocation != invocation_id(action):
            return None
        if isinstance(message, Resulted):
            self._results[uid] = message
            return self._queue.settle([uid])
        first = action.status.started_time is None
        self._progress[uid] = message
        if first and isinstance(message, Begun):
            return self._queue.settle([uid])
        self._queue.add(uid, 0.0 if first else PROGRESS_SPACING_SECONDS)
        return None

    def registered(self, worker_uid: str) -> None:
        """Send again what a worker with a new session is to do: its queue may have been lost with a broker's node."""
        for action in self._registry.actions.by("worker", worker_uid):
            if not is_finished(action):
                self._sent.pop(action.metadata.uid, None)
                self._queue.add(action.metadata.uid)

    def _action_changed(self, old: ServiceAction | None, new: ServiceAction | None) -> None:
        """Who wrote the change does not matter: it may have been another operator, or our own lost answer."""
        left = gone(old, new)
        if left is not None:
            self._forget(left.metadata.uid)
            if _is_running(left):
                self._abandoned[left.metadata.uid] = left
                self._queue.add(left.metadata.uid)
        if old is not None and _is_running(old) and (left is not None or new is None or not _is_running(new)):
            self._assignment.finished(old)
        before = old if left is None else None
        if new is not None and (before is None or _step(before) != _step(new)):
            self._queue.add(new.metadata.uid)
            if before is not None and is_finished(new) and not is_finished(before):
                FINISHED.labels(new.status.failure.reason if new.status.failure else names.Reason.SUCCEEDED.value).inc()

    def _worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        if (left := gone(old, new)) is not None:
            for action in self._registry.actions.by("worker", left.metadata.uid):
                self._queue.add(action.metadata.uid)
            self._target_gone(names.WORKERS, left.metadata)
        if new is not None:
            self._assignment.worker_changed(old, new)

    def _pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        if (left := gone(old, new)) is not None:
            self._target_gone(names.WORKER_POOLS, left.metadata)

    def _service_changed(self, old: PublishedService | None, new: PublishedService | None) -> None:
        if (left := gone(old, new)) is not None:
            self._target_gone(names.SIMULATION_SERVICES, left.metadata)

    def _target_gone(self, resource: Resource, metadata: Metadata) -> None:
        for action in self._registry.actions.by("target", target_key(resource.kind, metadata.namespace, metadata.name)):
            self._queue.add(action.metadata.uid)

    def _forget(self, uid: str) -> None:
        self._assignment.forget(uid)
        self._fences.forget(uid)
        self._sent.pop(uid, None)
        self._cancelled.discard(uid)
        self._progress.pop(uid, None)
        self._results.pop(uid, None)
        self._queue.forget(uid)

    async def _reconcile(self, uid: str) -> float | None:
        action = self._registry.action(uid)
        if action is None:
            if (abandoned := self._abandoned.get(uid)) is not None:
                await self._cancel(abandoned)
                del self._abandoned[uid]
            self._forget(uid)
            return None
        if (result := self._results.get(uid)) is not None and not is_finished(action):
            await self._finish(action, result)
            return 0.0
        if (progress := self._progress.get(uid)) is not None and not is_finished(action):
            await self._write(action, progressed(action, progress, now()))
            if self._progress.get(uid) is progress:
                del self._progress[uid]
            return 0.0
        if not action.status.worker_uid and not is_finished(action):
            try:
                action = await self._registry.whole_action(action)
            except NotFoundError:
                await self._registry.look_for_action(action)
                return 0.0
        sent = self._sent_for(action)
        plan = plan_action(action, self._target(action), sent=sent, now=now())
        if plan.need is Need.WRITE and not is_finished(action):
            # The last word is not spoken from a cache that may lag behind.
            await self._look_again(action)
            plan = plan_action(action, self._target(action), sent=sent, now=now())
        if plan.need is Need.ASSIGN:
            self._assignment.wanted(action)
        elif plan.need is Need.FENCE:
            await self._fences.raise_for(uid, action.status.worker_uid)
        elif plan.need is Need.WRITE and plan.status is not None:
            if plan.revokes:
                await self._cancel(action)
            await self._write(action, plan.status)
            return 0.0
        elif plan.need is Need.PUBLISH:
            await self._publish(action)
            return 0.0
        elif plan.need is Need.CANCEL:
            await self._cancel(action)
        elif plan.need is Need.DELETE:
            await self._retention.delete(action)
        return seconds_until(now(), [plan.look_again])

    def _target(self, action: QueuedAction) -> Target:
        uid = action.status.worker_uid
        there = bool(uid) and self._registry.worker(uid) is not None
        since = self._registry.worker_gone(uid) or self._since if self._requester.connected else now()
        fenced = not there and self._fences.is_closed(action.metadata.uid)
        service, refusal = self._registry.service_of_target(action), self._retention.refusal(action)
        return Target(service, there, None if there else since, fenced, refusal)

    def _sent_for(self, action: ServiceAction) -> Sent | None:
        """Return since when the action has been sent to the worker that it is given to; None if it has not been."""
        sending, now = self._sent.get(action.metadata.uid), self._time()
        if sending is None or sending.invocation != invocation_id(action):
            return None
        if action.status.started_time is not None and sending.begun is None:
            sending.begun = now
        begun = None if sending.begun is None else now - sending.begun
        return Sent(now - sending.first, now - sending.last, begun)

    async def _look_again(self, action: ServiceAction) -> None:
        """Have the API server say what exists: the target and its service, or the worker that it was given to."""
        status = action.status
        if not status.worker_uid:
            await self._registry.look_for_target(action)
        elif self._registry.worker(status.worker_uid) is None:
            await self._registry.look_for_worker(action.metadata.namespace, status.worker, status.worker_uid)

    async def _publish(self, action: QueuedAction) -> None:
        worker = self._registry.worker(action.status.worker_uid)
        if worker is None:
            return
        if (refusal := self._retention.refusal(action)) is not None:  # an earlier version has taken it
            return await self._write(action, failed(action, *refusal, now()))
        try:
            whole = await self._registry.whole_action(action)
        except NotFoundError:
            return await self._registry.look_for_action(action)
        if whole.left_out or invocation_id(whole) != invocation_id(
            action
        ):  # it is over, or was given to another worker
            return await self._registry.look_for_action(action)
        body: dict[str, Json] = {
            "action": action.spec.action,
            "parameters": whole.spec.parameters,
            "mode": ActionMode.ASYNC.value,
        }
        if (declared := declared_action(action, self._registry.service_of_target(action))) is not None:
            body["timeoutSeconds"] = timeout_seconds(action, declared)
        await self._requester.publish_durable(queue_of(worker), wire.Request.ACTION, body, invocation_id(action))
        uid, invocation, time = action.metadata.uid, invocation_id(action), self._time()
        if (sending := self._sent.get(uid)) is None or sending.invocation != invocation:
            self._sent[uid] = _Sending(invocation, time, time)
        else:
            sending.last = time
        self._cancelled.discard(uid)  # a cancel that came before has found nothing

    async def _cancel(self, action: ServiceAction) -> None:
        uid, worker = action.metadata.uid, self._registry.worker(action.status.worker_uid)
        if worker is None or uid in self._cancelled:
            return
        invocation = invocation_id(action)
        body = {"invocation": invocation}
        with contextlib.suppress(NoConsumerError):  # nothing can begin there
            await self._requester.publish_durable(queue_of(worker), wire.Request.CANCEL, body, f"{invocation}-cancel")
        self._cancelled.add(uid)

    async def _finish(self, action: QueuedAction, result: Resulted) -> None:
        try:
            service = self._registry.service_of_target(action)
            await self._write(action, resulted(action, service, result, now()))
        except ApiError as error:
            if error.retryable or error.status in (401, 403):
                raise
            reason, message = wire.Reason.INVALID_RESULT, f"the API server refuses the result: {error}"
            if isinstance(error, TooLargeError):
                reason, message = wire.Reason.RESULT_TOO_LARGE, f"{message}; {LARGE_RESULT_REMEDY}"
            await self._write(action, failed(action, reason.value, message, now()))
        self._results.pop(action.metadata.uid, None)

    async def _write(self, action: QueuedAction, status: ServiceActionStatus) -> None:
        """Guarded: what another operator has written meanwhile is read first.

        Raises:
            ConflictError: it was changed by somebody else; the pass is made again.
        """
        registry = self._registry
        if not await write_status(
            registry.client, registry.actions, action.metadata, action.status, status, guarded=True
        ):
            await registry.look_for_action(action)
            raise ConflictError(409, "Conflict", "it was changed meanwhile")


def _is_running(action: ServiceAction) -> bool:
    """Whether it occupies a worker."""
    return bool(action.status.worker_uid) and not is_finished(action)


def _step(action: ServiceAction) -> tuple[int, str, int, bool, bool]:
    """What of an action decides what to do next."""
    deleted = action.metadata.deletion_timestamp is not None
    return action.metadata.generation, action.status.worker_uid, action.status.attempts, is_finished(action), deleted
