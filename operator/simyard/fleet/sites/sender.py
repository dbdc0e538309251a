# SPDX-License-Identifier: Apache-2.0
"""Sends batches of requests to one site, and applies the answers.

The answer to a creation can be lost after the site has created the machine. A second request would then create a second
machine. So the sender first lists all machines of the site before it repeats a creation that got no answer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from simyard.fleet.sites.batch_queue import BatchResult
from simyard.fleet.sites.calls import MachineListing, carry_out
from simyard.fleet.sites.machine_reconciler import MachineReconciler
from simyard.fleet.sites.machine_requests import MachineRequests
from simyard.fleet.sites.parts import SiteParts
from simyard.messaging.errors import MessagingError
from simyard.plan.machine import POWER_ACTIONS, Step
from simyard_sites.base import (
    CapacityExhaustedError,
    ErrorScope,
    MachineNotFoundError,
    Outcome,
    QuotaExhaustedError,
    SiteError,
    ThrottledError,
    UnknownOutcomeError,
)

log = logging.getLogger(__name__)

SERVICE_WAIT_SECONDS = 30.0
"""Delay before the next attempt for a Worker that can have no machine now, for example without a valid service."""


class Sender:
    """Sender of requests to one site's provider; it passes the answers to the reconciler."""

    def __init__(self, parts: SiteParts, reconciler: MachineReconciler, bodies: MachineRequests) -> None:
        self._name = parts.name
        self._timing = parts.context.timing
        self._provider = parts.provider
        self._registry = parts.context.registry
        self._statuses = parts.context.statuses
        self._machines = parts.inventory.machines
        self._requests = parts.requests
        self._health = parts.health
        self._restarts = parts.restarts
        self._reconciler = reconciler
        self._bodies = bodies
        self._listing = MachineListing(parts.name, parts.provider, parts.health, reconciler.machine_seen)

    async def send(self, step: Step, keys: Sequence[str]) -> BatchResult | None:
        """Send one batch and apply its outcomes; return None if the site was not called.

        The keys are uids of Workers for CREATE, and else ids of machines.
        """
        if step is Step.CREATE:
            return await self._create(keys)
        if step is Step.LOOK:
            call, apply = self._provider.get(keys), self._apply_look
        elif step is Step.DELETE:
            call, apply = self._provider.delete(keys), self._apply_delete
        else:
            self._restarts.record_request(step, keys)
            call, apply = self._provider.act(keys, POWER_ACTIONS[step]), partial(self._apply_step, step)
        return await carry_out(self._name, self._health, step, keys, call, apply)

    async def _create(self, uids: Sequence[str]) -> BatchResult | None:
        found = [worker for uid in uids if (worker := self._registry.find_worker(uid)) is not None]
        workers = [worker for worker in found if not self._machines.list_of_worker(worker.metadata.uid)]
        try:
            bodies = await self._bodies.prepare(workers)
        except MessagingError as error:
            log.warning("site %s: %d machines wait for the broker: %s", self._name, len(workers), error)
            for worker in workers:
                self._reconciler.wake(worker.metadata.uid, self._timing.broker_wait_seconds)
            return None
        for worker in workers:
            if worker.metadata.uid not in bodies:
                self._reconciler.wake(worker.metadata.uid, SERVICE_WAIT_SECONDS)
        if not bodies:
            return None
        uids_of = {body.name: uid for uid, body in bodies.items()}
        lost: list[Outcome] = []

        def apply(outcome: Outcome) -> None:
            if isinstance(outcome.error, UnknownOutcomeError):
                lost.append(outcome)
            else:
                self._apply_create(uids_of[outcome.key], outcome)

        try:
            call = self._provider.create(list(bodies.values()))
            result = await carry_out(self._name, self._health, Step.CREATE, list(uids_of), call, apply)
            if lost:
                await self._listing.refresh()
        finally:
            self._bodies.record_answers(bodies)
        for outcome in lost:
            self._apply_create(uids_of[outcome.key], outcome)
        return result

    def _apply_create(self, uid: str, outcome: Outcome) -> None:
        error = outcome.error
        if outcome.machine is not None and self._machines.get(outcome.machine.id) is None:
            self._reconciler.machine_seen(outcome.machine)  # events have already shown a newer state of a known machine
        self._requests.record_answer(Step.CREATE, uid)
        if error is None:
            self._reconciler.request_succeeded(uid)
            self._restarts.record_creation(uid)
            self._health.record_creation(len(self._machines))
        elif error.retryable or error.scope is ErrorScope.SITE:
            self._retry(Step.CREATE, uid, uid, error)
        else:
            self._statuses.observe(uid, refusal=f"{error.reason}: {error}")

    def _apply_look(self, outcome: Outcome) -> None:
        key, error = outcome.key, outcome.error
        self._requests.record_answer(Step.LOOK, key)
        uid = self._reconciler.end_look(key)
        known = self._machines.get(key)
        if outcome.machine is not None:
            self._reconciler.request_succeeded(key)
            self._reconciler.machine_found(outcome.machine)
        elif isinstance(error, MachineNotFoundError):
            self._reconciler.machine_not_found(key, uid)
        elif error is not None and (uid := known.owner.worker_uid if known is not None else uid) is not None:
            self._retry(Step.LOOK, key, uid, error)

    def _apply_delete(self, outcome: Outcome) -> None:
        self._apply_step(Step.DELETE, outcome)
        machine = self._machines.get(outcome.key)
        if outcome.error is None and machine is not None:
            self._reconciler.deletion_accepted(machine.id)
            self._reconciler.wake(machine.owner.worker_uid, self._timing.deletion_confirm_seconds)

    def _apply_step(self, step: Step, outcome: Outcome) -> None:
        key, error = outcome.key, outcome.error
        self._requests.record_answer(step, key)
        self._restarts.record_answer(step, key, accepted=error is None)
        if outcome.machine is not None and self._machines.get(key) is not None:
            self._reconciler.machine_seen(outcome.machine)  # an event has said that an unknown machine is gone
        machine = self._machines.get(key)
        if isinstance(error, MachineNotFoundError):
            self._reconciler.machine_gone(key)
        elif error is None:
            self._reconciler.request_succeeded(key)
            if step in POWER_ACTIONS and machine is not None:
                self._statuses.observe(machine.owner.worker_uid, waits="")
        elif machine is not None:
            self._retry(step, key, machine.owner.worker_uid, error)

    def _retry(self, step: Step, key: str, uid: str, error: SiteError) -> None:
        """Send a request again, at a time that depends on the error.

        A throttled request goes back into the queue, which obeys the site's pace. If the site is full, all requests of
        this step wait until there may be room. Any other request waits for a pause of its own and delays no other
        request; an example is a quota that concerns only one pool. The Worker's status reports errors that concern this
        Worker or its pool. It also reports each failure to stop, suspend, start or restart the machine, because users
        see these failures nowhere else.
        """
        lasting = error.scope is ErrorScope.ITEM and not error.retryable
        if error.scope is ErrorScope.POOL or lasting or step in POWER_ACTIONS:
            self._statuses.observe(uid, waits=f"{error.reason}: {error}")
        if step in POWER_ACTIONS:
            log.warning("site %s: %s of %s: %s: %s", self._name, step.name.lower(), key, error.reason, error)
        full = isinstance(error, QuotaExhaustedError | CapacityExhaustedError) and error.scope is ErrorScope.SITE
        if full:
            self._requests.pause(step, self._health.record_full(error, len(self._machines)))
        if full or isinstance(error, ThrottledError):
            self._requests.add(step, key)
        else:
            self._reconciler.request_failed(uid, key, error)
