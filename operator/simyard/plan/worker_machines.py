# SPDX-License-Identifier: Apache-2.0
"""Plan of the machines of one Worker at a site.

This module alone decides whether the operator creates or deletes a machine. The rule is: one machine for each Worker,
and no machine without a Worker. The plan handles three uncertain cases first, because a wrong decision would delete a
running machine or create a second one:

- While some machines of the site are unknown, the plan is empty.
- A machine that the last list of the site did not contain is a suspect. The operator first asks the site for it.
- A machine whose Worker is not in the cache may be an orphan. The operator first asks the API server for the Worker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from simyard.api.worker import Worker
from simyard.plan.machine import POWER_ACTIONS, Step, plan_machine
from simyard_sites.base import Machine, MachineState

CONFIRM_SECONDS = 30.0
"""Time after an accepted deletion until the operator asks the site whether the machine is gone."""


@dataclass(frozen=True, slots=True)
class WorkerMachines:
    """Observed state of the machines of one Worker.

    Attributes:
        worker: The Worker; None if it is not in the cache.
        machines: Machines of the Worker at the site. The operator keeps the first one and deletes the others.
        complete: True if all machines of the site are known.
        suspects: Ids of machines that the last list of the site did not contain.
        may_be_orphan: True if the first machine may have no Worker, and the operator has not asked the API server yet.
        lost: True if the operator has already reported the Worker as lost.
        create_sent: True if a request for the Worker's machine is under way.
        restarts: Number of restarts that the site accepted, if the Worker's status does not show them yet.
        ended: True if the site has stopped or restarted the machine, and the Worker's status does not show it yet.
        stop_ends: True if a stop or restart deletes the machine at this site.
        deletion_seconds: Time since the site accepted the deletion of the first machine; None before that.
        confirm_seconds: Time after an accepted deletion until the operator asks the site whether the machine is gone.
    """

    worker: Worker | None
    machines: Sequence[Machine]
    complete: bool = True
    suspects: Collection[str] = ()
    may_be_orphan: bool = False
    lost: bool = False
    create_sent: bool = False
    restarts: int = 0
    ended: bool = False
    stop_ends: bool = False
    deletion_seconds: float | None = None
    confirm_seconds: float = CONFIRM_SECONDS


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """Decision about the machines of one Worker.

    Attributes:
        requests: Steps for the site, each with its key: the Worker's uid for CREATE, the id of the machine for all
            other steps.
        look_for_owner: True if the operator must ask the API server for the Worker before the next plan.
        lost: True if the operator must report the Worker as lost.
        rests: True if the operator must report a stopped machine, although the site has no machine for the Worker.
        deletion_began: True if the site already deletes the first machine; its deletion counts as accepted now.
        again_seconds: Seconds until the next plan; None: only a change causes the next plan.
    """

    requests: tuple[tuple[Step, str], ...] = ()
    look_for_owner: bool = False
    lost: bool = False
    rests: bool = False
    deletion_began: bool = False
    again_seconds: float | None = None


def plan_worker_machines(seen: WorkerMachines) -> MachinePlan:
    """Return the requests to the site for one Worker, and the reports about the Worker."""
    if not seen.complete:
        return MachinePlan()
    if doubtful := [machine.id for machine in seen.machines if machine.id in seen.suspects]:
        return MachinePlan(tuple((Step.LOOK, machine_id) for machine_id in doubtful))
    if seen.machines and seen.may_be_orphan:
        return MachinePlan(look_for_owner=True)
    surplus = tuple((Step.DELETE, machine.id) for machine in seen.machines[1:])
    plan = _plan_first(seen, seen.machines[0] if seen.machines else None)
    return replace(plan, requests=(*surplus, *plan.requests))


def _plan_first(seen: WorkerMachines, machine: Machine | None) -> MachinePlan:
    worker = seen.worker
    step = plan_machine(worker, machine, seen.restarts, stop_ends=seen.stop_ends, ended=seen.ended)
    if machine is not None:
        if step is Step.DELETE:
            return _plan_deletion(machine, seen.deletion_seconds, seen.confirm_seconds)
        return MachinePlan(((step, machine.id),)) if step in POWER_ACTIONS else MachinePlan()
    if worker is None or step is Step.NOTHING:
        return MachinePlan()
    if step is Step.REST:
        return MachinePlan(rests=True)
    if seen.lost:
        return MachinePlan()
    if step is Step.CREATE:
        return MachinePlan(((Step.CREATE, worker.metadata.uid),))
    if worker.status.machine_id:  # the site may have the machine, although no event of the site reported it
        return MachinePlan(((Step.LOOK, worker.status.machine_id),))
    return MachinePlan(lost=not seen.create_sent)


def _plan_deletion(machine: Machine, accepted_seconds: float | None, confirm_seconds: float) -> MachinePlan:
    """Return the request to delete a machine; after a long wait, ask the site whether the machine still exists."""
    began = accepted_seconds is None and machine.state is MachineState.TERMINATING
    seconds = 0.0 if began else accepted_seconds
    if seconds is None:
        return MachinePlan(((Step.DELETE, machine.id),))
    if seconds < confirm_seconds:
        return MachinePlan(deletion_began=began, again_seconds=confirm_seconds - seconds)
    return MachinePlan(((Step.LOOK, machine.id),), deletion_began=began)
