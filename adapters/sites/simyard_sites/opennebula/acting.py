# SPDX-License-Identifier: Apache-2.0
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
from simyard_sites.opennebula.client import MULTICALL, Oned, split
from simyard_sites.opennebula.errors import make_change_error
from simyard_sites.opennebula.table import Table
from simyard_sites.opennebula.view import View
from simyard_sites.opennebula.wire import Answer, RpcCall

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
"""The states in which an action is done already."""


async def act(oned: Oned, table: Table, view: View, ids: Sequence[int], action: PowerAction) -> AsyncIterator[Outcome]:
    """Apply a power action to machines and yield the outcomes.

    If OpenNebula refuses an action because of the state of the machine, the function reads the machine. The item
    succeeds if the action is done already; otherwise its outcome is a conflict.

    Raises:
        SiteError: The call failed as a whole.
    """
    for asked in split(ids, MULTICALL):
        await view.read_unknown(asked)
        for machine_id in asked:
            if not table.is_own(machine_id):
                yield Outcome(str(machine_id), error=_absent(machine_id))
        part = [machine_id for machine_id in asked if table.is_own(machine_id)]
        if not part:
            continue
        calls = [RpcCall("one.vm.action", (_ACTIONS[action], machine_id)) for machine_id in part]
        answers = dict(zip(part, await oned.ask(calls, changes=True), strict=True))
        refused = [machine_id for machine_id, answer in answers.items() if isinstance(answer, OneActionException)]
        if refused:
            await view.read(refused)
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
                f"OpenNebula cannot {action.value} a suspended machine: start it first", scope=ErrorScope.ITEM
            )
        return ConflictError(str(answer))
    return make_change_error(answer, "MANAGE its VMs")


def _absent(machine_id: int) -> SiteError:
    return MachineNotFoundError(f"the machine {machine_id} does not exist")
