# SPDX-License-Identifier: Apache-2.0
"""The states of OpenNebula's virtual machines (documentation: "Virtual Machines States Reference", 5.12 to 7.x)."""

from __future__ import annotations

import enum


class State(enum.IntEnum):
    """``STATE`` of a VM."""

    INIT = 0
    PENDING = 1
    HOLD = 2
    ACTIVE = 3
    STOPPED = 4
    SUSPENDED = 5
    DONE = 6
    FAILED = 7
    POWEROFF = 8
    UNDEPLOYED = 9
    CLONING = 10
    CLONING_FAILURE = 11


class Lcm(enum.IntEnum):
    """``LCM_STATE`` of a VM: its activity while it is ACTIVE. 69 and 70 are of 6.4, 71 of 6.10."""

    LCM_INIT = 0
    PROLOG = 1
    BOOT = 2
    RUNNING = 3
    MIGRATE = 4
    SAVE_STOP = 5
    SAVE_SUSPEND = 6
    SAVE_MIGRATE = 7
    PROLOG_MIGRATE = 8
    PROLOG_RESUME = 9
    EPILOG_STOP = 10
    EPILOG = 11
    SHUTDOWN = 12
    CLEANUP_RESUBMIT = 15
    UNKNOWN = 16
    HOTPLUG = 17
    SHUTDOWN_POWEROFF = 18
    BOOT_UNKNOWN = 19
    BOOT_POWEROFF = 20
    BOOT_SUSPENDED = 21
    BOOT_STOPPED = 22
    CLEANUP_DELETE = 23
    HOTPLUG_SNAPSHOT = 24
    HOTPLUG_NIC = 25
    HOTPLUG_SAVEAS = 26
    HOTPLUG_SAVEAS_POWEROFF = 27
    HOTPLUG_SAVEAS_SUSPENDED = 28
    SHUTDOWN_UNDEPLOY = 29
    EPILOG_UNDEPLOY = 30
    PROLOG_UNDEPLOY = 31
    BOOT_UNDEPLOY = 32
    HOTPLUG_PROLOG_POWEROFF = 33
    HOTPLUG_EPILOG_POWEROFF = 34
    BOOT_MIGRATE = 35
    BOOT_FAILURE = 36
    BOOT_MIGRATE_FAILURE = 37
    PROLOG_MIGRATE_FAILURE = 38
    PROLOG_FAILURE = 39
    EPILOG_FAILURE = 40
    EPILOG_STOP_FAILURE = 41
    EPILOG_UNDEPLOY_FAILURE = 42
    PROLOG_MIGRATE_POWEROFF = 43
    PROLOG_MIGRATE_POWEROFF_FAILURE = 44
    PROLOG_MIGRATE_SUSPEND = 45
    PROLOG_MIGRATE_SUSPEND_FAILURE = 46
    BOOT_UNDEPLOY_FAILURE = 47
    BOOT_STOPPED_FAILURE = 48
    PROLOG_RESUME_FAILURE = 49
    PROLOG_UNDEPLOY_FAILURE = 50
    DISK_SNAPSHOT_POWEROFF = 51
    DISK_SNAPSHOT_REVERT_POWEROFF = 52
    DISK_SNAPSHOT_DELETE_POWEROFF = 53
    DISK_SNAPSHOT_SUSPENDED = 54
    DISK_SNAPSHOT_DELETE_SUSPENDED = 56
    DISK_SNAPSHOT = 57
    DISK_SNAPSHOT_DELETE = 59
    PROLOG_MIGRATE_UNKNOWN = 60
    PROLOG_MIGRATE_UNKNOWN_FAILURE = 61
    DISK_RESIZE = 62
    DISK_RESIZE_POWEROFF = 63
    DISK_RESIZE_UNDEPLOYED = 64
    HOTPLUG_NIC_POWEROFF = 65
    HOTPLUG_RESIZE = 66
    HOTPLUG_SAVEAS_UNDEPLOYED = 67
    HOTPLUG_SAVEAS_STOPPED = 68
    BACKUP = 69
    BACKUP_POWEROFF = 70
    RESTORE = 71


class Code(enum.IntEnum):
    """The error codes of an answer (documentation: "XML-RPC API", "Error Codes"; from ALLOCATE on: the source)."""

    SUCCESS = 0x0000
    AUTHENTICATION = 0x0100
    AUTHORIZATION = 0x0200
    NO_EXISTS = 0x0400
    ACTION = 0x0800
    XML_RPC_API = 0x1000
    INTERNAL = 0x2000
    ALLOCATE = 0x4000


class RefusedError(Exception):
    """A call that is answered with an error.

    Attributes:
        code: The code in the answer.
        message: The text after ``[method]``, as oned composes it.
        object_id: The fourth element of the answer; -1 if there is no object.
    """

    def __init__(self, code: Code, message: str, object_id: int = -1) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.object_id = object_id


def not_authorized(uid: int, message: str) -> RefusedError:
    """Return the refusal for missing rights or an exceeded quota: both have this code and this form."""
    return RefusedError(Code.AUTHORIZATION, f"User [{uid}] : {message}.")


def absent(kind: str, oid: int) -> RefusedError:
    """Return the refusal for an unknown id; kinds have their long names here (``virtual machine``)."""
    return RefusedError(Code.NO_EXISTS, f"Error getting {kind} [{oid}].", oid)


FAILURES = frozenset(lcm for lcm in Lcm if lcm.name.endswith("_FAILURE"))
"""The states from which ``terminate`` deletes (source: DispatchManager of 6.10)."""


def state_name(state: State, lcm: Lcm) -> str:
    """Return the name of a state in error texts: the LCM's while ACTIVE."""
    return lcm.name if state is State.ACTIVE else state.name
