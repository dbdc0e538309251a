# SPDX-License-Identifier: Apache-2.0
"""Turns OpenNebula's records into machines."""

from __future__ import annotations

from collections.abc import Mapping

from simyard_sites.base import Machine, MachineState, Owner, Stage
from simyard_sites.opennebula.records import VmRecord
from simyard_sites.opennebula.states import format_reason, get_machine_state, name_of

_STAGES = {
    MachineState.PENDING: Stage.PENDING,
    MachineState.PROLOG: Stage.PROLOG,
    MachineState.BOOT: Stage.BOOT,
    MachineState.RUNNING: Stage.RUNNING,
}


STARTING = (MachineState.PENDING, MachineState.PROLOG, MachineState.BOOT)


def read_machine(record: VmRecord, owner: Owner, before: Machine | None, now: float, *, seen_starting: bool) -> Machine:
    """Return the machine of a record.

    A short answer contains only the time of the first stage. The times of the other stages are those in ``before``, or
    ``now`` (by the clock of the site) if this answer is the first that shows the stage. If the site has not
    ``seen_starting`` the machine, only the first stage has a time. The machine keeps its original name, even if a user
    renames the VM in OpenNebula.
    """
    name = name_of(record.state, record.lcm_state)
    state = get_machine_state(name)
    reason, message = _explained(state, name, record)
    return Machine(
        id=str(record.id),
        name=record.name if before is None else before.name,
        owner=owner,
        state=state,
        entered=_entered(record, state, before, now) if seen_starting else {Stage.PENDING: float(record.stime)},
        reason=reason,
        message=message,
        addresses=record.addresses,
    )


def _explained(state: MachineState, name: str, record: VmRecord) -> tuple[str, str]:
    if state is MachineState.FAILED:
        return format_reason(name), record.error or f"OpenNebula reports the state {name}; look at the log of the VM"
    if state is MachineState.PENDING:
        if name == "HOLD":
            return "Hold", "the VM is on hold (see VM_SUBMIT_ON_HOLD in oned.conf): release it in OpenNebula"
        return ("Unschedulable", record.scheduler) if record.scheduler else ("", "")
    if name == "UNKNOWN":
        return "Unknown", "OpenNebula cannot see the VM: its host does not answer"
    return "", ""


def _entered(record: VmRecord, state: MachineState, before: Machine | None, now: float) -> Mapping[Stage, float]:
    entered = before.entered if before is not None else {Stage.PENDING: float(record.stime)}
    stage = _STAGES.get(state)
    if stage is None or stage in entered or list(Stage).index(stage) < max(map(list(Stage).index, entered)):
        return entered
    return {**entered, stage: max(now, *entered.values())}
