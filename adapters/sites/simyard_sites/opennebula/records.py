# SPDX-License-Identifier: Apache-2.0
"""Reads answers about virtual machines. For 10,000 machines, an answer has 20 MB of XML; lxml parses it in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from simyard_sites.base import Address, InternalError

_IPS = ("IP", "IP6", "IP6_GLOBAL")


@dataclass(frozen=True, slots=True)
class VmRecord:
    """The fields of a virtual machine in a short answer; ``stime`` is its submission, in seconds since the epoch."""

    id: int
    name: str
    state: int
    lcm_state: int
    stime: int = 0
    gid: int = -1
    labels: str = ""
    error: str = ""
    scheduler: str = ""
    addresses: tuple[Address, ...] = ()


def make_parser() -> etree.XMLParser:
    """Return an XML parser for answers of any size, which resolves no entities and has no network access."""
    return etree.XMLParser(huge_tree=True, resolve_entities=False, no_network=True, load_dtd=False, recover=False)


def read_pool(body: str) -> list[VmRecord]:
    """Return the machines of a VM_POOL.

    Raises:
        InternalError: The body is not a VM_POOL.
    """
    try:
        return [_record(vm) for vm in etree.fromstring(body, make_parser()).iterfind("VM")]
    except (etree.XMLSyntaxError, ValueError) as error:
        raise InternalError(f"OpenNebula's answer is not a pool of virtual machines: {error}") from error


def read_machine(body: str) -> VmRecord:
    """Return the machine of a VM.

    Raises:
        InternalError: The body is not a VM.
    """
    try:
        return _record(etree.fromstring(body, make_parser()))
    except (etree.XMLSyntaxError, ValueError) as error:
        raise InternalError(f"OpenNebula's answer is not a virtual machine: {error}") from error


def read_text(body: str) -> str:
    """Return all text of a VM, with XML's escapes resolved.

    Raises:
        InternalError: The body is not a VM.
    """
    try:
        return "".join(map(str, etree.fromstring(body, make_parser()).itertext()))
    except (etree.XMLSyntaxError, ValueError) as error:
        raise InternalError(f"OpenNebula's answer is not a virtual machine: {error}") from error


def _addresses(vm: etree._Element) -> Iterator[Address]:
    """Yield the addresses of the network cards, which contextualization names ``eth0``, ``eth1``, ... by their ids."""
    for card in vm.iterfind("TEMPLATE/NIC"):
        for name in _IPS:
            if ip := card.findtext(name):
                number = card.findtext("NIC_ID")
                yield Address(ip, f"eth{number}" if number else "", card.findtext("MAC") or "")


def _record(vm: etree._Element) -> VmRecord:
    text = vm.findtext
    user = vm.find("USER_TEMPLATE")
    own = {each.tag: each.text or "" for each in user} if user is not None else {}
    return VmRecord(
        id=int(text("ID", "")),
        name=text("NAME", ""),
        state=int(text("STATE", "")),
        lcm_state=int(text("LCM_STATE", "0")),
        stime=int(text("STIME", "0")),
        gid=int(text("GID", "-1")),
        labels=own.get("LABELS", ""),
        error=own.get("ERROR", ""),
        scheduler=own.get("SCHED_MESSAGE", ""),
        addresses=tuple(_addresses(vm)),
    )
