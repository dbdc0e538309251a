# SPDX-License-Identifier: Apache-2.0
"""Measure the time until OCCI shows many workers that register at once."""

from __future__ import annotations

import time

from prometheus_client.parser import text_string_to_metric_families

from simyard.api.worker import Worker
from simyard_adapter.wire import Event
from simyard_bench.occi.cases import Asking
from simyard_bench.occi.load import Outcome, cpu_seconds, quantile
from simyard_bench.occi.measuring import Measuring
from simyard_bench.occi.servers import Frontends
from simyard_bench.world import World
from simyard_dev.errors import SetupError

SECONDS = 60.0


def register(world: World, asking: Asking, measuring: Measuring, frontends: Frontends, n: int) -> None:
    """Scale the pool to ``n`` workers, and read each new compute until it offers the action of its service.

    The case measures these reads. A worker counts as registered when the operator has received its message.

    Raises:
        SetupError: the workers are not shown in time.
    """
    known = set(asking.computes())
    pid = frontends.http().pid
    before, cpu, own = _registrations(world.operator_metrics()), cpu_seconds(pid), time.process_time()
    began = time.perf_counter()
    world.scale(n)
    shown, times = _follow(asking, known, n - len(known), began + SECONDS)
    seconds = time.perf_counter() - began
    cpu, own = cpu_seconds(pid) - cpu, time.process_time() - own
    times.sort()
    outcome = Outcome(
        requests=len(times),
        p50_ms=1000 * quantile(times, 0.5),
        p99_ms=1000 * quantile(times, 0.99),
        per_second=len(times) / seconds,
        body_bytes=0,
        server_cpu_us=1e6 * cpu / len(times),
        client_cpu_us=1e6 * own / len(times),
    )
    workers = [Worker.model_validate(item) for item in world.workers()]
    last = max(stage.timestamp() for worker in workers if (stage := worker.status.stages.registered) is not None)
    measuring.workers = n
    measuring.add(
        "register",
        [(outcome, outcome)],
        connections=1,
        visible_ms=round(1000 * (max(shown.values()) - last), 1),
        messages=_registrations(world.operator_metrics()) - before,
    )


def _follow(asking: Asking, known: set[str], count: int, deadline: float) -> tuple[dict[str, float], list[float]]:
    """Return the time at which each new compute was first shown as ready, and the durations of the reads."""
    shown: dict[str, float] = {}
    pending: set[str] = set()
    times: list[float] = []
    while len(shown) < count:
        if time.perf_counter() > deadline:
            raise SetupError(f"only {len(shown)} of {count} new workers are shown as ready after {SECONDS:.0f} s")
        if len(shown) + len(pending) < count:
            pending.update(set(asking.computes()).difference(known, shown))
        for path in sorted(pending):
            asked = time.perf_counter()
            is_ready = asking.is_ready(path)
            times.append(time.perf_counter() - asked)
            if is_ready:
                shown[path] = time.time()
                pending.discard(path)
    return shown, times


def _registrations(metrics: str) -> int:
    """Return the number of registrations that the operator has received."""
    lines = [line for line in metrics.splitlines() if "simyard_broker_events" in line]
    return sum(
        int(sample.value)
        for family in text_string_to_metric_families("\n".join([*lines, ""]))
        for sample in family.samples
        if sample.name == "simyard_broker_events_total" and sample.labels["kind"] == Event.REGISTER.value
    )
