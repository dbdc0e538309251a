"""What the states of an OpenNebula virtual machine mean here (OpenNebula 5.12 to 7.x, "Virtual Machine States")."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from pyone import LCM_STATE, VM_STATE

from simyard_sites.base import MachineState

_LATER = {69: "BACKUP", 70: "BACKUP_POWEROFF", 71: "RESTORE"}
"""LCM states of 6.6 and later, which pyone does not name."""


class VmState(enum.IntEnum):
    """The states that decisions are made by; all have names (:func:`name_of`)."""

    INIT = 0
    PENDING = 1
    HOLD = 2
    ACTIVE = 3
    STOPPED = 4
    SUSPENDED = 5
    DONE = 6
    POWEROFF = 8
    UNDEPLOYED = 9
    CLONING = 10
    CLONING_FAILURE = 11


SWEPT = (
    VmState.INIT,
    VmState.CLONING,
    VmState.PENDING,
    VmState.HOLD,
    VmState.CLONING_FAILURE,
    VmState.STOPPED,
    VmState.SUSPENDED,
    VmState.POWEROFF,
    VmState.UNDEPLOYED,
    VmState.ACTIVE,
)
"""All states of machines that are there. Asked in this order, a machine that starts or resumes meanwhile is found."""

_MEANINGS: Mapping[MachineState, str] = {
    MachineState.PENDING: "INIT PENDING HOLD CLONING LCM_INIT CLEANUP_RESUBMIT",
    MachineState.PROLOG: "PROLOG PROLOG_RESUME PROLOG_UNDEPLOY PROLOG_MIGRATE PROLOG_MIGRATE_UNKNOWN",
    MachineState.BOOT: "BOOT BOOT_UNKNOWN BOOT_POWEROFF BOOT_SUSPENDED BOOT_STOPPED BOOT_UNDEPLOY BOOT_MIGRATE",
    MachineState.RUNNING: (
        "RUNNING MIGRATE SAVE_MIGRATE UNKNOWN HOTPLUG HOTPLUG_SNAPSHOT HOTPLUG_NIC HOTPLUG_SAVEAS HOTPLUG_RESIZE"
        " DISK_SNAPSHOT DISK_SNAPSHOT_REVERT DISK_SNAPSHOT_DELETE DISK_RESIZE BACKUP"
    ),
    MachineState.STOPPED: (
        "POWEROFF UNDEPLOYED SHUTDOWN_POWEROFF SHUTDOWN_UNDEPLOY EPILOG_UNDEPLOY HOTPLUG_SAVEAS_POWEROFF"
        " HOTPLUG_SAVEAS_UNDEPLOYED HOTPLUG_PROLOG_POWEROFF HOTPLUG_EPILOG_POWEROFF HOTPLUG_NIC_POWEROFF"
        " PROLOG_MIGRATE_POWEROFF DISK_SNAPSHOT_POWEROFF DISK_SNAPSHOT_REVERT_POWEROFF DISK_SNAPSHOT_DELETE_POWEROFF"
        " DISK_RESIZE_POWEROFF DISK_RESIZE_UNDEPLOYED BACKUP_POWEROFF RESTORE"
    ),
    MachineState.SUSPENDED: (
        "STOPPED SUSPENDED SAVE_STOP SAVE_SUSPEND EPILOG_STOP HOTPLUG_SAVEAS_SUSPENDED HOTPLUG_SAVEAS_STOPPED"
        " PROLOG_MIGRATE_SUSPEND DISK_SNAPSHOT_SUSPENDED DISK_SNAPSHOT_REVERT_SUSPENDED DISK_SNAPSHOT_DELETE_SUSPENDED"
    ),
    MachineState.TERMINATING: "EPILOG SHUTDOWN CANCEL CLEANUP_DELETE DONE",
}
"""A state on the way to rest counts as that rest: the machine does no work any more. OpenNebula's STOPPED keeps the
memory, so it is suspended here; POWEROFF and UNDEPLOYED do not."""

_SETTLED = {"HOLD", "RUNNING", "UNKNOWN", "POWEROFF", "UNDEPLOYED", "STOPPED", "SUSPENDED", "DONE"}
_STATES = {name: state for state, names in _MEANINGS.items() for name in names.split()}


def name_of(state: int, lcm_state: int) -> str:
    """The name of a state: of the LCM state where the machine is ACTIVE. ``STATE_<n>`` where we know none."""
    if state == VmState.ACTIVE:
        known = LCM_STATE._value2member_map_.get(lcm_state)
        return str(known.name) if known is not None else _LATER.get(lcm_state, f"LCM_STATE_{lcm_state}")
    known = VM_STATE._value2member_map_.get(state)
    return str(known.name) if known is not None else f"STATE_{state}"


def meaning_of(name: str) -> MachineState:
    """What a machine in that state does. One that we do not know counts as running: its adapter tells if not."""
    if name in ("FAILED", "FAILURE") or name.endswith("_FAILURE"):
        return MachineState.FAILED
    return _STATES.get(name, MachineState.RUNNING)


def is_settled(name: str) -> bool:
    """Whether a machine stays in that state until somebody does something."""
    return name in _SETTLED or meaning_of(name) is MachineState.FAILED


def reason_of(name: str) -> str:
    """The state as one CamelCase word: BOOT_FAILURE is ``BootFailure``."""
    return "".join(word.capitalize() for word in name.split("_"))
