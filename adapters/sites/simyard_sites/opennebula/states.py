# SPDX-License-Identifier: Apache-2.0
"""Maps the states of OpenNebula's virtual machines (5.12 to 7.x, "Virtual Machine States") to states of machines."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from pyone import LCM_STATE, VM_STATE

from simyard_sites.base import MachineState

_LATER = {69: "BACKUP", 70: "BACKUP_POWEROFF", 71: "RESTORE"}
"""LCM states of 6.6 and later that pyone does not name."""


class VmState(enum.IntEnum):
    """The states that the code uses. :func:`name_of` returns the names of all states."""

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
"""All states of existing machines.

With this order of queries, a machine that starts or resumes meanwhile is found too.
"""

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
"""The machine state of each OpenNebula state.

A state that leads to STOPPED or SUSPENDED counts as this state, because the machine does no work any more. In
OpenNebula's state STOPPED, the machine keeps its memory, so it is SUSPENDED here; in POWEROFF and UNDEPLOYED it does
not.
"""

_SETTLED = {"HOLD", "RUNNING", "UNKNOWN", "POWEROFF", "UNDEPLOYED", "STOPPED", "SUSPENDED", "DONE"}
_STATES = {name: state for state, names in _MEANINGS.items() for name in names.split()}


def name_of(state: int, lcm_state: int) -> str:
    """Return the name of a state: of the LCM state if the machine is ACTIVE; ``STATE_<n>`` if it is unknown."""
    if state == VmState.ACTIVE:
        known = LCM_STATE._value2member_map_.get(lcm_state)
        return str(known.name) if known is not None else _LATER.get(lcm_state, f"LCM_STATE_{lcm_state}")
    known = VM_STATE._value2member_map_.get(state)
    return str(known.name) if known is not None else f"STATE_{state}"


def get_machine_state(name: str) -> MachineState:
    """Return the machine state for the name of an OpenNebula state. An unknown state counts as running."""
    if name in ("FAILED", "FAILURE") or name.endswith("_FAILURE"):
        return MachineState.FAILED
    return _STATES.get(name, MachineState.RUNNING)


def is_settled(name: str) -> bool:
    """Return True if a machine stays in this state until a person or a call changes it."""
    return name in _SETTLED or get_machine_state(name) is MachineState.FAILED


def format_reason(name: str) -> str:
    """Return the state as one CamelCase word: BOOT_FAILURE is ``BootFailure``."""
    return "".join(word.capitalize() for word in name.split("_"))
