"""Starts, stops, suspends and restarts machines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from pyone import OneActionException, OneNoExistsException

from simyard_sites.base import (
    ConflictError,
    ErrorScope,
    InvalidSpecError,
    MachineNotFoundError,
    MachineState,
    Outcome,
    PowerAction,
    SiteError,
)
from simyard_sites.opennebula.client import MULTICALL, Oned, parts
from simyard_sites.opennebula.errors import refusal_of_change
from simyard_sites.opennebula.table import Table
from simyard_sites.opennebula.view import View
from simyard_sites.opennebula.wire import Answer, Call

_ACTIONS: Mapping[PowerAction, str] = {
    PowerAction.START: "resume",
    PowerAction.STOP: "poweroff",
    PowerAction.RESTART: "reboot",
    PowerAction.SUSPEND: "suspend",
}
_DONE: Mapping[PowerAction, tuple[MachineState, ...]] = {
    PowerAction.START: (MachineState.RUNNING, MachineState.BOOT, MachineState.PROLOG, MachineState.PENDING),
    PowerAction.STOP: (MachineState.STOPPED,),
    PowerAction.SUSPEND: (MachineState.SUSPENDED,),
    PowerAction.RESTART: (),
}
"""States in which there is nothing to do any more."""


async def act(oned: Oned, table: Table, view: View, ids: Sequence[int], action: PowerAction) -> AsyncIterator[Outcome]:
    """Ask for the action; what a machine's state forbids may be done already, else it is a conflict.

    Raises:
        SiteError: the call failed.
    """
    for asked in parts(ids, MULTICALL):
        await view.look_at_unknown(asked)
        for machine_id in asked:
            if not table.is_own(machine_id):
                yield Outcome(str(machine_id), error=_absent(machine_id))
        part = [machine_id for machine_id in asked if table.is_own(machine_id)]
        if not part:
            continue
        calls = [Call("one.vm.action", (_ACTIONS[action], machine_id)) for machine_id in part]
        answers = dict(zip(part, await oned.ask(calls, changes=True), strict=True))
        refused = [machine_id for machine_id, answer in answers.items() if isinstance(answer, OneActionException)]
        if refused:
            await view.look(refused)
        if action is not PowerAction.RESTART:
            table.expect_change(machine_id for machine_id in part if not isinstance(answers[machine_id], Exception))
        for machine_id, answer in answers.items():
            yield Outcome(str(machine_id), error=_error(answer, table, machine_id, action))


def _error(answer: Answer, table: Table, machine_id: int, action: PowerAction) -> SiteError | None:
    if not isinstance(answer, Exception):
        return None
    machine = table.get(machine_id)
    if isinstance(answer, OneNoExistsException) or (isinstance(answer, OneActionException) and machine is None):
        return _absent(machine_id)
    if isinstance(answer, OneActionException) and machine is not None:
        if machine.state in _DONE[action]:
            return None
        if machine.state is MachineState.SUSPENDED:
            return InvalidSpecError(
                f"OpenNebula does not {action.value} a suspended machine: start it first", scope=ErrorScope.ITEM
            )
        return ConflictError(str(answer))
    return refusal_of_change(answer, "MANAGE its VMs")


def _absent(machine_id: int) -> SiteError:
    return MachineNotFoundError(f"there is no machine {machine_id}")
