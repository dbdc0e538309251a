"""Restarts and stops of machines: which were asked for, and which their site has accepted."""

from __future__ import annotations

from collections.abc import Sequence

from simyard.api.worker import Worker
from simyard.fleet.machines import MachineTable
from simyard.fleet.registry import Registry
from simyard.fleet.workers import WorkerStatuses
from simyard.plan.machine import Step, machine_name, plan_machine
from simyard_sites.base import Machine, MachineState, Owner


class Restarts:
    """Those of one site's machines. ``stop_ends``: both end a machine there, and it is made anew.

    What was accepted counts from the moment of the answer, and goes into the Worker's status. An operator that ends
    between the two has the machine restarted once more: at least once is what a restart promises.
    """

    def __init__(self, machines: MachineTable, registry: Registry, statuses: WorkerStatuses, stop_ends: bool) -> None:
        self._machines = machines
        self._registry = registry
        self._statuses = statuses
        self._sent: dict[str, tuple[str, int]] = {}
        self._accepted: dict[str, int] = {}
        self._stop_ends = stop_ends
        self._ended: set[str] = set()

    def plan(self, worker: Worker | None, machine: Machine | None) -> Step:
        """What a machine needs (:func:`plan_machine`), restarts that were just accepted apart."""
        uid = worker.metadata.uid if worker is not None else ""
        accepted, ended = self._accepted.get(uid, 0), uid in self._ended
        return plan_machine(worker, machine, accepted, stop_ends=self._stop_ends, ended=ended)

    def ended(self, worker: Worker) -> bool:
        """Whether its machine went because it was stopped or restarted."""
        stopped = worker.spec.power_state == "Stopped" or worker.status.machine_state == MachineState.STOPPED
        return self._stop_ends and (stopped or worker.metadata.uid in self._ended)

    def rest(self, worker: Worker) -> None:
        """The Worker is stopped, and has no machine."""
        metadata = worker.metadata
        owner = Owner(metadata.namespace, metadata.name, metadata.uid)
        name = machine_name(metadata.name, metadata.uid)
        machine = Machine(worker.status.machine_id, name, owner, MachineState.STOPPED)
        self._statuses.machine_changed(metadata.uid, machine)

    def created(self, uid: str) -> None:
        """A Worker has a machine."""
        self._ended.discard(uid)

    def sent(self, step: Step, machine_ids: Sequence[str]) -> None:
        """A step is about to be asked for."""
        if step in (Step.STOP, Step.RESTART) and self._stop_ends:
            machines = [
                machine for machine_id in machine_ids if (machine := self._machines.get(machine_id)) is not None
            ]
            self._ended.update(machine.owner.worker_uid for machine in machines)
        for machine_id in machine_ids if step is Step.RESTART else ():
            worker = self._worker(machine_id)
            if worker is not None:
                self._sent[machine_id] = worker.metadata.uid, worker.spec.restarts or 0

    def answered(self, step: Step, machine_id: str, *, accepted: bool) -> None:
        """The site has answered to a step."""
        if step is not Step.RESTART:
            return
        _, count = self._sent.pop(machine_id, ("", 0))
        worker = self._worker(machine_id)
        if accepted and worker is not None:
            self._accepted[worker.metadata.uid] = count
            self._statuses.observe(worker.metadata.uid, restarts=count)

    def forget(self, uid: str) -> None:
        """A Worker is gone, and with it whatever was asked for and never answered."""
        self._sent = {machine_id: sent for machine_id, sent in self._sent.items() if sent[0] != uid}
        self._accepted.pop(uid, None)
        self._ended.discard(uid)

    def _worker(self, machine_id: str) -> Worker | None:
        machine = self._machines.get(machine_id)
        return self._registry.worker(machine.owner.worker_uid) if machine is not None else None
