"""Ends machines, whatever they do: at once where OpenNebula lets it, else as soon as it does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from pyone import OneActionException, OneNoExistsException

from simyard_sites.base import ErrorScope, MachineState, Outcome, PermissionDeniedError, SiteError
from simyard_sites.opennebula.client import MULTICALL, Oned, parts
from simyard_sites.opennebula.errors import refusal_of_change
from simyard_sites.opennebula.settings import PATH
from simyard_sites.opennebula.table import Table, is_ending
from simyard_sites.opennebula.view import View
from simyard_sites.opennebula.wire import Answer, Call, OneLockedException

_RECOVER_DELETE = 3
_BUSY = (MachineState.PROLOG, MachineState.BOOT)
_MANAGE = "MANAGE its VMs"


class Ending:
    """Ends machines of a table.

    A machine that is being placed, or booted, cannot be terminated (0x0800). It is remembered, and ended when a look
    shows that it is in another state; :meth:`carry_on` does so, and ends duplicates.
    """

    def __init__(self, oned: Oned, table: Table, view: View) -> None:
        self._oned = oned
        self._table = table
        self._view = view
        self._waiting: set[int] = set()
        self._accepted: set[int] = set()

    async def end(self, ids: Sequence[int]) -> AsyncIterator[Outcome]:
        """End machines; each is accepted, or the outcome says why not. What is not this CloudSite's is left alone.

        Raises:
            SiteError: the call failed.
        """
        for part in parts(ids, MULTICALL):
            await self._view.look_at_unknown(part)
            own = [machine_id for machine_id in part if self._table.is_own(machine_id)]
            errors = await self._terminate(own) if own else {}
            self._table.expect_change(own)
            for machine_id in part:
                yield Outcome(str(machine_id), error=errors.get(machine_id))

    async def carry_on(self) -> None:
        """End what waits for its state to change, and duplicates. What fails is tried again at the next look."""
        self._waiting = {each for each in self._waiting if not is_ending(self._table.get(each))}
        self._accepted &= self._table.duplicates
        due = [each for each in self._waiting if (known := self._table.get(each)) and known.state not in _BUSY]
        due += sorted(self._table.duplicates - self._accepted)
        for part in parts(due, MULTICALL):
            with contextlib.suppress(SiteError):
                errors = await self._terminate(part)
                self._accepted |= self._table.duplicates.intersection(part) - errors.keys() - self._waiting

    async def _terminate(self, ids: Sequence[int]) -> dict[int, SiteError]:
        """Why not, of those that cannot be ended."""
        calls = [Call("one.vm.action", ("terminate-hard", machine_id)) for machine_id in ids]
        answers = await self._oned.ask(calls, changes=True)
        refused = dict(zip(ids, answers, strict=True))
        errors = {key: error for key, each in refused.items() if (error := _error(each)) is not None}
        in_the_way = [key for key, each in refused.items() if isinstance(each, OneActionException | OneLockedException)]
        self._waiting.difference_update(set(ids).difference(in_the_way))
        if in_the_way:
            await self._view.look(in_the_way)
            errors |= await self._recover(in_the_way)
        return errors

    async def _recover(self, ids: Sequence[int]) -> dict[int, SiteError]:
        """What is to be done about machines that cannot be terminated as they are."""
        failed, errors = [], {}
        for machine_id in ids:
            machine = self._table.get(machine_id)
            if machine is not None and machine.state is MachineState.FAILED:
                failed.append(machine_id)
            elif machine_id in self._table.duplicates or not is_ending(machine):
                self._waiting.add(machine_id)
        for machine_id, answer in zip(failed, await self._recover_all(failed), strict=True):
            self._waiting.discard(machine_id)
            error = _error(answer)
            if isinstance(error, PermissionDeniedError):
                error = PermissionDeniedError(
                    f"{PATH}.credentialsSecretRef: {answer} The account must be permitted to ADMIN its VMs: give it "
                    "umask 077 (oneuser umask), or take `recover` out of VM_ADMIN_OPERATIONS in oned.conf",
                    scope=ErrorScope.ITEM,
                )
            if error is not None:
                errors[machine_id] = error
        return errors

    async def _recover_all(self, ids: Sequence[int]) -> list[Answer]:
        calls = [Call("one.vm.recover", (machine_id, _RECOVER_DELETE)) for machine_id in ids]
        return await self._oned.ask(calls, changes=True) if calls else []


def _error(answer: Answer) -> SiteError | None:
    """What keeps a machine from being ended; its state does not for long, and one that is not there has ended."""
    if not isinstance(answer, Exception) or isinstance(
        answer, OneActionException | OneNoExistsException | OneLockedException
    ):
        return None
    return refusal_of_change(answer, _MANAGE)
