"""What a simulated oned is like: its costs, scheduler, latencies, failures and world."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Costs:
    """What calls cost the server, in milliseconds.

    Measured on a real oned 7.4 with SQLite: ``state=-1`` over 50 live VMs takes 6 ms with 600 finished ones and 57 ms
    with 25,600; ``state=3`` and ``infoset`` of the 50 take 4 ms.

    Others reported of oned 7.4 with dummy drivers that 100 VMs are made at 39 a second by calls of pyone, one after the
    other, at 51 by multicalls one after the other, and at 43 by four multicalls at once. The client's own time is taken
    off these (3 ms a call of pyone, 1 ms a VM of a site).

    The rest is assumed: rows of extended bodies, actions as writes, and that a write takes ``contended_write`` more for
    each other request that wants to write. Writes exclude each other; reads do not.
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
    """How PENDING VMs get to hosts. 0 means no limit, and no waiting.

    ``interval_seconds`` after the first VM began to wait, at most ``vms_per_window`` are placed, the lowest ids first;
    already when ``window_length`` wait, if the last window closed an interval ago. ``vms_per_host_and_window`` is
    mm_sched's MAX_HOST; ``actions_per_host`` and ``actions_per_cluster`` bound the deployments under way (7.x).
    A VM that fits nowhere gets its SCHED_MESSAGE and is tried again after ``retry_seconds``.
    """

    interval_seconds: float = 0.0
    window_length: int = 0
    vms_per_window: int = 0
    vms_per_host_and_window: int = 0
    actions_per_host: int = 0
    actions_per_cluster: int = 0
    retry_seconds: float = 60.0


STOCK = Scheduler(10.0, 7, 7, 0, 1, 30, 60.0)
"""7.x as installed: a window of 10 s or 7 VMs, one action per host and 30 per cluster."""

MM_SCHED = Scheduler(15.0, 0, 30, 1, 0, 0, 15.0)
"""5.12 to 6.10 as installed: SCHED_INTERVAL 15, MAX_DISPATCH 30, MAX_HOST 1."""

WIDE = Scheduler(retry_seconds=5.0)
"""No limits but the hosts' capacity."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long the drivers take, in seconds before the time scale; each is varied by ``jitter`` (a share)."""

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
    """What can fail: the drivers' steps. A failed shutdown leaves the VM RUNNING, as a guest that ignores it does."""

    PROLOG = "prolog"
    BOOT = "boot"
    SHUTDOWN = "shutdown"
    EPILOG = "epilog"
    CLONE = "clone"


@dataclass(frozen=True, slots=True)
class Failure:
    """A share of the VMs fails in a step: those of a template (its id), or whose name contains ``name``, or all."""

    step: Step
    share: float = 1.0
    template: int | None = None
    name: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """A simulated oned.

    Attributes:
        version: what ``one.system.version`` says.
        time_scale: real seconds per second of the scheduler and the drivers (0.01: a hundred times as fast).
        cost_scale: real seconds per second of the costs (0: calls take no longer than they take).
        hosts, cores_per_host, memory_mib_per_host: the capacity.
        guests_report: guests report through OneGate, so READY=YES appears after ``latencies.ready``.
        full_text_search: the database can search (MySQL); SQLite cannot, and refuses.
        foreign_vms_refused: ``one.vmpool.infoset`` refuses a VM that the caller may not USE, as 7.4 does; else it
            leaves the VM out.
        max_connections, backlog: MAX_CONN and MAX_CONN_BACKLOG of oned.conf.
        idle_seconds: TIMEOUT of oned.conf: a connection that says nothing is closed.
        max_request_bytes: MESSAGE_SIZE of oned.conf.
        answer_seconds: how long each answer waits before it is sent, in real seconds: a daemon that is slow.
        seed: of what is random.
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
