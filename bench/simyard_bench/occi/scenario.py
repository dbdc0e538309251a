# SPDX-License-Identifier: Apache-2.0
"""Run all cases: a pool grows, and a client sends requests at each size.

At the end the scenario creates finished Workers and actions, and measures once more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from simyard.api import names
from simyard.api.base import Json
from simyard_bench import machine
from simyard_bench.occi import finished
from simyard_bench.occi.cases import LIST, LIST_TEXT, MODEL, Asking, compute, mixed
from simyard_bench.occi.measuring import Effort, Measuring
from simyard_bench.occi.promises import REGISTERING
from simyard_bench.occi.registering import register
from simyard_bench.occi.rows import Row
from simyard_bench.occi.servers import GRACE_SECONDS, Frontends
from simyard_bench.start import BASE_SECONDS, PER_WORKER_SECONDS, QUIET_SECONDS, QUIETING_SECONDS
from simyard_bench.world import World
from simyard_bench.writes import wait_quiet
from simyard_dev.errors import SetupError
from simyard_dev.progress import step

LIST_TIMES = 2
IDLE_SECONDS = 5.0


class Scenario:
    """The cases in a running and prepared environment. Each measurement adds to ``rows``.

    The first frontend is pinned to one core, and the client to another. All other processes run on any core.
    """

    def __init__(self, world: World, effort: Effort, idle_cores: float) -> None:
        """Prepare the scenario; a case begins once all processes together use at most ``idle_cores``."""
        self._world = world
        self._idle_cores = idle_cores
        self._frontends = Frontends(world)
        self._asking = Asking(self._frontends.access)
        self._measuring = Measuring(world, self._frontends, effort)
        self._frontends.keep_one()

    @property
    def rows(self) -> list[Row]:
        """The rows measured so far."""
        return self._measuring.rows

    def run(self, sizes: Sequence[int], finished_count: int) -> None:
        """Measure the sizes in ascending order: all cases at the largest, also beside ``finished_count`` finished.

        Raises:
            SetupError: a request was refused, or a phase did not end in time.
        """
        paths: list[str] = []
        for n in sorted(sizes):
            largest = n == max(sizes)
            if largest and n - len(paths) > REGISTERING:
                self._grow(n - REGISTERING)
                with step(f"registering {REGISTERING} more workers at once"):
                    register(self._world, self._asking, self._measuring, self._frontends, n)
            paths = self._grow(n)
            with step(f"measuring with {n} workers"):
                self._basics(paths)
                if largest:
                    self._lists()
                    self._amqp(paths)
                    self._more_frontends(paths)
        if finished_count:
            self._finish(finished_count)
            with step(f"measuring after {finished_count} finished Workers and actions"):
                self._basics(paths)

    def _grow(self, n: int) -> list[str]:
        seconds = BASE_SECONDS + PER_WORKER_SECONDS * n
        with (
            step(f"growing the pool to {n} workers"),
            self._world.waiting(names.WORKER_POOLS, f"jsonpath={{.status.readyReplicas}}={n}", seconds) as waiting,
        ):
            self._world.scale(n)
            waiting.until(self._world.check)
            paths = self._wait_settled(n)
        self._measuring.workers = n
        return paths

    def _wait_settled(self, n: int) -> list[str]:
        """Wait until all computes are shown, writes have stopped and processes are idle; return the computes."""
        paths = self._asking.wait_ready(n, BASE_SECONDS)
        self._asking.ask(self._asking.actions(paths)[0])  # the first action has all workers consume the pool's queue
        wait_quiet(self._world.count_operator_writes, QUIET_SECONDS, QUIETING_SECONDS)
        self._wait_idle()
        return paths

    def _wait_idle(self) -> None:
        """Wait until this machine is idle. If one core were busy, client and frontend would share the other core.

        Raises:
            SetupError: processes stay busy; the message names them.
        """
        deadline = time.monotonic() + QUIETING_SECONDS
        while True:
            before, began = self._world.cpu_seconds(), machine.machine_cpu_seconds()
            time.sleep(IDLE_SECONDS)
            if (machine.machine_cpu_seconds() - began) / IDLE_SECONDS <= self._idle_cores:
                return
            if time.monotonic() > deadline:
                used = {name: (now - before[name]) / IDLE_SECONDS for name, now in self._world.cpu_seconds().items()}
                busy = ", ".join(f"{name} {cores:.2f}" for name, cores in used.items() if cores > 0.01)
                raise SetupError(
                    f"the machine is not idle; busy cores: {busy or 'of processes outside of this benchmark'}"
                )

    def _finish(self, count: int) -> None:
        example = self._world.workers()[0]
        with step(f"storing {count} finished ServiceActions"):
            finished.keep_actions(self._world, example["metadata"]["name"], count)
        with step(f"creating and deleting {count} Workers"):
            # The operator would start machines for these Workers.
            self._world.platform.operator.stop(GRACE_SECONDS)
            finished.make_and_delete_workers(self._world, example, count, lambda: self._look(example, count))
            self._world.platform.up()
            self._frontends.keep_one()
            self._wait_settled(self._measuring.workers)
        self._measuring.finished = count

    def _look(self, example: Json, count: int) -> None:
        """List all computes in full, once the frontend knows them."""
        deadline = time.monotonic() + BASE_SECONDS
        wanted = self._measuring.workers + min(finished.PORTION, count)
        while len(self._asking.computes()) < wanted:
            if time.monotonic() > deadline:
                raise SetupError(f"the frontend does not show all {wanted} Workers after {BASE_SECONDS:.0f} s")
            time.sleep(0.1)
        self._asking.ask(LIST_TEXT)

    def _basics(self, paths: Sequence[str]) -> None:
        computes, frontend = tuple(map(compute, paths)), self._frontends.http()
        self._asking.ask(LIST_TEXT)  # renders each of them once
        with self._frontends.bare_http(self._asking, computes[:1]) as bare:
            self._measuring.case("get-compute", frontend, computes, bare=bare)
        self._measuring.case("get-model", frontend, (MODEL,))
        self._measuring.case("action", frontend, self._asking.actions(paths))

    def _lists(self) -> None:
        frontend = self._frontends.http()
        with self._frontends.bare_http(self._asking, (LIST, LIST_TEXT)) as bare:
            for case, request in (("list-uri", LIST), ("list-text", LIST_TEXT)):
                self._measuring.case(case, frontend, (request,), bare=bare, connections=1, times=LIST_TIMES)

    def _amqp(self, paths: Sequence[str]) -> None:
        computes = tuple(map(compute, paths))
        with self._frontends.bare_amqp(self._asking, computes[0]) as bare:
            self._measuring.case("get-compute-amqp", self._frontends.amqp(), computes, bare=bare)

    def _more_frontends(self, paths: Sequence[str]) -> None:
        """Measure mixed reads of one and of two frontends.

        The client runs on the other core first, then on the core of the frontend, and last in two such pairs.
        """
        requests = mixed(paths)
        self._measuring.case("mixed-apart", self._frontends.http(), requests)
        self._measuring.pairs("mixed", requests, 1)
        self._frontends.start_second()
        self._measuring.pairs("mixed", requests, 2)
        self._frontends.keep_one()
