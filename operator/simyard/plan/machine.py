"""What one machine needs: from its Worker and from what its site says."""

from __future__ import annotations

import enum

from simyard.api.worker import Worker
from simyard_sites.base import Machine, MachineState, PowerAction

_UID_DIGITS = 8


class Step(enum.Enum):
    """What to do about a machine. LOOK asks its site whether it is there; :func:`plan_machine` does not.

    REST: the worker is stopped, and has no machine meanwhile.
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


POWER = {
    Step.START: PowerAction.START,
    Step.STOP: PowerAction.STOP,
    Step.SUSPEND: PowerAction.SUSPEND,
    Step.RESTART: PowerAction.RESTART,
}


def machine_name(worker: str, uid: str) -> str:
    """The name of a worker's machine: unique for all time, and a host name (63 characters at most)."""
    return f"{worker}-{uid[:_UID_DIGITS]}"


def plan_machine(
    worker: Worker | None, machine: Machine | None, restarts: int = 0, *, stop_ends: bool = False, ended: bool = False
) -> Step:
    """What to do, when the site's table is known to be complete.

    ``worker`` is None when the Worker of the machine is known to be gone. A machine that its site does not have any
    more is never made anew under the same Worker: the Worker is replaced, so that each uid means one machine. But where
    stopping a machine ends it (``stop_ends``), it is made anew after a stop or restart.
    ``restarts``: how many its site has accepted, where the Worker's status does not say so yet.
    ``ended``: it was stopped or restarted, where the Worker's status does not say so yet.
    """
    if worker is None or worker.metadata.deletion_timestamp is not None:
        return Step.DELETE if machine is not None else Step.NOTHING
    if machine is None:
        if stop_ends and worker.spec.power_state == "Stopped":
            return Step.REST
        ended = stop_ends and (ended or worker.status.machine_state == MachineState.STOPPED)
        had_one = bool(worker.status.machine_id) or worker.status.stages.registered is not None
        return Step.LOST if had_one and not ended else Step.CREATE
    step = _power(worker.spec.power_state, machine.state)
    done = max(restarts, worker.status.restarts or 0)
    if step is Step.NOTHING and machine.state is MachineState.RUNNING and (worker.spec.restarts or 0) > done:
        return Step.RESTART
    return step


def _power(wanted: str, state: MachineState) -> Step:
    if wanted == "Running" and state in (MachineState.STOPPED, MachineState.SUSPENDED):
        return Step.START
    if wanted == "Stopped" and state is MachineState.SUSPENDED:
        return Step.STOP
    if state is MachineState.RUNNING:
        return {"Stopped": Step.STOP, "Suspended": Step.SUSPEND}.get(wanted, Step.NOTHING)
    return Step.NOTHING
