# SPDX-License-Identifier: Apache-2.0
"""Defines a simulated VM: its record, and its two XML bodies, a short one (in pools) and a complete one."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from xml.sax.saxutils import escape

from simyard_simulators.oned.objects import Owned
from simyard_simulators.oned.states import Lcm, State, state_name
from simyard_simulators.oned.template import Template, Vector, element, text

_SHORT_USER = ("LABELS", "ERROR", "SCHED_MESSAGE")
_SHORT_SCHEDULER = (
    "SCHED_RANK",
    "SCHED_DS_RANK",
    "SCHED_REQUIREMENTS",
    "SCHED_DS_REQUIREMENTS",
    "USER_PRIORITY",
)
_SHORT_DISK = ("DATASTORE", "DATASTORE_ID", "DISK_ID", "IMAGE", "IMAGE_ID", "SIZE", "TARGET", "TYPE")
_SHORT_NIC = ("IP", "MAC", "NAME", "NETWORK", "NETWORK_ID", "NIC_ID", "SECURITY_GROUPS")


class Act(IntEnum):
    """``ACTION`` of a history record: the reason of its end."""

    NONE = 0
    UNDEPLOY = 5
    UNDEPLOY_HARD = 6
    STOP = 9
    SUSPEND = 10
    RESUME = 11
    DELETE = 13
    DELETE_RECREATE = 14
    POWEROFF = 19
    POWEROFF_HARD = 20
    TERMINATE = 27
    TERMINATE_HARD = 28


@dataclass(slots=True)
class History:
    """A stay on a host; times in seconds since the epoch, 0 for phases that were not reached."""

    sequence: int
    host: int
    hostname: str
    started: int
    ended: int = 0
    prolog_started: int = 0
    prolog_ended: int = 0
    running_started: int = 0
    running_ended: int = 0
    epilog_started: int = 0
    epilog_ended: int = 0
    action: Act = Act.NONE
    uid: int = -1
    gid: int = -1

    def short_xml(self, oid: int) -> str:
        """Return the part that pools contain."""
        return (
            f"<HISTORY><OID>{oid}</OID><SEQ>{self.sequence}</SEQ><HOSTNAME>{text(self.hostname)}</HOSTNAME>"
            f"<HID>{self.host}</HID><CID>0</CID><DS_ID>0</DS_ID><VM_MAD>kvm</VM_MAD><TM_MAD>qcow2</TM_MAD>"
            f"<ACTION>{self.action}</ACTION></HISTORY>"
        )

    def to_xml(self, oid: int) -> str:
        """Return the complete record."""
        return (
            f"<HISTORY><OID>{oid}</OID><SEQ>{self.sequence}</SEQ><HOSTNAME>{text(self.hostname)}</HOSTNAME>"
            f"<HID>{self.host}</HID><CID>0</CID><STIME>{self.started}</STIME><ETIME>{self.ended}</ETIME>"
            f"<VM_MAD>kvm</VM_MAD><TM_MAD>qcow2</TM_MAD><DS_ID>0</DS_ID><PSTIME>{self.prolog_started}</PSTIME>"
            f"<PETIME>{self.prolog_ended}</PETIME><RSTIME>{self.running_started}</RSTIME>"
            f"<RETIME>{self.running_ended}</RETIME><ESTIME>{self.epilog_started}</ESTIME>"
            f"<EETIME>{self.epilog_ended}</EETIME><ACTION>{self.action}</ACTION><UID>{self.uid}</UID>"
            f"<GID>{self.gid}</GID><REQUEST_ID>-1</REQUEST_ID></HISTORY>"
        )


@dataclass(slots=True)
class Vm(Owned):
    """A virtual machine.

    ``generation`` counts its changes of state: plans of an earlier generation are void. ``rendered`` is the cached
    short body; every change of a field in it must clear it.
    """

    template: Template
    user_template: Template
    created: int
    template_id: int = -1
    state: State = State.PENDING
    lcm: Lcm = Lcm.LCM_INIT
    previous: tuple[State, Lcm] = (State.PENDING, Lcm.LCM_INIT)
    ended: int = 0
    deploy_id: str = ""
    last_poll: int = 0
    rescheduled: bool = False
    cores: float = 0.0
    memory_mib: float = 0.0
    host: int | None = None
    generation: int = 0
    running_quota: bool = False
    histories: list[History] = field(default_factory=list)
    rendered: bytes | None = None

    @property
    def state_name(self) -> str:
        """The name of the state in error texts."""
        return state_name(self.state, self.lcm)

    @property
    def history(self) -> History | None:
        """The last history record, or None."""
        return self.histories[-1] if self.histories else None

    def short(self) -> bytes:
        """Return the short body, escaped for an XML-RPC string; it is cached until the VM changes."""
        if self.rendered is None:
            self.rendered = escape(self.short_xml()).encode()
        return self.rendered

    def whole(self, histories: int) -> bytes:
        """Return the complete body, escaped; with the last history record (1) or all (2)."""
        return escape(self.to_xml(histories)).encode()

    def short_xml(self) -> str:
        """Return the body in pools: no permissions, no CONTEXT, no custom keys (``VirtualMachine::to_xml_short``)."""
        disks = "".join(element("DISK", _part(disk, _SHORT_DISK)) for disk in self.template.vectors("DISK"))
        nics = "".join(element("NIC", _part(nic, _SHORT_NIC)) for nic in self.template.vectors("NIC"))
        graphics = "".join(element("GRAPHICS", vector) for vector in self.template.vectors("GRAPHICS"))
        history = self.history.short_xml(self.oid) if self.history else ""
        return (
            f"<VM>{self.owner_xml()}<LAST_POLL>{self.last_poll}</LAST_POLL><STATE>{self.state}</STATE>"
            f"<LCM_STATE>{self.lcm}</LCM_STATE><RESCHED>{int(self.rescheduled)}</RESCHED><STIME>{self.created}</STIME>"
            f"<ETIME>{self.ended}</ETIME><DEPLOY_ID>{text(self.deploy_id)}</DEPLOY_ID><TEMPLATE>"
            f"{element('CPU', self.template.get('CPU'))}{element('MEMORY', self.template.get('MEMORY'))}"
            f"{disks}{nics}{graphics}</TEMPLATE><MONITORING/>{self._short_user_template()}"
            f"{_wrapped('HISTORY_RECORDS', history)}</VM>"
        )

    def to_xml(self, histories: int) -> str:
        """Return the body of ``one.vm.info`` and of extended pools (``VirtualMachine::to_xml_extended``)."""
        chosen = self.histories if histories == 2 else self.histories[-1:]
        records = "".join(history.to_xml(self.oid) for history in chosen)
        return (
            f"<VM>{self.owner_xml()}{self.permissions.to_xml()}<LAST_POLL>{self.last_poll}</LAST_POLL>"
            f"<STATE>{self.state}</STATE><LCM_STATE>{self.lcm}</LCM_STATE><PREV_STATE>{self.previous[0]}</PREV_STATE>"
            f"<PREV_LCM_STATE>{self.previous[1]}</PREV_LCM_STATE><RESCHED>{int(self.rescheduled)}</RESCHED>"
            f"<STIME>{self.created}</STIME><ETIME>{self.ended}</ETIME><DEPLOY_ID>{text(self.deploy_id)}</DEPLOY_ID>"
            f"<MONITORING/>{self.template.to_xml('TEMPLATE')}{self.user_template.to_xml('USER_TEMPLATE')}"
            f"{_wrapped('HISTORY_RECORDS', records)}</VM>"
        )

    def _short_user_template(self) -> str:
        if not self.user_template:
            return "<USER_TEMPLATE/>"
        inner = "".join(
            element(name, self.user_template.get(name)) for name in _SHORT_USER if self.user_template.get(name)
        )
        names = set(self.user_template.names())
        inner += "".join(element(name, self.user_template.get(name)) for name in _SHORT_SCHEDULER if name in names)
        for name in ("PUBLIC_CLOUD", "SCHED_ACTION"):
            inner += "".join(element(name, vector) for vector in self.user_template.vectors(name))
        return f"<USER_TEMPLATE>{inner}</USER_TEMPLATE>"


def _part(vector: Vector, names: tuple[str, ...]) -> Vector:
    return {name: vector[name] for name in names if name in vector}


def _wrapped(tag: str, inner: str) -> str:
    return f"<{tag}>{inner}</{tag}>" if inner else f"<{tag}/>"
