# SPDX-License-Identifier: Apache-2.0
"""Measure one start: the pool goes from 0 to N workers and back."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Protocol

from simyard.api import names
from simyard.api.base import Json
from simyard.api.worker import Worker
from simyard.api.worker_pool import PoolStart, WorkerPool
from simyard_bench import machine, writes
from simyard_bench.results import QUANTILES, STAGES, Idle, Run, StageTimes, Writes
from simyard_bench.workload import Load
from simyard_bench.world import World
from simyard_dev.errors import SetupError
from simyard_dev.progress import say, step
from simyard_sites.emulated.bound import bound

QUIET_SECONDS = 4.0
"""The time without writes after which the operator counts as quiet.

It delays writes that are not urgent by up to 2 s.
"""
QUIETING_SECONDS = 600.0
BASE_SECONDS = 180.0
PER_WORKER_SECONDS = 0.1
UNBOUNDED_SECONDS = 3600.0
GONE_POLL_SECONDS = 0.1
_OWN_CHANGE = Counter({(names.WORKER_POOLS.plural, "patch"): 1})
"""The write with which the benchmark itself sets the number of workers."""
_REPOSITORY = Path(__file__).resolve().parents[2]


class Profiling(Protocol):
    """A profiler of the operator that runs during a start."""

    def __call__(self, pid: int) -> contextlib.AbstractContextManager[None]:
        """Profile the process while the block runs."""


@dataclass(frozen=True)
class Yardsticks:
    """The yardsticks of a run; None where one was not measured."""

    limit_s: float | None = None
    limit_concurrency: int | None = None
    peer_s: float | None = None


@dataclass(frozen=True)
class Started:
    """The times of a start, as the requester and the platform saw it, and its costs."""

    t_m: float
    pool_start: PoolStart
    workers: list[Worker]
    example: Json
    cpu: dict[str, float]
    machine_cpu: float
    rss_mib: float
    served: writes.Counts
    told: writes.Counts
    load_average: float


@dataclass(frozen=True)
class Ended:
    """The seconds until the pool and the site were empty, and the writes and CPU seconds of the operator."""

    pool: float
    site: float
    writes: Writes
    operator_cpu: float


def measure(
    world: World, load: Load, idle_seconds: float, profiling: Profiling, yardsticks: Callable[[Json], Yardsticks]
) -> Run:
    """Start the pool, measure it idle, scale it to 0, and measure ``yardsticks`` with a copy of one of its Workers.

    Raises:
        SetupError: a phase did not end in time.
    """
    deadline = BASE_SECONDS + PER_WORKER_SECONDS * load.n + (UNBOUNDED_SECONDS if load.profile != "instant" else 0)
    with step(f"{load.profile}, {load.n} workers: start"):
        started = _start(world, load.n, deadline, profiling)
    _print_summary(load, started)
    idle = _idle(world, idle_seconds) if idle_seconds else None
    with step(f"{load.profile}, {load.n} workers: scale-in"):
        ended = _scale_in(world, deadline)
    say(f"scale-in {ended.pool:.2f} s, machines gone after {ended.site:.2f} s; writes: {ended.writes}")
    versions = world.versions()
    sticks = yardsticks(started.example)

    boot = (started.pool_start.boot_milliseconds or 0) / 1000
    registered = (started.pool_start.registered_milliseconds or 0) / 1000
    made = writes.by_resource(started.served)
    return Run(
        n=load.n,
        profile=load.profile,
        time_scale=load.time_scale,
        guests=load.guests,
        t_boot_s=boot,
        t_r_s=registered,
        t_m_s=round(started.t_m, 3),
        t_r_minus_t_boot_s=round(registered - boot, 3),
        t_m_minus_t_r_s=round(started.t_m - registered, 3),
        bound_s=_bound(load),
        limit_s=sticks.limit_s,
        limit_concurrency=sticks.limit_concurrency,
        peer_s=sticks.peer_s,
        writes_per_worker=round(writes.total(made) / load.n, 3),
        writes=made,
        writes_told=writes.by_resource(started.told),
        operator_cpu_s=started.cpu["operator"],
        operator_rss_mib=round(started.rss_mib, 1),
        cpu_s=started.cpu,
        machine_cpu_s=round(started.machine_cpu, 2),
        stages=_stages(started),
        scale_in_s=round(ended.pool, 3),
        scale_in_machines_s=round(ended.site, 3),
        scale_in_writes=ended.writes,
        scale_in_operator_cpu_s=round(ended.operator_cpu, 2),
        idle=idle,
        load_average=started.load_average,
        machine=machine.describe(),
        versions=versions,
        date=datetime.now(UTC).replace(microsecond=0),
        revision=revision(),
    )


def _start(world: World, n: int, seconds: float, profiling: Profiling) -> Started:
    writes.wait_quiet(world.count_operator_writes, QUIET_SECONDS, QUIETING_SECONDS)
    load_average = os.getloadavg()[0]
    before = world.observe()
    ready = f"jsonpath={{.status.readyReplicas}}={n}"
    with profiling(world.operator_pid), world.waiting(names.WORKER_POOLS, ready, seconds) as waiting:
        cpu, machine_cpu = world.cpu_seconds(), machine.machine_cpu_seconds()
        asked = time.monotonic()
        world.scale(n)
        t_m = waiting.until(world.check) - asked
        cpu_after, machine_cpu_after = world.cpu_seconds(), machine.machine_cpu_seconds()
    writes.wait_quiet(world.count_operator_writes, QUIET_SECONDS, QUIETING_SECONDS)
    after = world.observe()
    start = WorkerPool.model_validate(world.pool()).status.start
    if start is None:
        raise SetupError("the pool has no status.start")
    workers = world.workers()
    return Started(
        t_m=t_m,
        pool_start=start,
        workers=[Worker.model_validate(item) for item in workers],
        example=workers[0],
        cpu={name: round(used - cpu.get(name, 0.0), 2) for name, used in cpu_after.items()},
        machine_cpu=machine_cpu_after - machine_cpu,
        rss_mib=machine.peak_rss_mib(world.operator_pid),
        served=after.served - before.served - _OWN_CHANGE,
        told=after.told - before.told,
        load_average=round(load_average, 2),
    )


def _idle(world: World, seconds: float) -> Idle:
    with step(f"idle for {seconds:.0f} s"):
        before, cpu = world.observe(), world.cpu_seconds()["operator"]
        began = time.monotonic()
        time.sleep(seconds)
        used, lasted = world.cpu_seconds()["operator"] - cpu, time.monotonic() - began
        after = world.observe()
    made = after.served - before.served
    return Idle(
        seconds=round(lasted, 1),
        writes=writes.total(writes.by_resource(made)),
        lease_writes=writes.total(writes.by_resource(after.told - before.told, leases=True)),
        operator_cpu_percent=round(100 * used / lasted, 2),
    )


def _scale_in(world: World, seconds: float) -> Ended:
    before, cpu = world.observe(), world.cpu_seconds()["operator"]
    pool = world.waiting(names.WORKER_POOLS, "jsonpath={.status.replicas}=0", seconds)
    site = world.waiting(names.CLOUD_SITES, "jsonpath={.status.workers.total}=0", seconds)
    with pool, site:
        asked = time.monotonic()
        world.scale(0)
        ended = pool.until(world.check)
        while world.has_workers():
            if time.monotonic() > asked + seconds:
                raise SetupError(f"Workers are still stored {seconds:.0f} s after the request for 0")
            time.sleep(GONE_POLL_SECONDS)
            ended = time.monotonic()
        gone = max(ended, site.until(world.check))
    used = world.cpu_seconds()["operator"] - cpu
    made = world.observe().served - before.served - _OWN_CHANGE
    return Ended(ended - asked, gone - asked, writes.by_resource(made), used)


def _stages(started: Started) -> dict[str, StageTimes]:
    """Return the times of the stages that the site reports."""
    asked = started.pool_start.requested_time
    result = {}
    for stage in STAGES:
        entered = [getattr(worker.status.stages, stage) for worker in started.workers]
        times = sorted((time - asked).total_seconds() for time in entered if time is not None)
        if times:
            last = len(times) - 1
            quantiles = [round(times[round(last * step / QUANTILES)], 3) for step in range(QUANTILES + 1)]
            result[stage] = StageTimes(mean_s=round(fmean(times), 3), last_s=round(times[-1], 3), quantiles=quantiles)
    return result


def _bound(load: Load) -> float:
    return round(bound(load.provider, load.n).last_seconds, 3)


def revision() -> str:
    """Return the revision of the source; it ends in ``+`` if files have been changed."""
    git = ["git", "--no-optional-locks", "-C", str(_REPOSITORY)]

    def output(*arguments: str) -> str:
        done = subprocess.run([*git, *arguments], capture_output=True, text=True, timeout=30, check=False)
        return done.stdout.strip()

    changed = output("status", "--porcelain", "--untracked-files=no")
    return (output("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def _print_summary(load: Load, started: Started) -> None:
    start = started.pool_start
    boot, registered = (start.boot_milliseconds or 0) / 1000, (start.registered_milliseconds or 0) / 1000
    made = writes.by_resource(started.served)
    say(f"T_boot {boot:.2f} s, T_r {registered:.2f} s, T_m {started.t_m:.2f} s")
    say(f"{writes.total(made) / load.n:.2f} writes per worker: {made}; operator {started.rss_mib:.0f} MiB")
    say(f"CPU seconds: {started.cpu}, the whole machine {started.machine_cpu:.1f}")


@contextlib.contextmanager
def no_profiling(pid: int) -> Iterator[None]:
    """Do nothing: measure without a profiler."""
    yield
