# SPDX-License-Identifier: Apache-2.0
"""Remembers which restarts and stops of machines were requested, and which of them the site accepted."""

from __future__ import annotations

from collections.abc import Sequence

from simyard.api.worker import Worker
from simyard.fleet.registry import Registry
from simyard.fleet.sites.machines import MachineTable
from simyard.fleet.worker_statuses import WorkerStatuses
from simyard.plan.machine import Step, make_machine_name
from simyard_sites.base import Machine, MachineState, Owner


class Restarts:
    """The restarts and stops of one site's machines.

    A restart counts from the moment at which the site accepts it; then it is written into the Worker's status. If the
    operator is killed between these two steps, the next operator restarts the machine again. So a restart happens at
    least once.

    Attributes:
        stop_ends: whether the site deletes machines that are stopped or restarted, so that they must be created again.
    """

    def __init__(self, machines: MachineTable, registry: Registry, statuses: WorkerStatuses, stop_ends: bool) -> None:
        self.stop_ends = stop_ends
        self._machines = machines
        self._registry = registry
        self._statuses = statuses
        self._sent: dict[str, tuple[str, int]] = {}
        self._accepted: dict[str, int] = {}
        self._ended: set[str] = set()

    def count_accepted(self, uid: str) -> int:
        """Return the number of restarts that the site accepted for a Worker since this process started."""
        return self._accepted.get(uid, 0)

    def has_ended(self, uid: str) -> bool:
        """Return whether a request of this process deleted the Worker's machine by a stop or restart."""
        return uid in self._ended

    def ended_on_request(self, worker: Worker) -> bool:
        """Return whether the Worker's machine is gone because it was stopped or restarted."""
        stopped = worker.spec.power_state == "Stopped" or worker.status.machine_state == MachineState.STOPPED
        return self.stop_ends and (stopped or worker.metadata.uid in self._ended)

    def report_rest(self, worker: Worker) -> None:
        """Report the machine of a Worker as stopped, although the site has deleted it."""
        metadata = worker.metadata
        owner = Owner(metadata.namespace, metadata.name, metadata.uid)
        name = make_machine_name(metadata.name, metadata.uid)
        machine = Machine(worker.status.machine_id, name, owner, MachineState.STOPPED)
        self._statuses.machine_changed(metadata.uid, machine)

    def record_creation(self, uid: str) -> None:
        """Note that a Worker has a machine again."""
        self._ended.discard(uid)

    def record_request(self, step: Step, machine_ids: Sequence[str]) -> None:
        """Note that a step is about to be requested."""
        if step in (Step.STOP, Step.RESTART) and self.stop_ends:
            machines = [
                machine for machine_id in machine_ids if (machine := self._machines.get(machine_id)) is not None
            ]
            self._ended.update(machine.owner.worker_uid for machine in machines)
        for machine_id in machine_ids if step is Step.RESTART else ():
            worker = self._worker(machine_id)
            if worker is not None:
                self._sent[machine_id] = worker.metadata.uid, worker.spec.restarts or 0

    def record_answer(self, step: Step, machine_id: str, *, accepted: bool) -> None:
        """Note the site's answer to a step, and report a restart that it accepted."""
        if step is not Step.RESTART:
            return
        _, count = self._sent.pop(machine_id, ("", 0))
        worker = self._worker(machine_id)
        if accepted and worker is not None:
            self._accepted[worker.metadata.uid] = count
            self._statuses.observe(worker.metadata.uid, restarts=count)

    def forget(self, uid: str) -> None:
        """Forget a deleted Worker, and the requests for it that were never answered."""
        self._sent = {machine_id: sent for machine_id, sent in self._sent.items() if sent[0] != uid}
        self._accepted.pop(uid, None)
        self._ended.discard(uid)

    def _worker(self, machine_id: str) -> Worker | None:
        machine = self._machines.get(machine_id)
        return self._registry.find_worker(machine.owner.worker_uid) if machine is not None else None
