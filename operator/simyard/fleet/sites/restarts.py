# SPDX-License-Identifier: Apache-2.0
"""Records the requested restarts and stops of machines, and the restarts that the site accepted."""

from __future__ import annotations

from collections.abc import Sequence

from simyard.api.worker import Worker
from simyard.fleet.registry import Registry
from simyard.fleet.sites.machines import MachineTable
from simyard.fleet.worker_statuses import WorkerStatuses
from simyard.plan.machine import Step, make_machine_name
from simyard_sites.base import Machine, MachineState, Owner


class Restarts:
    """Record of the restarts and stops of one site's machines.

    After the site has accepted a restart, the operator writes it into the Worker's status. If the operator is killed
    between these two steps, the next operator restarts the machine again. So a restart happens at least once.

    Attributes:
        stop_ends: True if a stop or restart deletes the machine at this site, so that it must be created again.
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
        """Return ``spec.restarts`` of a Worker at the last restart that the site accepted from this process, or 0."""
        return self._accepted.get(uid, 0)

    def has_ended(self, uid: str) -> bool:
        """Return whether this process has deleted the Worker's machine by a request to stop or restart it."""
        return uid in self._ended

    def ended_on_request(self, worker: Worker) -> bool:
        """Return whether the Worker's machine is gone because a user stopped or restarted it."""
        stopped = worker.spec.power_state == "Stopped" or worker.status.machine_state == MachineState.STOPPED
        return self.stop_ends and (stopped or worker.metadata.uid in self._ended)

    def report_rest(self, worker: Worker) -> None:
        """Report a stopped machine for a Worker, although the site has deleted the machine."""
        metadata = worker.metadata
        owner = Owner(metadata.namespace, metadata.name, metadata.uid)
        name = make_machine_name(metadata.name, metadata.uid)
        machine = Machine(worker.status.machine_id, name, owner, MachineState.STOPPED)
        self._statuses.machine_changed(metadata.uid, machine)

    def record_creation(self, uid: str) -> None:
        """Record that a Worker has a new machine."""
        self._ended.discard(uid)

    def record_request(self, step: Step, machine_ids: Sequence[str]) -> None:
        """Record a step before the request for it is sent."""
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
        """Record the site's answer to a step. Report an accepted restart in the Worker's status."""
        if step is not Step.RESTART:
            return
        _, count = self._sent.pop(machine_id, ("", 0))
        worker = self._worker(machine_id)
        if accepted and worker is not None:
            self._accepted[worker.metadata.uid] = count
            self._statuses.observe(worker.metadata.uid, restarts=count)

    def forget(self, uid: str) -> None:
        """Forget a deleted Worker, and its requests that got no answer."""
        self._sent = {machine_id: sent for machine_id, sent in self._sent.items() if sent[0] != uid}
        self._accepted.pop(uid, None)
        self._ended.discard(uid)

    def _worker(self, machine_id: str) -> Worker | None:
        machine = self._machines.get(machine_id)
        return self._registry.find_worker(machine.owner.worker_uid) if machine is not None else None
