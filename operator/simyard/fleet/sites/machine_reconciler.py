# SPDX-License-Identifier: Apache-2.0
"""Reconciles the machines of one site with its Workers.

:mod:`simyard.plan.worker_machines` makes the plan; this module collects the input of the plan, and carries the plan
out. A pass over one Worker runs after a change of the Worker or its machine, and again after a failure. Most passes run
at once in the handler of the event that caused them. Only a pass over a machine without a known Worker goes through the
queue, because it has to wait for the API server's answer about the Worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NoReturn

from simyard.api.worker import Worker
from simyard.fleet.registry import find_removed
from simyard.fleet.sites.parts import SiteParts
from simyard.fleet.work_queue import KeyQueue
from simyard.plan.lost_workers import is_machine_lost
from simyard.plan.machine import Step, plan_machine
from simyard.plan.pace import get_retry_after
from simyard.plan.worker_machines import MachinePlan, WorkerMachines, plan_worker_machines
from simyard_sites.base import ConflictError, Machine, MachineState, SiteError


class MachineReconciler:
    """Reconciler of one site: it keeps one machine for each Worker, and no machine without a Worker."""

    def __init__(self, parts: SiteParts) -> None:
        self._name = parts.name
        self._context = parts.context
        self._registry = parts.context.registry
        self._inventory = parts.inventory
        self._requests = parts.requests
        self._health = parts.health
        self._restarts = parts.restarts
        self._orphans = parts.orphans
        self._attempts: dict[str, int] = {}
        self._lost: set[str] = set()
        self._deleting: dict[str, float] = {}
        self._missing: dict[str, str] = {}
        self._clock = asyncio.get_running_loop().time
        self._queue = KeyQueue(f"site-{parts.name}", self._reconcile)

    @property
    def attempts(self) -> Mapping[str, int]:
        """Number of failed attempts in a row, by the key of the request."""
        return self._attempts

    async def run(self) -> NoReturn:
        """Reconcile until cancelled."""
        await self._queue.run()

    def wake(self, uid: str, delay: float = 0.0) -> None:
        """Ask for a pass over a Worker after ``delay`` seconds, or sooner."""
        self._queue.add(uid, delay)

    # Changes

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Reconcile the machine of a Worker that is new, changed or deleted."""
        if (left := find_removed(old, new)) is not None:
            self._lost.discard(left.metadata.uid)
            self._restarts.forget(left.metadata.uid)
            self._attempts.pop(left.metadata.uid, None)
            self.reconcile(left.metadata.uid)
        if new is not None:
            self._orphans.forget(new.metadata.uid)
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            for machine in self._inventory.machines.list_of_worker(new.metadata.uid)[:1]:
                self._report_machine(machine)
            self.reconcile(new.metadata.uid)

    def machine_seen(self, machine: Machine) -> None:
        """Store a machine, and reconcile its Worker if the new state of the machine requires a step."""
        old = self._inventory.put(machine)
        if machine.state is MachineState.RUNNING and (old is None or old.state is not MachineState.RUNNING):
            self._health.record_boot(machine)
        uid = machine.owner.worker_uid
        worker = self._registry.find_worker(uid)
        if worker is not None:
            self._report_machine(machine)
        elif old is None and self._inventory.complete and not self._requests.is_sent(Step.CREATE, uid):
            self._orphans.note(uid)
        if old is None or self._next_step(worker, machine) is not Step.NOTHING:
            self.reconcile(uid)

    def machine_gone(self, machine_id: str) -> None:
        """Forget a machine that the site does not have any more.

        Its Worker is lost, unless the machine is gone because of a request.
        """
        self._deleting.pop(machine_id, None)
        self._attempts.pop(machine_id, None)
        machine = self._inventory.remove(machine_id)
        if machine is None:
            return
        uid = machine.owner.worker_uid
        if not self._inventory.machines.list_of_worker(uid):
            self._orphans.forget(uid)
            self._report_lost(uid)
        self._context.changed()

    def inventory_complete(self) -> None:
        """Reconcile every Worker and every machine of the site, after all machines have become known."""
        uids = [machine.owner.worker_uid for machine in self._inventory.machines]
        uids += [worker.metadata.uid for worker in self._registry.workers.list_by("site", self._name)]
        for uid in dict.fromkeys(uids):
            self.reconcile(uid)

    # Answers to requests

    def request_succeeded(self, key: str) -> None:
        """Reset the number of failed attempts of a request."""
        self._attempts.pop(key, None)

    def request_failed(self, uid: str, key: str, error: SiteError) -> None:
        """Count a failed attempt of a request, and ask for a pass over its Worker.

        The delay is the pause that the site asked for; without one, it grows with the number of attempts.
        """
        attempts = 1 if isinstance(error, ConflictError) else self._attempts.get(key, 0) + 1
        self._attempts[key] = attempts
        self._queue.add(uid, get_retry_after(error) or self._health.compute_pause(attempts))

    def deletion_accepted(self, machine_id: str) -> None:
        """Record that the site has accepted the deletion of a machine."""
        self._deleting[machine_id] = self._clock()

    def end_look(self, machine_id: str) -> str | None:
        """End the search for a machine. Return the uid of the Worker that waits for it, or None."""
        return self._missing.pop(machine_id, None)

    def machine_found(self, machine: Machine) -> None:
        """Store a machine that a search at the site has found, and request the next step for it."""
        self.machine_seen(machine)
        if self._deleting.pop(machine.id, None) is not None:
            self._requests.add(Step.DELETE, machine.id)
        else:
            self.reconcile(machine.owner.worker_uid)

    def machine_not_found(self, machine_id: str, uid: str | None) -> None:
        """Forget a machine that a search at the site has not found, and report its Worker as lost."""
        self.machine_gone(machine_id)
        if uid is not None and not self._inventory.machines.list_of_worker(uid):
            self._report_lost(uid)

    # A pass

    async def _reconcile(self, uid: str) -> float | None:
        waits = await self._reconcile_owner(uid)
        if waits > 0:
            return waits
        self.reconcile(uid)
        return None

    async def _reconcile_owner(self, uid: str) -> float:
        """If a machine may be an orphan, ask the API server for its Worker.

        Returns the seconds until the next pass; 0: the plan can be made now.
        """
        machines = self._inventory.machines.list_of_worker(uid)
        if not self._inventory.complete or not machines or not self._orphans.may_be(uid, machines[0]):
            return 0.0
        return await self._orphans.fetch_owner(uid, machines[0])

    def reconcile(self, uid: str) -> None:
        """Plan the next step for a Worker's machine and put it into the queue of requests. The method never waits."""
        self._carry_out(uid, plan_worker_machines(self._observe(uid)))

    def _observe(self, uid: str) -> WorkerMachines:
        machines = self._inventory.machines.list_of_worker(uid)
        accepted = self._deleting.get(machines[0].id) if machines else None
        return WorkerMachines(
            worker=self._registry.find_worker(uid),
            machines=machines,
            complete=self._inventory.complete,
            suspects=self._inventory.suspects,
            may_be_orphan=bool(machines) and self._orphans.may_be(uid, machines[0]),
            lost=uid in self._lost,
            create_sent=self._requests.is_sent(Step.CREATE, uid),
            restarts=self._restarts.count_accepted(uid),
            ended=self._restarts.has_ended(uid),
            stop_ends=self._restarts.stop_ends,
            deletion_seconds=None if accepted is None else self._clock() - accepted,
            confirm_seconds=self._context.timing.deletion_confirm_seconds,
        )

    def _next_step(self, worker: Worker | None, machine: Machine) -> Step:
        restarts, uid = self._restarts, machine.owner.worker_uid
        ended = restarts.has_ended(uid)
        return plan_machine(worker, machine, restarts.count_accepted(uid), stop_ends=restarts.stop_ends, ended=ended)

    def _carry_out(self, uid: str, plan: MachinePlan) -> None:
        for step, key in plan.requests:
            if step is Step.LOOK and self._inventory.machines.get(key) is None:
                self._missing[key] = uid
            self._requests.add(step, key)
        if plan.deletion_began:
            self.deletion_accepted(self._inventory.machines.list_of_worker(uid)[0].id)
        if plan.look_for_owner:
            self._queue.add(uid)
        if plan.again_seconds is not None:
            self._queue.add(uid, plan.again_seconds)
        if plan.rests and (worker := self._registry.find_worker(uid)) is not None:
            self._restarts.report_rest(worker)
        if plan.lost:
            self._report_lost(uid)

    # Reports

    def _report_machine(self, machine: Machine) -> None:
        self._context.statuses.machine_changed(machine.owner.worker_uid, machine)
        if machine.evacuate:
            self._context.evacuate(machine)

    def _report_lost(self, uid: str) -> None:
        worker = self._registry.find_worker(uid)
        ended = worker is not None and self._restarts.ended_on_request(worker)
        if is_machine_lost(worker, ended_on_request=ended):
            self._lost.add(uid)
            self._context.statuses.observe(uid, machine=None, lost=True)
        elif ended:
            self.reconcile(uid)
