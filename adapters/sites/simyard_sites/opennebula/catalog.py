# SPDX-License-Identifier: Apache-2.0
"""Looks up the objects that the account may use, by name: its template, networks, group and quota."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lxml import etree
from pyone import bindings

from simyard_sites.base import ErrorScope, InternalError, InvalidSpecError
from simyard_sites.opennebula.client import Oned
from simyard_sites.opennebula.records import make_parser
from simyard_sites.opennebula.settings import PATH, Network, Settings
from simyard_sites.opennebula.wire import RpcCall

_ALL = (-2, -1, -1)
_ME = -1
_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class VmTemplate:
    """The template of the machines. A vector attribute in a request replaces the whole vector of the template."""

    id: int
    context: Mapping[str, str]
    disks: Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Account:
    """The account of the site. ``machines`` is its quota of virtual machines; None without a quota."""

    id: int
    name: str
    machines: int | None


@dataclass(frozen=True, slots=True)
class _Entry:
    id: int
    name: str
    owner_id: int
    owner: str


class Catalog:
    """The catalog of one account. It caches the template until :meth:`forget` or :meth:`refresh` is called."""

    def __init__(self, oned: Oned, settings: Settings) -> None:
        self._oned = oned
        self._settings = settings
        self._template: VmTemplate | None = None
        self._group: int | None = None

    async def refresh(self) -> None:
        """Read the template and the group again, because both may have changed."""
        self._template = await self._read_template()
        if self._settings.user_group:
            self._group = await self._read_group()

    def forget(self) -> None:
        """Drop the cached objects, because they are outdated."""
        self._template = self._group = None

    async def get_template(self) -> VmTemplate:
        """Return the template.

        Raises:
            InvalidSpecError: The account may use no such template.
        """
        if self._template is None:
            self._template = await self._read_template()
        return self._template

    async def account(self) -> Account:
        """Return the account with its quota."""
        body = await self._oned.read(RpcCall("one.user.info", (_ME,)), "see itself (one.user.info)")
        user = _read(body)
        return Account(int(user.findtext("ID", "")), user.findtext("NAME", ""), _quota(user))

    async def group(self) -> int:
        """Return the id of the group whose members may use the machines."""
        if self._group is None:
            self._group = await self._read_group()
        return self._group

    async def check_networks(self, account: Account) -> None:
        """Check that the networks exist."""
        if self._settings.networks:
            entries = list(_entries(await self._oned.read(RpcCall("one.vnpool.info", _ALL), "USE its networks")))
            for network in self._settings.networks:
                _pick(entries, network, "networks", "network", account)

    async def _read_group(self) -> int:
        body = await self._oned.read(RpcCall("one.grouppool.info"), "see groups")
        return _pick(list(_entries(body)), Network(self._settings.user_group), "userGroup", "group").id

    async def _read_template(self) -> VmTemplate:
        wanted = self._settings.template
        if wanted.isdecimal():
            template_id = int(wanted)
        else:
            body = await self._oned.read(RpcCall("one.templatepool.info", _ALL), "USE its template")
            name = Network(wanted, self._settings.template_owner)
            template_id = _pick(list(_entries(body)), name, "template", "template").id
        [answer] = await self._oned.ask([RpcCall("one.template.info", (template_id, False))], changes=False)
        if isinstance(answer, Exception):
            raise _invalid("template", f"{answer} Give the account the right to USE it") from answer
        found = bindings.parseString(str(answer).encode()).TEMPLATE
        context, disks = found.get("CONTEXT") or {}, found.get("DISK") or []
        return VmTemplate(
            template_id,
            {key: value for key, value in context.items() if isinstance(value, str)},
            [dict(disk) for disk in (disks if isinstance(disks, list) else [disks])],
        )


def _invalid(field: str, problem: str) -> InvalidSpecError:
    return InvalidSpecError(f"{PATH}.{field}: {problem}", scope=ErrorScope.SITE)


def _read(body: object) -> etree._Element:
    try:
        return etree.fromstring(str(body), make_parser())
    except (etree.XMLSyntaxError, ValueError) as error:
        raise InternalError(f"cannot read OpenNebula's answer: {error}") from error


def _entries(body: object) -> Iterator[_Entry]:
    for element in _read(body):
        text = element.findtext
        yield _Entry(int(text("ID", "-1")), text("NAME", ""), int(text("UID", "-1")), text("UNAME", ""))


def _pick(entries: Sequence[_Entry], wanted: Network, field: str, kind: str, me: Account | None = None) -> _Entry:
    """Return the entry with this name or id: that of the given owner, else our own, else the only one."""
    if wanted.name.isdecimal():
        found = [each for each in entries if each.id == int(wanted.name)]
    else:
        found = [each for each in entries if each.name == wanted.name and wanted.owner in ("", each.owner)]
    own = [each for each in found if me is not None and each.owner_id == me.id]
    if len(found) > 1 and len(own) == 1:
        return own[0]
    if len(found) == 1:
        return found[0]
    owned = f" of {wanted.owner}" if wanted.owner else ""
    if not found:
        raise _invalid(
            field,
            f"the account may USE no {kind} {wanted.name!r}{owned}; check the name, its case and the rights",
        )
    owners = ", ".join(sorted({each.owner for each in found}))
    raise _invalid(field, f"there are {len(found)} {kind}s {wanted.name!r}, of {owners}: name the owner as well")


def _quota(user: etree._Element) -> int | None:
    """Return the number of machines that the account may have: by its own quota, or the default one."""
    for path in ("VM_QUOTA/VM/VMS", "DEFAULT_USER_QUOTAS/VM_QUOTA/VM/VMS"):
        limit = user.findtext(path)
        if limit is not None and limit.strip() and int(limit) != _DEFAULT:
            return int(limit) if int(limit) > 0 else None
    return None
