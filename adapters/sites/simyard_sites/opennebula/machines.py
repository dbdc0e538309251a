"""Records of OpenNebula as machines."""

from __future__ import annotations

from collections.abc import Mapping

from simyard_sites.base import Machine, MachineState, Owner, Stage
from simyard_sites.opennebula.records import VmRecord
from simyard_sites.opennebula.states import meaning_of, name_of, reason_of

_STAGES = {
    MachineState.PENDING: Stage.PENDING,
    MachineState.PROLOG: Stage.PROLOG,
    MachineState.BOOT: Stage.BOOT,
    MachineState.RUNNING: Stage.RUNNING,
}


STARTING = (MachineState.PENDING, MachineState.PROLOG, MachineState.BOOT)


def machine_of(record: VmRecord, owner: Owner, before: Machine | None, now: float, *, seen_starting: bool) -> Machine:
    """The machine that a record shows.

    Short answers do not say when a machine entered its stages, but for the first one. So each is entered when it was
    seen: ``now``, by the clock of the site, unless it had it ``before``. A machine that was not ``seen_starting`` has
    the first one only. It keeps the name that it was made with, whatever somebody calls it later.
    """
    name = name_of(record.state, record.lcm_state)
    state = meaning_of(name)
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
        return reason_of(name), record.error or f"OpenNebula says {name}; the log of the VM says more"
    if state is MachineState.PENDING:
        if name == "HOLD":
            return "Hold", "it was submitted on hold (VM_SUBMIT_ON_HOLD in oned.conf?): somebody must release it"
        return ("Unschedulable", record.scheduler) if record.scheduler else ("", "")
    if name == "UNKNOWN":
        return "Unknown", "OpenNebula has lost sight of it: its host does not answer"
    return "", ""


def _entered(record: VmRecord, state: MachineState, before: Machine | None, now: float) -> Mapping[Stage, float]:
    entered = before.entered if before is not None else {Stage.PENDING: float(record.stime)}
    stage = _STAGES.get(state)
    if stage is None or stage in entered or list(Stage).index(stage) < max(map(list(Stage).index, entered)):
        return entered
    return {**entered, stage: max(now, *entered.values())}
