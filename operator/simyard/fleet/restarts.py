"""Restarts of machines: which were asked for, and which their site has accepted."""

from __future__ import annotations

from collections.abc import Iterable

from simyard.api.worker import Worker
from simyard.fleet.machines import MachineTable
from simyard.fleet.registry import Registry
from simyard.fleet.workers import WorkerStatuses
from simyard.plan.machine import Step, plan_machine
from simyard_sites.base import Machine


class Restarts:
    """Those of one site's machines.

    What was accepted counts from the moment of the answer, and goes into the Worker's status. An operator that ends
    between the two has the machine restarted once more: at least once is what a restart promises.
    """

    def __init__(self, machines: MachineTable, registry: Registry, statuses: WorkerStatuses) -> None:
        self._machines = machines
        self._registry = registry
        self._statuses = statuses
        self._sent: dict[str, int] = {}
        self._accepted: dict[str, int] = {}

    def plan(self, worker: Worker | None, machine: Machine | None) -> Step:
        """What a machine needs (:func:`plan_machine`), restarts that were just accepted apart."""
        return plan_machine(worker, machine, self._accepted.get(worker.metadata.uid, 0) if worker is not None else 0)

    def sent(self, step: Step, machine_ids: Iterable[str]) -> None:
        """A step is about to be asked for."""
        for machine_id in machine_ids if step is Step.RESTART else ():
            worker = self._worker(machine_id)
            self._sent[machine_id] = (worker.spec.restarts or 0) if worker is not None else 0

    def answered(self, step: Step, machine_id: str, *, accepted: bool) -> None:
        """The site has answered to a step."""
        if step is not Step.RESTART:
            return
        count, worker = self._sent.pop(machine_id, 0), self._worker(machine_id)
        if accepted and worker is not None:
            self._accepted[worker.metadata.uid] = count
            self._statuses.observe(worker.metadata.uid, restarts=count)

    def forget(self, uid: str) -> None:
        """A Worker is gone."""
        self._accepted.pop(uid, None)

    def _worker(self, machine_id: str) -> Worker | None:
        machine = self._machines.get(machine_id)
        return self._registry.worker(machine.owner.worker_uid) if machine is not None else None
