"""Runs one site: follows its machines, compares them with the Workers, and has the difference carried out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from simyard.api.cloud_site import CloudSite, CloudSiteSpec
from simyard.api.worker import Worker
from simyard.fleet.broker import Broker
from simyard.fleet.bulk import Bulk, Told
from simyard.fleet.machine_requests import MachineRequests
from simyard.fleet.machines import MachineTable
from simyard.fleet.metering import SiteMeter
from simyard.fleet.orphans import Orphans
from simyard.fleet.queue import KeyQueue
from simyard.fleet.registry import Registry, gone
from simyard.fleet.restarts import Restarts
from simyard.fleet.site_calls import Look, carry_out
from simyard.fleet.site_events import follow
from simyard.fleet.site_health import SiteHealth, pause_after
from simyard.fleet.workers import WorkerStatuses
from simyard.messaging.errors import MessagingError
from simyard.plan.machine import POWER, Step
from simyard.plan.pace import retry_after
from simyard.plan.site import SiteObservation, count_machines
from simyard_sites.base import (
    CapacityExhaustedError,
    Changed,
    ConflictError,
    ErrorScope,
    Gone,
    Machine,
    MachineNotFoundError,
    MachineState,
    Outcome,
    QuotaExhaustedError,
    Site,
    SiteError,
    SiteEvent,
    Snapshot,
    ThrottledError,
    UnknownOutcomeError,
    stop_ends,
)

log = logging.getLogger(__name__)

SERVICE_WAIT_SECONDS = 30.0
BROKER_WAIT_SECONDS = 1.0
CONFIRM_SECONDS = 30.0
"""So long after a delete was accepted the site is asked whether the machine is still there."""


class SiteRunner:
    """One CloudSite whose provider could be made.

    ``changed`` is called when what the site's status says may be different, ``orphan_removed`` with a machine whose
    Worker nobody saw deleted, ``evacuate`` with one that must leave its host.
    """

    def __init__(
        self,
        site: CloudSite,
        provider: Site,
        registry: Registry,
        statuses: WorkerStatuses,
        broker: Broker,
        meter: SiteMeter,
        *,
        changed: Callable[[], None],
        orphan_removed: Callable[[Machine], None],
        evacuate: Callable[[Machine], None],
    ) -> None:
        self.name = site.metadata.name
        self.machines = MachineTable()
        self.health = SiteHealth(
            self.name,
            provider,
            changed=changed,
            permitted_changed=lambda: self._bulk.permitted_changed(),
            waits=lambda: self._bulk.waits,
        )
        self._look = Look(self.name, provider, self.health, self._take_machine)
        self._bulk = Bulk(self.name, self._send, site.spec.limits, lambda: self.health.permitted, changed)
        self._orphans = Orphans(self.name, registry, site.spec.orphan_grace_seconds, orphan_removed)
        self.complete = False
        self._provider = provider
        self._requests = MachineRequests(
            site, registry, broker, statuses, lambda uid: bool(self.machines.of_worker(uid))
        )
        self._restarts = Restarts(self.machines, registry, statuses, stop_ends(provider))
        self._registry = registry
        self._statuses = statuses
        self._meter = meter
        self._changed = changed
        self._evacuate = evacuate
        self._attempts: dict[str, int] = {}
        self._lost: set[str] = set()
        self._suspects: set[str] = set()
        self._deleting: dict[str, float] = {}
        self._missing: dict[str, str] = {}
        self._clock = asyncio.get_running_loop().time
        self._queue = KeyQueue(f"site-{self.name}", self._evaluate)

    def observation(self) -> SiteObservation:
        """What the site's status is made from."""
        desired = self._registry.workers.count("site", self.name)
        return self.health.observation(count_machines(self.machines.states), desired, self._bulk.observations())

    def adjust(self, spec: CloudSiteSpec) -> None:
        """Take over what may change while it runs."""
        self._bulk.set_limits(spec.limits)
        self._orphans.grace_seconds = spec.orphan_grace_seconds
        for uid in (*self._orphans.uids, *self._requests.adjust(spec)):
            self._queue.add(uid)

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """A Worker of the site was made, changed or deleted."""
        if (left := gone(old, new)) is not None:
            self._lost.discard(left.metadata.uid)
            self._restarts.forget(left.metadata.uid)
            self._attempts.pop(left.metadata.uid, None)
            for uid in (left.metadata.uid, *self._requests.forget(left.metadata.uid)):
                self._compare(uid)
        if new is not None:
            self._orphans.forget(new.metadata.uid)
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            for machine in self.machines.of_worker(new.metadata.uid)[:1]:
                self._tell_worker(machine)
            self._compare(new.metadata.uid)

    async def clear(self) -> None:
        """Remove what the site keeps beside machines; nothing is known to be left of those.

        Raises:
            SiteError: it cannot be done now.
        """
        await self._provider.clear()

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                events = follow(self.name, self._provider, self.health, self._take, self._incomplete)
                group.create_task(events, name=f"events of {self.name}")
                group.create_task(self.health.probe(), name=f"probe of {self.name}")
                group.create_task(self._queue.run(), name=f"machines of {self.name}")
                group.create_task(self._bulk.run(), name=f"requests to {self.name}")
        finally:
            self._incomplete()
            await self._provider.aclose()
        raise AssertionError("the tasks do not end")

    # What the site tells

    def _incomplete(self) -> None:
        """From now on something may happen that we are not told."""
        self.complete = False
        self._settle()

    def _take(self, event: SiteEvent) -> None:
        if isinstance(event, Changed):
            self._take_machine(event.machine)
        elif isinstance(event, Gone):
            self._take_gone(event.id)
        elif isinstance(event, Snapshot):
            self._suspects.update(machine.id for machine in self.machines.absent(event.machines))
            for machine in event.machines:
                self._take_machine(machine)
            self.complete = True
            self.health.stream(None)
            uids = [machine.owner.worker_uid for machine in self.machines]
            uids += [worker.metadata.uid for worker in self._registry.workers.by("site", self.name)]
            for uid in dict.fromkeys(uids):
                self._compare(uid)
            self._settle()
        self._changed()

    def _settle(self) -> None:
        """Tell the meter whether all machines are known."""
        self._meter.settle(self.machines if self.complete and not self._suspects else None)

    def _take_machine(self, machine: Machine) -> None:
        self._suspects.discard(machine.id)
        old = self.machines.put(machine)
        self._meter.seen(machine)
        self._settle()
        if machine.state is MachineState.RUNNING and (old is None or old.state is not MachineState.RUNNING):
            self.health.booted(machine)
        uid = machine.owner.worker_uid
        worker = self._registry.worker(uid)
        if worker is not None:
            self._tell_worker(machine)
        elif old is None and self.complete and not self._bulk.under_way(Step.CREATE, uid):
            self._orphans.note(uid)
        if old is None or self._restarts.plan(worker, machine) is not Step.NOTHING:
            self._compare(uid)

    def _tell_worker(self, machine: Machine) -> None:
        self._statuses.machine_changed(machine.owner.worker_uid, machine)
        if machine.evacuate:
            self._evacuate(machine)

    def _take_gone(self, machine_id: str) -> None:
        self._suspects.discard(machine_id)
        self._deleting.pop(machine_id, None)
        self._attempts.pop(machine_id, None)
        machine = self.machines.remove(machine_id)
        if machine is not None:
            self._meter.gone(machine)
        self._settle()
        if machine is None:
            return
        uid = machine.owner.worker_uid
        if not self.machines.of_worker(uid):
            self._orphans.forget(uid)
            self._note_lost(uid)
        self._changed()

    def _note_lost(self, uid: str) -> None:
        worker = self._registry.worker(uid)
        if worker is None or worker.metadata.deletion_timestamp is not None:
            return
        if self._restarts.ended(worker):
            self._compare(uid)
        else:
            self._lost.add(uid)
            self._statuses.observe(uid, machine=None, lost=True)

    # What is to be done

    async def _evaluate(self, uid: str) -> None:
        """Compare a Worker with its machine, after looking for it where no cache has it."""
        machines = self.machines.of_worker(uid)
        waits = 0.0
        if self.complete and machines and self._orphans.may_be(uid, machines[0]):
            waits = await self._orphans.look_for_owner(uid, machines[0])
        if waits > 0:
            self._queue.add(uid, waits)
        else:
            self._compare(uid)

    def _compare(self, uid: str) -> None:
        """Ask for what a Worker's machine needs. Nothing is done while the machines are not all known."""
        if not self.complete:
            return
        machines = self.machines.of_worker(uid)
        if suspects := [machine.id for machine in machines if machine.id in self._suspects]:
            for machine_id in suspects:
                self._bulk.want(Step.LOOK, machine_id)
            return
        if machines and self._orphans.may_be(uid, machines[0]):
            self._queue.add(uid)
            return
        for extra in machines[1:]:
            self._bulk.want(Step.DELETE, extra.id)
        worker, machine = self._registry.worker(uid), machines[0] if machines else None
        step = self._restarts.plan(worker, machine)
        if step is Step.DELETE and machine is not None:
            self._want_delete(machine)
        elif step is Step.LOST and worker is not None and uid not in self._lost:
            self._want_look(uid, worker.status.machine_id)
        elif step is Step.REST and worker is not None:
            self._restarts.rest(worker)
        elif step is Step.CREATE and uid not in self._lost:
            self._bulk.want(step, uid)
        elif step in POWER and machine is not None:
            self._bulk.want(step, machine.id)

    def _want_look(self, uid: str, machine_id: str) -> None:
        """A Worker had a machine that is not in the table: its site is asked, where there is something to ask for."""
        if machine_id:
            self._missing[machine_id] = uid
            self._bulk.want(Step.LOOK, machine_id)
        elif not self._bulk.under_way(Step.CREATE, uid):
            self._note_lost(uid)

    def _want_delete(self, machine: Machine) -> None:
        """Have it deleted, once; when that takes long, ask whether it is still there (an event may be lost)."""
        if machine.state is MachineState.TERMINATING:
            self._deleting.setdefault(machine.id, self._clock())
        accepted = self._deleting.get(machine.id)
        if accepted is None:
            self._bulk.want(Step.DELETE, machine.id)
        elif (left := accepted + CONFIRM_SECONDS - self._clock()) > 0:
            self._queue.add(machine.owner.worker_uid, left)
        else:
            self._bulk.want(Step.LOOK, machine.id)

    # Requests

    async def _send(self, step: Step, keys: Sequence[str]) -> Told | None:
        if step is Step.CREATE:
            return await self._create(keys)
        if step is Step.LOOK:
            call, take = self._provider.get(keys), self._looked
        elif step is Step.DELETE:
            call, take = self._provider.delete(keys), self._deleted
        else:
            self._restarts.sent(step, keys)
            call, take = self._provider.act(keys, POWER[step]), partial(self._acted, step)
        return await carry_out(self.name, self.health, step, keys, call, take)

    def _looked(self, outcome: Outcome) -> None:
        key, error = outcome.key, outcome.error
        self._bulk.done(Step.LOOK, key)
        uid = self._missing.pop(key, None)
        known = self.machines.get(key)
        if outcome.machine is not None:
            self._attempts.pop(key, None)
            self._take_machine(outcome.machine)
            if self._deleting.pop(key, None) is not None:
                self._bulk.want(Step.DELETE, key)
            else:
                self._compare(outcome.machine.owner.worker_uid)
        elif isinstance(error, MachineNotFoundError):
            self._take_gone(key)
            if uid is not None and not self.machines.of_worker(uid):
                self._note_lost(uid)
        elif error is not None and (uid := known.owner.worker_uid if known is not None else uid) is not None:
            self._again(Step.LOOK, key, uid, error)

    def _deleted(self, outcome: Outcome) -> None:
        key = outcome.key
        self._acted(Step.DELETE, outcome)
        machine = self.machines.get(key)
        if outcome.error is None and machine is not None:
            self._deleting[key] = self._clock()
            self._queue.add(machine.owner.worker_uid, CONFIRM_SECONDS)

    def _acted(self, step: Step, outcome: Outcome) -> None:
        key, error = outcome.key, outcome.error
        self._bulk.done(step, key)
        self._restarts.answered(step, key, accepted=error is None)
        if outcome.machine is not None and self.machines.get(key) is not None:
            self._take_machine(outcome.machine)  # one that is not in the table went meanwhile, as an event has told
        machine = self.machines.get(key)
        if isinstance(error, MachineNotFoundError):
            self._take_gone(key)
        elif error is None:
            self._attempts.pop(key, None)
            if step in POWER and machine is not None:
                self._statuses.observe(machine.owner.worker_uid, waits="")
        elif machine is not None:
            self._again(step, key, machine.owner.worker_uid, error)

    async def _create(self, uids: Sequence[str]) -> Told | None:
        found = [worker for uid in uids if (worker := self._registry.worker(uid)) is not None]
        workers = [worker for worker in found if not self.machines.of_worker(worker.metadata.uid)]
        try:
            requests = await self._requests.prepare(workers)
        except MessagingError as error:
            log.warning("site %s: %d machines wait for the broker: %s", self.name, len(workers), error)
            for worker in workers:
                self._queue.add(worker.metadata.uid, BROKER_WAIT_SECONDS)
            return None
        for worker in workers:
            if worker.metadata.uid not in requests:
                self._queue.add(worker.metadata.uid, SERVICE_WAIT_SECONDS)
        if not requests:
            return None
        uids_of = {request.name: uid for uid, request in requests.items()}
        lost: list[Outcome] = []

        def take(outcome: Outcome) -> None:
            if isinstance(outcome.error, UnknownOutcomeError):
                lost.append(outcome)
            else:
                self._created(uids_of[outcome.key], outcome)

        try:
            call = self._provider.create(list(requests.values()))
            told = await carry_out(self.name, self.health, Step.CREATE, list(uids_of), call, take)
            if lost:
                await self._look.again()
        finally:
            self._requests.answered(requests)
        for outcome in lost:
            self._created(uids_of[outcome.key], outcome)
        return told

    def _created(self, uid: str, outcome: Outcome) -> None:
        error = outcome.error
        if outcome.machine is not None and self.machines.get(outcome.machine.id) is None:
            self._take_machine(outcome.machine)  # of one that is known, an event has told what happened since
        self._bulk.done(Step.CREATE, uid)
        if error is None:
            self._attempts.pop(uid, None)
            self._restarts.created(uid)
            self.health.created(len(self.machines))
        elif error.retryable or error.scope is ErrorScope.SITE:
            self._again(Step.CREATE, uid, uid, error)
        else:
            self._statuses.observe(uid, refusal=f"{error.reason}: {error}")

    def _again(self, step: Step, key: str, uid: str, error: SiteError) -> None:
        """Ask once more: at the site's pace when it was too much, when there is room, or after a pause of its own.

        A quota that is not the whole site's holds nobody else up. What is no matter of the site, the Worker tells; of a
        machine that was to be stopped, suspended or started, it tells every failure, because nothing else does.
        """
        lasting = error.scope is ErrorScope.ITEM and not error.retryable
        if error.scope is ErrorScope.POOL or lasting or step in POWER:
            self._statuses.observe(uid, waits=f"{error.reason}: {error}")
        if step in POWER:
            log.warning("site %s: %s of %s: %s: %s", self.name, step.name.lower(), key, error.reason, error)
        full = isinstance(error, QuotaExhaustedError | CapacityExhaustedError) and error.scope is ErrorScope.SITE
        if full:
            self._bulk.pause(step, self.health.full(error, len(self.machines)))
        if full or isinstance(error, ThrottledError):
            self._bulk.want(step, key)
            return
        attempts = 1 if isinstance(error, ConflictError) else self._attempts.get(key, 0) + 1
        self._attempts[key] = attempts
        self._queue.add(uid, retry_after(error) or pause_after(attempts))
