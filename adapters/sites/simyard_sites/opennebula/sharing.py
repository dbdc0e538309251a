# SPDX-License-Identifier: Apache-2.0
"""Lets a group use machines of the provider's account, without access to the secrets in their CONTEXT.

The problem: a user with the right to USE a virtual machine may read its template, including its CONTEXT. OpenNebula
encrypts the attributes that ``VM_ENCRYPTED_ATTR`` in oned.conf names. If a secret is not encrypted, the group does not
get the right, and the probe reports it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from pyone import OneAuthorizationException

from simyard_sites.base import ErrorScope, InvalidSpecError, MachineRequest, SiteError
from simyard_sites.guest import build_context
from simyard_sites.opennebula.catalog import Catalog
from simyard_sites.opennebula.client import MULTICALL, Oned, split
from simyard_sites.opennebula.records import read_text
from simyard_sites.opennebula.requests import SECRETS
from simyard_sites.opennebula.settings import PATH, Settings
from simyard_sites.opennebula.wire import Answer, RpcCall

_KEEP = -1
_GROUP_USE = (_KEEP, _KEEP, _KEEP, 1, _KEEP, _KEEP, _KEEP, _KEEP, _KEEP)


class Sharing:
    """The object that gives ``userGroup`` the right to use each new machine.

    It repeats failed calls after the next poll.
    """

    def __init__(self, oned: Oned, catalog: Catalog, settings: Settings) -> None:
        self._oned = oned
        self._catalog = catalog
        self._group = settings.user_group
        self._waiting: set[int] = set()
        self._encrypted: set[str] = set()
        self._problem: InvalidSpecError | None = None

    def check(self) -> None:
        """Raise an error if the group gets no right because a secret is not encrypted.

        Raises:
            InvalidSpecError: OpenNebula would show the machines' secrets.
        """
        if self._problem is not None:
            raise self._problem

    async def share(self, made: Mapping[int, MachineRequest]) -> None:
        """Give the group the right to use new machines, if OpenNebula encrypts all their secrets.

        The method finds this out by reading the first machine with each secret.
        """
        if not self._group:
            return
        with contextlib.suppress(SiteError):
            for machine_id, request in made.items():
                sent = build_context(request.bootstrap, request.user_data, request.ssh_public_keys)
                secrets = {name: value for name, value in sent.items() if name in SECRETS}
                if secrets.keys() <= self._encrypted or await self._try(machine_id, secrets):
                    self._waiting.add(machine_id)
            await self.retry_pending()

    async def retry_pending(self) -> None:
        """Give the group the right to use the machines for which an earlier call failed."""
        for part in split(sorted(self._waiting), MULTICALL):
            with contextlib.suppress(SiteError):
                group = await self._catalog.group()
                answers = await self._ask(RpcCall("one.vm.chown", (machine_id, _KEEP, group)) for machine_id in part)
                given = [key for key, answer in zip(part, answers, strict=True) if not isinstance(answer, Exception)]
                await self._ask(RpcCall("one.vm.chmod", (machine_id, *_GROUP_USE)) for machine_id in given)
                self._waiting.difference_update(part)

    async def _ask(self, calls: Iterable[RpcCall]) -> list[Answer]:
        """Make calls; ignore machines that are gone, and record a missing permission."""
        asked = list(calls)
        answers = await self._oned.ask(asked, changes=True) if asked else []
        denied = [answer for answer in answers if isinstance(answer, OneAuthorizationException)]
        if denied:
            self._problem = InvalidSpecError(
                f"{PATH}.userGroup: {denied[0]} Make the account a member of the group", scope=ErrorScope.SITE
            )
        return answers

    async def _try(self, machine_id: int, secrets: Mapping[str, str]) -> bool:
        """Return True if none of these secrets can be read from a machine."""
        body = read_text(str(await self._oned.read(RpcCall("one.vm.info", (machine_id, False)), "USE its VMs")))
        shown = [name for name, value in secrets.items() if value in body]
        if not shown:
            self._encrypted.update(secrets)
            return True
        lines = " and ".join(f'VM_ENCRYPTED_ATTR = "CONTEXT/{name}"' for name in SECRETS)
        self._problem = InvalidSpecError(
            f"{PATH}.userGroup: the group could read the VMs' secrets ({', '.join(shown)}), so it gets no right; add "
            f"{lines} to oned.conf, restart oned, then remove userGroup and set it again",
            scope=ErrorScope.SITE,
        )
        return False
