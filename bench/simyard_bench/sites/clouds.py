# SPDX-License-Identifier: Apache-2.0
"""Measure the cases at a simulated oned: starts, compared with a loop of pyone, and the cost of polls."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Self

import uvloop

from simyard_bench.results import Writes
from simyard_bench.sites.asking import machine_requests
from simyard_bench.sites.oned import IMAGE_OWNER, INSTALLATION, PASSWORD, TEMPLATE, USER, Asked, SimulatedOned
from simyard_bench.sites.pyone_client import Pyone, Spent
from simyard_bench.sites.rows import Figures
from simyard_bench.sites.starting import Fleet, Started
from simyard_dev.progress import step
from simyard_dev.providers import complete_open_nebula
from simyard_sites.base import MachineRequest, SiteConfig
from simyard_sites.opennebula import OpenNebulaSite

SITE = "openNebula"
CLOUD = "simulated oned"
LIVE = 50
"""Number of running machines in addition to the finished ones, as in the measurement of a real oned."""
WIDE_TIME_SCALE = 0.1
"""The scale of times without a scheduler.

At scale 1, the start would mostly consist of invented latencies of drivers.
"""
STOCK_SCALE = 0.05
"""The scale of times with the stock scheduler, which places 7 machines in 10 s.

The costs of calls have the same scale.
"""
REPEATS = 100
"""Number of consecutive polls of few machines, because one poll takes only milliseconds."""
YARDSTICK_REPEATS = 20
_READS = frozenset({"info", "infoset", "version", "config"})


@dataclass(frozen=True)
class Look:
    """The cost of one poll: seconds, CPU seconds of the client, calls to oned and their cost in the model."""

    seconds: float
    cpu_seconds: float
    calls: Mapping[str, int]
    server_ms: float


Turn = tuple[Look, Look]
"""The cost of our poll and that of the yardstick."""


def starts(n: int, rounds: int) -> Iterator[Figures]:
    """Measure starts with an unlimited scheduler, and with the scheduler of a stock oned.

    Raises:
        SetupError: oned refused a call, or a start did not end in time.
    """
    yield _start("start-wide", n, rounds, SimulatedOned("wide", WIDE_TIME_SCALE, 1.0), WIDE_TIME_SCALE, 1.0)
    stock = SimulatedOned("stock", STOCK_SCALE, STOCK_SCALE)
    yield _start("start-stock", n, 1, stock, STOCK_SCALE, STOCK_SCALE)


def polls(known: int, finished: Sequence[int], rounds: int) -> Iterator[Figures]:
    """Measure polls of all known machines: of many machines, and of few machines beside finished ones."""
    load = os.getloadavg()[0]
    with SimulatedOned("wide", 1.0, 1.0) as oned, step(f"polls of {known} VMs"):
        ids = oned.fill(running=known)
        with Looking(oned) as ours:
            theirs = Pyone(oned.url)
            turns = [(ours.poll(ids, 1), _counted(oned, lambda: theirs.look(ids), 1)) for _ in range(rounds)]
            yield _look("poll", known, 0, turns, load)
    load = os.getloadavg()[0]
    with ExitStack() as stack, step(f"polls and sweeps beside {' and '.join(map(str, finished))} finished VMs"):
        clouds = {count: stack.enter_context(SimulatedOned("wide", 1.0, 1.0)) for count in finished}
        beside = [
            (count, oned, stack.enter_context(Looking(oned)), _live(oned, count)) for count, oned in clouds.items()
        ]
        for case in ("poll", "sweep"):
            turns_of: dict[int, list[Turn]] = {count: [] for count in finished}
            for _ in range(2 * rounds + 1):
                for count, oned, ours, ids in beside:
                    mine = ours.poll(ids, REPEATS) if case == "poll" else ours.sweep(REPEATS)
                    turns_of[count].append((mine, _counted(oned, Pyone(oned.url).look_at_all, YARDSTICK_REPEATS)))
            yield from (_look(case, LIVE, count, turns, load) for count, turns in turns_of.items())


def _start(case: str, n: int, rounds: int, simulated: SimulatedOned, time_scale: float, cost_scale: float) -> Figures:
    load = os.getloadavg()[0]
    mine, theirs = [], []
    asked = yardstick_asked = Asked()
    with step(f"{n} VMs, {case}"):
        for number in range(rounds):
            requests = machine_requests(f"pool-{number}", "bench", n, image="")
            with simulated as oned:
                theirs.append(Pyone(oned.url).start(requests))
                yardstick_asked = oned.asked()
            with simulated as oned:
                mine.append(uvloop.run(_ours(oned, requests)))
                asked = oned.asked()
    made = changes(asked.calls)
    middle = sorted(mine, key=lambda one: one.seconds)[len(mine) // 2]
    return Figures(
        site=SITE,
        case=case,
        n=n,
        cloud=CLOUD,
        ours_s=round(median(one.seconds for one in mine), 3),
        yardstick_s=round(median(one.seconds for one in theirs), 3),
        cpu_s=round(median(one.cpu_seconds for one in mine), 3),
        yardstick_cpu_s=round(median(one.cpu_seconds for one in theirs), 3),
        ours_rounds_s=[round(one.seconds, 3) for one in mine],
        yardstick_rounds_s=[round(one.seconds, 3) for one in theirs],
        accepted_s=round(median(one.accepted_seconds for one in mine), 3),
        yardstick_accepted_s=round(median(one.accepted_seconds for one in theirs), 3),
        writes_per_worker=sum(sum(methods.values()) for methods in made.values()) / n,
        writes=made,
        calls=dict(asked.calls),
        yardstick_calls=dict(yardstick_asked.calls),
        server_ms=asked.milliseconds,
        yardstick_server_ms=yardstick_asked.milliseconds,
        calls_at_once=middle.setting.calls,
        batch=middle.setting.batch,
        time_scale=time_scale,
        cost_scale=cost_scale,
        load_average=round(load, 2),
    )


async def _ours(oned: SimulatedOned, requests: Sequence[MachineRequest]) -> Started:
    async with Fleet(_site(oned)) as fleet:
        return await fleet.start(requests)


class Looking:
    """A context with a site that polls its machines."""

    def __init__(self, oned: SimulatedOned) -> None:
        self._oned = oned
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def __enter__(self) -> Self:
        self._site = self._runner.run(_made(self._oned))
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._site.aclose())
        self._runner.close()

    def poll(self, ids: Sequence[int], times: int) -> Look:
        """Poll machines by their ids, as the site's events do for known machines."""
        return self._measured(partial(self._poll, [str(each) for each in ids]), times)

    def sweep(self, times: int) -> Look:
        """Search for machines, as the site's events do at first and every ten minutes."""
        return self._measured(self._site.list_owned, times)

    def _measured(self, look: Callable[[], Awaitable[object]], times: int) -> Look:
        self._runner.run(_repeated(look, 1))  # after this call all machines are known
        return _counted(self._oned, lambda: self._runner.run(_repeated(look, times)), 1, times)

    async def _poll(self, ids: Sequence[str]) -> None:
        found = [outcome.machine async for outcome in self._site.get(ids)]
        assert None not in found


async def _made(oned: SimulatedOned) -> OpenNebulaSite:
    return _site(oned)


async def _repeated(look: Callable[[], Awaitable[object]], times: int) -> Spent:
    cpu, began = time.process_time(), time.monotonic()
    for _ in range(times):
        await look()
    return Spent(time.monotonic() - began, time.process_time() - cpu)


def _live(oned: SimulatedOned, finished: int) -> list[int]:
    """Return the ids of running machines; half of the finished machines are older, half newer."""
    oned.fill(finished=finished // 2)
    ids = oned.fill(running=LIVE)
    oned.fill(finished=finished - finished // 2)
    return ids


def _counted(oned: SimulatedOned, look: Callable[[], Spent], repeats: int, times: int = 1) -> Look:
    """Call ``look`` ``repeats`` times, and return the mean cost of a poll; one call makes ``times`` polls."""
    oned.asked()
    spent = [look() for _ in range(repeats)]
    asked, count = oned.asked(), repeats * times
    return Look(
        seconds=sum(one.seconds for one in spent) / count,
        cpu_seconds=sum(one.cpu_seconds for one in spent) / count,
        calls={method: number // count for method, number in asked.calls.items()},
        server_ms=asked.milliseconds / count,
    )


def _look(case: str, n: int, finished: int, turns: Sequence[Turn], load: float) -> Figures:
    mine, theirs = [one for one, _ in turns], [one for _, one in turns]
    return Figures(
        site=SITE,
        case=case,
        n=n,
        finished=finished,
        cloud=CLOUD,
        ours_s=round(median(one.seconds for one in mine), 4),
        yardstick_s=round(median(one.seconds for one in theirs), 4),
        cpu_s=round(median(one.cpu_seconds for one in mine), 5),
        yardstick_cpu_s=round(median(one.cpu_seconds for one in theirs), 5),
        ours_rounds_s=[round(one.seconds, 4) for one in mine],
        yardstick_rounds_s=[round(one.seconds, 4) for one in theirs],
        writes_per_worker=sum(sum(methods.values()) for methods in changes(mine[-1].calls).values()) / n,
        calls=dict(mine[-1].calls),
        yardstick_calls=dict(theirs[-1].calls),
        server_ms=round(mine[-1].server_ms, 3),
        yardstick_server_ms=round(theirs[-1].server_ms, 3),
        load_average=round(load, 2),
    )


def changes(calls: Mapping[str, int]) -> Writes:
    """Return the calls that change a resource, by object and method."""
    made: Writes = {}
    for name, count in calls.items():
        _, *middle, method = name.split(".")
        if middle and method not in _READS:
            made.setdefault(".".join(middle), {})[method] = count
    return made


def _site(oned: SimulatedOned) -> OpenNebulaSite:
    provider = complete_open_nebula(endpoint=oned.url, template=TEMPLATE, imageOwner=IMAGE_OWNER)
    return OpenNebulaSite(SiteConfig(INSTALLATION, provider, {"username": USER, "password": PASSWORD}, INSTALLATION))
