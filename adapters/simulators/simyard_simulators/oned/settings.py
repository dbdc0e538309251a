# SPDX-License-Identifier: Apache-2.0
"""Defines the settings of a simulated oned: its costs, scheduler, latencies, failures and capacity."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of calls for the server, in milliseconds.

    Measured on a real oned 7.4 with SQLite: ``state=-1`` over 50 live VMs takes 6 ms with 600 finished VMs and 57 ms
    with 25,600; ``state=3`` and ``infoset`` of the 50 take 4 ms.

    Another team measured the creation of 100 VMs by an oned 7.4 with dummy drivers: 39 per second by calls of pyone one
    after the other, 51 by multicalls one after the other, and 43 by four parallel multicalls. The costs do not include
    the time of the client (3 ms per call of pyone, 1 ms per VM of a site).

    Not measured but assumed: the cost of a row of an extended body, the cost of an action, and ``contended_write``, by
    which a write takes longer for each other request that waits to write. Only one write runs at a time; reads do not
    wait.
    """

    request: float = 3.0
    write_request: float = 1.0
    write: float = 18.7
    contended_write: float = 1.5
    scan: float = 0.74
    scanned_row: float = 0.00204
    row: float = 0.02
    extended_row: float = 0.06


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The scheduler of PENDING VMs. 0 means no limit or no wait.

    ``interval_seconds`` after the first VM began to wait, at most ``vms_per_window`` are placed, the lowest ids first.
    The window closes earlier if ``window_length`` VMs wait and the last window closed at least an interval ago.
    ``vms_per_host_and_window`` is mm_sched's MAX_HOST; ``actions_per_host`` and ``actions_per_cluster`` limit the
    parallel deployments (7.x). A VM without a suitable host gets its SCHED_MESSAGE and is tried again after
    ``retry_seconds``.
    """

    interval_seconds: float = 0.0
    window_length: int = 0
    vms_per_window: int = 0
    vms_per_host_and_window: int = 0
    actions_per_host: int = 0
    actions_per_cluster: int = 0
    retry_seconds: float = 60.0


STOCK = Scheduler(10.0, 7, 7, 0, 1, 30, 60.0)
"""The default of 7.x: a window of 10 s or 7 VMs, one action per host and 30 per cluster."""

MM_SCHED = Scheduler(15.0, 0, 30, 1, 0, 0, 15.0)
"""The default of 5.12 to 6.10: SCHED_INTERVAL 15, MAX_DISPATCH 30, MAX_HOST 1."""

WIDE = Scheduler(retry_seconds=5.0)
"""The capacity of the hosts is the only limit."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """The durations of the drivers, in seconds before the time scale, each varied by ``jitter`` (a share)."""

    prolog: float = 2.0
    boot: float = 3.0
    ready: float = 10.0
    shutdown: float = 4.0
    cancel: float = 1.0
    epilog: float = 1.0
    save: float = 3.0
    restore: float = 3.0
    cleanup: float = 1.0
    clone: float = 5.0
    jitter: float = 0.0


class Step(enum.StrEnum):
    """A step of the drivers that can fail.

    After a failed shutdown, the VM is RUNNING, as if the guest had ignored it.
    """

    PROLOG = "prolog"
    BOOT = "boot"
    SHUTDOWN = "shutdown"
    EPILOG = "epilog"
    CLONE = "clone"


@dataclass(frozen=True, slots=True)
class Failure:
    """A share of VMs that fail in a step: of all VMs, of those of a template, or of those whose names have ``name``."""

    step: Step
    share: float = 1.0
    template: int | None = None
    name: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a simulated oned.

    Attributes:
        version: The answer of ``one.system.version``.
        time_scale: Real seconds per second of the scheduler and the drivers (0.01: a hundred times as fast).
        cost_scale: Real seconds per second of the costs (0: a call takes only the time of the simulator).
        hosts, cores_per_host, memory_mib_per_host: The capacity.
        guests_report: Guests report through OneGate, so READY=YES appears after ``latencies.ready``.
        full_text_search: The database supports searches (MySQL); SQLite does not, and refuses.
        foreign_vms_refused: ``one.vmpool.infoset`` refuses a VM that the caller may not USE, as 7.4 does; otherwise it
            omits the VM.
        max_connections, backlog: MAX_CONN and MAX_CONN_BACKLOG of oned.conf.
        idle_seconds: TIMEOUT of oned.conf: a silent connection is closed.
        max_request_bytes: MESSAGE_SIZE of oned.conf.
        answer_seconds: The delay of each answer in real seconds, for a slow daemon.
        seed: The seed of the random numbers.
    """

    version: str = "7.0.0"
    costs: Costs = field(default_factory=Costs)
    scheduler: Scheduler = STOCK
    latencies: Latencies = field(default_factory=Latencies)
    failures: tuple[Failure, ...] = ()
    time_scale: float = 1.0
    cost_scale: float = 1.0
    hosts: int = 10
    cores_per_host: int = 64
    memory_mib_per_host: int = 262_144
    guests_report: bool = True
    full_text_search: bool = False
    foreign_vms_refused: bool = True
    max_connections: int = 15
    backlog: int = 15
    idle_seconds: float = 15.0
    max_request_bytes: int = 1_073_741_824
    answer_seconds: float = 0.0
    seed: int = 0
