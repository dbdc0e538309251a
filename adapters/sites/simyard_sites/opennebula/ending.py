# SPDX-License-Identifier: Apache-2.0
"""Deletes machines in any state: at once if OpenNebula permits it, otherwise as soon as it permits it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from pyone import OneActionException, OneNoExistsException

from simyard_sites.base import ErrorScope, MachineState, Outcome, PermissionDeniedError, SiteError
from simyard_sites.opennebula.client import MULTICALL, Oned, split
from simyard_sites.opennebula.errors import make_change_error
from simyard_sites.opennebula.settings import PATH
from simyard_sites.opennebula.table import Table, is_ending
from simyard_sites.opennebula.view import View
from simyard_sites.opennebula.wire import Answer, OneLockedException, RpcCall

_RECOVER_DELETE = 3
_BUSY = (MachineState.PROLOG, MachineState.BOOT)
_MANAGE = "MANAGE its VMs"


class Ending:
    """The machines of a table that are being deleted.

    OpenNebula cannot terminate a machine in PROLOG or BOOT (0x0800). The object remembers such a machine, and
    :meth:`retry_pending` terminates it when a poll shows another state. :meth:`retry_pending` also deletes duplicates.
    """

    def __init__(self, oned: Oned, table: Table, view: View) -> None:
        self._oned = oned
        self._table = table
        self._view = view
        self._waiting: set[int] = set()
        self._accepted: set[int] = set()

    async def end(self, ids: Sequence[int]) -> AsyncIterator[Outcome]:
        """Delete machines; each outcome says that the deletion is accepted, or why it is not.

        The method does not touch machines that do not belong to this CloudSite.

        Raises:
            SiteError: The call failed as a whole.
        """
        for part in split(ids, MULTICALL):
            await self._view.read_unknown(part)
            own = [machine_id for machine_id in part if self._table.is_own(machine_id)]
            errors = await self._terminate(own) if own else {}
            self._table.expect_change(own)
            for machine_id in part:
                yield Outcome(str(machine_id), error=errors.get(machine_id))

    async def retry_pending(self) -> None:
        """Delete remembered machines and duplicates. After a failure, the next poll causes another attempt."""
        self._waiting = {each for each in self._waiting if not is_ending(self._table.get(each))}
        self._accepted &= self._table.duplicates
        due = [each for each in self._waiting if (known := self._table.get(each)) and known.state not in _BUSY]
        due += sorted(self._table.duplicates - self._accepted)
        for part in split(due, MULTICALL):
            with contextlib.suppress(SiteError):
                errors = await self._terminate(part)
                self._accepted |= self._table.duplicates.intersection(part) - errors.keys() - self._waiting

    async def _terminate(self, ids: Sequence[int]) -> dict[int, SiteError]:
        """Terminate machines; return the errors of the machines that cannot be terminated."""
        calls = [RpcCall("one.vm.action", ("terminate-hard", machine_id)) for machine_id in ids]
        answers = await self._oned.ask(calls, changes=True)
        refused = dict(zip(ids, answers, strict=True))
        errors = {key: error for key, each in refused.items() if (error := _error(each)) is not None}
        in_the_way = [key for key, each in refused.items() if isinstance(each, OneActionException | OneLockedException)]
        self._waiting.difference_update(set(ids).difference(in_the_way))
        if in_the_way:
            await self._view.read(in_the_way)
            errors |= await self._recover(in_the_way)
        return errors

    async def _recover(self, ids: Sequence[int]) -> dict[int, SiteError]:
        """Delete machines that OpenNebula does not terminate, by ``one.vm.recover``; return the remaining errors."""
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
                    f"{PATH}.credentialsSecretRef: {answer} The account needs the right to ADMIN its VMs: give it "
                    "umask 077 (oneuser umask), or remove `recover` from VM_ADMIN_OPERATIONS in oned.conf",
                    scope=ErrorScope.ITEM,
                )
            if error is not None:
                errors[machine_id] = error
        return errors

    async def _recover_all(self, ids: Sequence[int]) -> list[Answer]:
        calls = [RpcCall("one.vm.recover", (machine_id, _RECOVER_DELETE)) for machine_id in ids]
        return await self._oned.ask(calls, changes=True) if calls else []


def _error(answer: Answer) -> SiteError | None:
    """Return the error of a deletion; None for a temporary state and for a machine that does not exist."""
    if not isinstance(answer, Exception) or isinstance(
        answer, OneActionException | OneNoExistsException | OneLockedException
    ):
        return None
    return make_change_error(answer, _MANAGE)
