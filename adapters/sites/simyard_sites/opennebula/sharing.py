"""Lets a group use machines that the provider's account owns, without the secrets that they were started with.

Who may USE a virtual machine may read its template, and so its CONTEXT. OpenNebula encrypts the attributes that
``VM_ENCRYPTED_ATTR`` in oned.conf names; where it does not, the group is not given the right, and the probe says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from pyone import OneAuthorizationException

from simyard_sites.base import ErrorScope, InvalidSpecError, MachineRequest, SiteError
from simyard_sites.guest import context
from simyard_sites.opennebula.catalog import Catalog
from simyard_sites.opennebula.client import MULTICALL, Oned, parts
from simyard_sites.opennebula.records import read_text
from simyard_sites.opennebula.requests import SECRETS
from simyard_sites.opennebula.settings import PATH, Settings
from simyard_sites.opennebula.wire import Answer, Call

_KEEP = -1
_GROUP_USE = (_KEEP, _KEEP, _KEEP, 1, _KEEP, _KEEP, _KEEP, _KEEP, _KEEP)


class Sharing:
    """Gives each new machine to ``userGroup``; what was not answered is asked again at the next look."""

    def __init__(self, oned: Oned, catalog: Catalog, settings: Settings) -> None:
        self._oned = oned
        self._catalog = catalog
        self._group = settings.user_group
        self._waiting: set[int] = set()
        self._encrypted: set[str] = set()
        self._problem: InvalidSpecError | None = None

    def check(self) -> None:
        """Say why machines are not shared.

        Raises:
            InvalidSpecError: OpenNebula would show their secrets.
        """
        if self._problem is not None:
            raise self._problem

    async def share(self, made: Mapping[int, MachineRequest]) -> None:
        """Share machines that were just made, whose secrets are all known to be encrypted.

        The first machine that has a secret shows whether it is.
        """
        if not self._group:
            return
        with contextlib.suppress(SiteError):
            for machine_id, request in made.items():
                sent = context(request.bootstrap, request.user_data, request.ssh_public_keys)
                secrets = {name: value for name, value in sent.items() if name in SECRETS}
                if secrets.keys() <= self._encrypted or await self._try(machine_id, secrets):
                    self._waiting.add(machine_id)
            await self.carry_on()

    async def carry_on(self) -> None:
        """Share what waits for it."""
        for part in parts(sorted(self._waiting), MULTICALL):
            with contextlib.suppress(SiteError):
                group = await self._catalog.group()
                answers = await self._ask(Call("one.vm.chown", (machine_id, _KEEP, group)) for machine_id in part)
                given = [key for key, answer in zip(part, answers, strict=True) if not isinstance(answer, Exception)]
                await self._ask(Call("one.vm.chmod", (machine_id, *_GROUP_USE)) for machine_id in given)
                self._waiting.difference_update(part)

    async def _ask(self, calls: Iterable[Call]) -> list[Answer]:
        """A machine that is gone meanwhile needs no right; what is not permitted must be said."""
        asked = list(calls)
        answers = await self._oned.ask(asked, changes=True) if asked else []
        denied = [answer for answer in answers if isinstance(answer, OneAuthorizationException)]
        if denied:
            self._problem = InvalidSpecError(
                f"{PATH}.userGroup: {denied[0]} The account must be a member of the group", scope=ErrorScope.SITE
            )
        return answers

    async def _try(self, machine_id: int, secrets: Mapping[str, str]) -> bool:
        """Whether nothing of them can be read."""
        body = read_text(str(await self._oned.read(Call("one.vm.info", (machine_id, False)), "USE its VMs")))
        shown = [name for name, value in secrets.items() if value in body]
        if not shown:
            self._encrypted.update(secrets)
            return True
        lines = " and ".join(f'VM_ENCRYPTED_ATTR = "CONTEXT/{name}"' for name in SECRETS)
        self._problem = InvalidSpecError(
            f"{PATH}.userGroup: who may use a VM could read its secrets ({', '.join(shown)}); add {lines} to "
            "oned.conf, restart oned, then set userGroup anew; until then the group gets no right",
            scope=ErrorScope.SITE,
        )
        return False
