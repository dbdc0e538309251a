# SPDX-License-Identifier: Apache-2.0
"""Reconciles ServiceActions. The objects are the queue: the operator writes an assignment before it sends a request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from simyard.api import names
from simyard.api.base import Metadata
from simyard.api.service_action import ServiceAction, ServiceActionStatus
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.actions.assignment import Assignment, Presence
from simyard.fleet.actions.fences import Fences
from simyard.fleet.actions.large_results import LARGE_RESULT_REMEDY, LargeResults
from simyard.fleet.actions.metrics import FINISHED
from simyard.fleet.actions.retention import ActionLimits, Retention
from simyard.fleet.registry import Registry, find_removed, format_target_key, get_queue, get_time
from simyard.fleet.status_writes import write_status
from simyard.fleet.work_queue import KeyQueue
from simyard.guest.messages import ActionMessage, Begun, LogStored, Progressed, Resulted
from simyard.messaging.errors import NoConsumerError
from simyard.messaging.events import ReceivedEvent
from simyard.messaging.requests import Requester
from simyard.plan.action_request import build_action_request
from simyard.plan.actions import (
    ActionPlan,
    ActionTimes,
    Need,
    Sent,
    Target,
    get_invocation_id,
    is_finished,
    parse_invocation_uid,
    plan_action,
    record_failure,
    record_log,
    record_progress,
    record_result,
)
from simyard.plan.queued_action import QueuedAction
from simyard.plan.service import PublishedService
from simyard.plan.times import get_seconds_until
from simyard_adapter import wire
from simyard_adapter.file_urls import AllowedUrls
from simyard_sites.kubernetes.errors import ApiError, ConflictError, NotFoundError, TooLargeError
from simyard_sites.kubernetes.resource import Resource

PROGRESS_SPACING_SECONDS = 1.0


@dataclass(slots=True)
class _Sending:
    """Times of one invocation on the loop's clock: its first and last request, and the arrival of its begin."""

    invocation: str
    first: float
    last: float
    begun: float | None = None


class Actions:
    """The reconciler of all ServiceActions: it assigns, sends, finishes and deletes them."""

    def __init__(
        self,
        registry: Registry,
        requester: Requester,
        presence: Presence,
        fences: Fences,
        limits: ActionLimits,
        times: ActionTimes,
        large_results: LargeResults,
        urls: AllowedUrls,
    ) -> None:
        self._registry = registry
        self._urls = urls
        self._times = times
        self.retention = Retention(registry, limits)
        self._requester = requester
        self._fences = fences
        self._large_results = large_results
        self._time = asyncio.get_running_loop().time
        self._since = get_time()
        self._queue = KeyQueue("action", self._reconcile, concurrency=16)
        self.assignment = Assignment(registry, presence, self._queue.add)
        self._sent: dict[str, _Sending] = {}
        self._abandoned: dict[str, ServiceAction] = {}
        self._cancelled: set[str] = set()
        self._progress: dict[str, Begun | Progressed] = {}
        self._results: dict[str, Resulted] = {}
        self._logs: dict[str, LogStored] = {}

    async def run(self) -> NoReturn:
        """Reconcile until cancelled."""
        self._since = get_time()
        await self._queue.run()

    async def prune(self) -> NoReturn:
        """Delete finished actions above the limit until cancelled."""
        await self.retention.run()

    def requester_connected(self) -> None:
        """Send the requests of all unfinished actions again: the broker may have lost them, and repetition is safe."""
        self._sent.clear()
        self._cancelled.clear()
        for action in self._registry.actions:
            if not is_finished(action):
                self._queue.add(action.metadata.uid)

    def apply_event(self, event: ReceivedEvent) -> Awaitable[object] | None:
        """Apply the message of a worker about an action.

        Returns the write that must succeed before the message is acknowledged; None if the message may be lost. Each
        action has a write of its own. So if the API server refuses one action again and again, others are not delayed.
        """
        message = event.message
        if not isinstance(message, ActionMessage):
            return None
        uid = parse_invocation_uid(message.invocation)
        action = self._registry.find_action(uid)
        if action is None or action.status.worker_uid != event.worker_uid:
            return None
        if message.invocation != get_invocation_id(action):
            return None
        if isinstance(message, LogStored):
            self._logs[uid] = message
            return self._queue.pass_now([uid])
        if is_finished(action):
            return None
        if isinstance(message, Resulted):
            self._results[uid] = message
            return self._queue.pass_now([uid])
        first = action.status.started_time is None
        self._progress[uid] = message
        if first and isinstance(message, Begun):
            return self._queue.pass_now([uid])
        self._queue.add(uid, 0.0 if first else PROGRESS_SPACING_SECONDS)
        return None

    def worker_registered(self, worker_uid: str) -> None:
        """Send the actions of a worker again after it has a new session, because the broker may have lost its queue."""
        for action in self._registry.actions.list_by("worker", worker_uid):
            if not is_finished(action):
                self._sent.pop(action.metadata.uid, None)
                self._queue.add(action.metadata.uid)

    def action_changed(self, old: ServiceAction | None, new: ServiceAction | None) -> None:
        """Reconcile a changed ServiceAction.

        The method handles changes of all authors in the same way. The author can be another operator, or this operator
        if it got no answer to its write.
        """
        left = find_removed(old, new)
        if left is not None:
            self._forget(left.metadata.uid)
            if _is_running(left):
                self._abandoned[left.metadata.uid] = left
                self._queue.add(left.metadata.uid)
        if old is not None and _is_running(old) and (left is not None or new is None or not _is_running(new)):
            self.assignment.apply_finished(old)
        before = old if left is None else None
        if new is not None and (before is None or _step(before) != _step(new)):
            self._queue.add(new.metadata.uid)
            if before is not None and is_finished(new) and not is_finished(before):
                FINISHED.labels(new.status.failure.reason if new.status.failure else names.Reason.SUCCEEDED.value).inc()

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Reconcile the actions of a deleted Worker; assign waiting actions to a Worker that became ready."""
        if (left := find_removed(old, new)) is not None:
            for action in self._registry.actions.list_by("worker", left.metadata.uid):
                self._queue.add(action.metadata.uid)
            self._target_gone(names.WORKERS, left.metadata)
        if new is not None:
            self.assignment.worker_changed(old, new)

    def pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        """Reconcile the actions whose target was a deleted pool."""
        if (left := find_removed(old, new)) is not None:
            self._target_gone(names.WORKER_POOLS, left.metadata)

    def service_changed(self, old: PublishedService | None, new: PublishedService | None) -> None:
        """Reconcile the actions whose target was a deleted service."""
        if (left := find_removed(old, new)) is not None:
            self._target_gone(names.SIMULATION_SERVICES, left.metadata)

    def _target_gone(self, resource: Resource, metadata: Metadata) -> None:
        for action in self._registry.actions.list_by(
            "target", format_target_key(resource.kind, metadata.namespace, metadata.name)
        ):
            self._queue.add(action.metadata.uid)

    def _forget(self, uid: str) -> None:
        self.assignment.forget(uid)
        self._fences.forget(uid)
        self._sent.pop(uid, None)
        self._cancelled.discard(uid)
        self._progress.pop(uid, None)
        self._results.pop(uid, None)
        self._logs.pop(uid, None)
        self._queue.forget(uid)

    async def _reconcile(self, uid: str) -> float | None:
        action = self._registry.find_action(uid)
        if action is None:
            await self._reconcile_deleted(uid)
            return None
        if await self._reconcile_result(action) or await self._reconcile_log(action):
            return 0.0
        if await self._reconcile_progress(action):
            return 0.0
        whole = await self._reconcile_parameters(action)
        if whole is None:
            return 0.0
        plan = await self._plan(whole)
        return await self._reconcile_step(whole, plan)

    async def _reconcile_deleted(self, uid: str) -> None:
        """Cancel the invocation of an action that a user deleted while it ran, and forget the action."""
        if (abandoned := self._abandoned.get(uid)) is not None:
            await self._cancel(abandoned)
            del self._abandoned[uid]
        self._forget(uid)

    async def _reconcile_result(self, action: QueuedAction) -> bool:
        """Write the result that the worker has sent; return False if there is no result."""
        result = self._results.get(action.metadata.uid)
        if result is None or is_finished(action):
            return False
        await self._finish(action, result)
        return True

    async def _reconcile_log(self, action: QueuedAction) -> bool:
        """Write the addresses of the log that the worker has sent; return False if there are none."""
        uid = action.metadata.uid
        if (stored := self._logs.get(uid)) is None:
            return False
        if stored.invocation == get_invocation_id(action):
            await self._write(action, record_log(action, stored))
        if self._logs.get(uid) is stored:
            del self._logs[uid]
        return True

    async def _reconcile_progress(self, action: QueuedAction) -> bool:
        """Write the begin or the progress that the worker has sent; return False if there is neither."""
        uid = action.metadata.uid
        progress = self._progress.get(uid)
        if progress is None or is_finished(action):
            return False
        await self._write(action, record_progress(action, progress, get_time()))
        if self._progress.get(uid) is progress:
            del self._progress[uid]
        return True

    async def _reconcile_parameters(self, action: QueuedAction) -> QueuedAction | None:
        """Return the action, with all parameters if it has no worker yet, to check them; None if it was deleted."""
        if action.status.worker_uid or is_finished(action):
            return action
        try:
            return await self._registry.fetch_whole_action(action)
        except NotFoundError:
            await self._registry.fetch_action(action)
            return None

    async def _plan(self, action: QueuedAction) -> ActionPlan:
        """Return the plan for an action. If it changes the status, plan again with new objects of the API server."""
        plan = partial(
            plan_action, action, sent=self._sent_for(action), now=get_time(), times=self._times, urls=self._urls
        )
        found = plan(self._target(action))
        if found.need is Need.WRITE and not is_finished(action):
            await self._look_again(action)
            found = plan(self._target(action))
        return found

    async def _reconcile_step(self, action: QueuedAction, plan: ActionPlan) -> float | None:
        """Carry out the step of a plan; return the seconds until the next pass."""
        if plan.need is Need.ASSIGN:
            self.assignment.add_waiting(action)
        elif plan.need is Need.FENCE:
            await self._fences.raise_for(action.metadata.uid, action.status.worker_uid)
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
            await self.retention.delete(action)
        return get_seconds_until(get_time(), [plan.look_again])

    def _target(self, action: QueuedAction) -> Target:
        uid = action.status.worker_uid
        there = bool(uid) and self._registry.find_worker(uid) is not None
        since = self._registry.get_gone_since(uid) or self._since if self._requester.connected else get_time()
        fenced = not there and self._fences.is_closed(action.metadata.uid)
        service, refusal = self._registry.find_target_service(action), self.retention.check_room(action)
        return Target(service, there, None if there else since, fenced, refusal)

    def _sent_for(self, action: ServiceAction) -> Sent | None:
        """Return the seconds since this process sent an action to its worker; None if it has not sent it."""
        sending, now = self._sent.get(action.metadata.uid), self._time()
        if sending is None or sending.invocation != get_invocation_id(action):
            return None
        if action.status.started_time is not None and sending.begun is None:
            sending.begun = now
        begun = None if sending.begun is None else now - sending.begun
        return Sent(now - sending.first, now - sending.last, begun)

    async def _look_again(self, action: ServiceAction) -> None:
        """Read from the API server the target and its service, or the worker if the action is assigned."""
        status = action.status
        if not status.worker_uid:
            await self._registry.fetch_target(action)
        elif self._registry.find_worker(status.worker_uid) is None:
            await self._registry.fetch_worker(action.metadata.namespace, status.worker, status.worker_uid)

    async def _publish(self, action: QueuedAction) -> None:
        worker = self._registry.find_worker(action.status.worker_uid)
        if worker is None:
            return
        if (refusal := self.retention.check_room(action)) is not None:  # accepted by an earlier version
            return await self._write(action, record_failure(action, *refusal, get_time()))
        try:
            whole = await self._registry.fetch_whole_action(action)
        except NotFoundError:
            return await self._registry.fetch_action(action)
        if whole.left_out or get_invocation_id(whole) != get_invocation_id(action):  # finished, or assigned elsewhere
            return await self._registry.fetch_action(action)
        body = build_action_request(whole, self._registry.find_target_service(action), self._urls)
        await self._requester.publish_persistent(
            get_queue(worker), wire.Request.ACTION, body, get_invocation_id(action)
        )
        uid, invocation, time = action.metadata.uid, get_invocation_id(action), self._time()
        if (sending := self._sent.get(uid)) is None or sending.invocation != invocation:
            self._sent[uid] = _Sending(invocation, time, time)
        else:
            sending.last = time
        self._cancelled.discard(uid)  # the worker got an earlier cancellation before this request

    async def _cancel(self, action: ServiceAction) -> None:
        uid, worker = action.metadata.uid, self._registry.find_worker(action.status.worker_uid)
        if worker is None or uid in self._cancelled:
            return
        invocation = get_invocation_id(action)
        body = {"invocation": invocation}
        with contextlib.suppress(NoConsumerError):  # without a consumer, no adapter can begin the action
            await self._requester.publish_persistent(
                get_queue(worker), wire.Request.CANCEL, body, f"{invocation}-cancel"
            )
        self._cancelled.add(uid)

    async def _finish(self, action: QueuedAction, result: Resulted) -> None:
        try:
            service = self._registry.find_target_service(action)
            status = record_result(action, service, result, get_time())
            await self._write(action, await self._large_results.move(action, status))
        except ApiError as error:
            if error.retryable or error.status in (401, 403):
                raise
            reason, message = wire.ErrorReason.INVALID_RESULT, f"the API server refuses the result: {error}"
            if isinstance(error, TooLargeError):
                reason, message = wire.ErrorReason.RESULT_TOO_LARGE, f"{message}; {LARGE_RESULT_REMEDY}"
            await self._write(action, record_failure(action, reason.value, message, get_time()))
        self._results.pop(action.metadata.uid, None)

    async def _write(self, action: QueuedAction, status: ServiceActionStatus) -> None:
        """Write a status, unless another client has changed the action since this process read it.

        Raises:
            ConflictError: another client has changed the action; the queue repeats the pass.
        """
        registry = self._registry
        if not await write_status(
            registry.client, registry.actions, action.metadata, action.status, status, guarded=True
        ):
            await registry.fetch_action(action)
            raise ConflictError(409, "Conflict", "the action was changed meanwhile")


def _is_running(action: ServiceAction) -> bool:
    """Return whether an action occupies a worker."""
    return bool(action.status.worker_uid) and not is_finished(action)


def _step(action: ServiceAction) -> tuple[int, str, int, bool, bool]:
    """Return the fields of an action on which the next step depends."""
    deleted = action.metadata.deletion_timestamp is not None
    return action.metadata.generation, action.status.worker_uid, action.status.attempts, is_finished(action), deleted
