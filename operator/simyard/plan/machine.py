# SPDX-License-Identifier: Apache-2.0
"""Decision about the next step for one machine, from its Worker and its state at the site."""

from __future__ import annotations

import enum

from simyard.api.worker import Worker
from simyard.plan.lost_workers import is_machine_lost
from simyard_sites.base import Machine, MachineState, PowerAction

_UID_DIGITS = 8


class Step(enum.Enum):
    """Step for a machine.

    LOOK asks the site whether the machine exists; :func:`plan_machine` never returns it. REST means that the worker is
    stopped at a site that deletes stopped machines, so there is nothing to do for it.
    """

    NOTHING = enum.auto()
    CREATE = enum.auto()
    DELETE = enum.auto()
    LOST = enum.auto()
    REST = enum.auto()
    START = enum.auto()
    STOP = enum.auto()
    SUSPEND = enum.auto()
    RESTART = enum.auto()
    LOOK = enum.auto()


POWER_ACTIONS = {
    Step.START: PowerAction.START,
    Step.STOP: PowerAction.STOP,
    Step.SUSPEND: PowerAction.SUSPEND,
    Step.RESTART: PowerAction.RESTART,
}


def make_machine_name(worker: str, uid: str) -> str:
    """Return the name of a worker's machine; it contains digits of the uid, so that no later machine has the same name.

    The name is a valid host name of at most 63 characters.
    """
    return f"{worker}-{uid[:_UID_DIGITS]}"


def plan_machine(
    worker: Worker | None, machine: Machine | None, restarts: int = 0, *, stop_ends: bool = False, ended: bool = False
) -> Step:
    """Return the next step for a machine. The caller must know all machines of the site.

    Each Worker has one machine in its life. If the site does not have the machine any more, the Worker is therefore
    replaced. The exception is a site where a stop deletes the machine: there, the same Worker gets a new machine.

    Args:
        worker: Worker of the machine; None if the API server has no such Worker any more.
        machine: Machine at the site; None if there is none.
        restarts: Number of restarts that the site has accepted, if the Worker's status does not show it yet, else 0.
        stop_ends: True if a stop or restart deletes the machine at this site, so that a new machine is necessary.
        ended: True if the site has stopped or restarted the machine, and the Worker's status does not show this yet.
    """
    if worker is None or worker.metadata.deletion_timestamp is not None:
        return Step.DELETE if machine is not None else Step.NOTHING
    if machine is None:
        if stop_ends and worker.spec.power_state == "Stopped":
            return Step.REST
        ended = stop_ends and (ended or worker.status.machine_state == MachineState.STOPPED)
        had_one = bool(worker.status.machine_id) or worker.status.stages.registered is not None
        return Step.LOST if had_one and is_machine_lost(worker, ended_on_request=ended) else Step.CREATE
    step = _plan_power(worker.spec.power_state, machine.state)
    done = max(restarts, worker.status.restarts or 0)
    if step is Step.NOTHING and machine.state is MachineState.RUNNING and (worker.spec.restarts or 0) > done:
        return Step.RESTART
    return step


def _plan_power(wanted: str, state: MachineState) -> Step:
    if wanted == "Running" and state in (MachineState.STOPPED, MachineState.SUSPENDED):
        return Step.START
    if wanted == "Stopped" and state is MachineState.SUSPENDED:
        return Step.STOP
    if state is MachineState.RUNNING:
        return {"Stopped": Step.STOP, "Suspended": Step.SUSPEND}.get(wanted, Step.NOTHING)
    return Step.NOTHING
