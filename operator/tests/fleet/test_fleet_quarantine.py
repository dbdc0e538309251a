# SPDX-License-Identifier: Apache-2.0
"""Broker users that send too much: they are cut off, released, and cut off for longer the next time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from scripted_site import ScriptedClient, until

from simyard.fleet.broker.provisioning import Broker
from simyard.fleet.broker.quarantine import GOOD_SECONDS, MAX_PAUSE_SECONDS, Quarantine
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry
from simyard.fleet.timing import PRODUCTION
from simyard.fleet.wiring import connect
from simyard.messaging.errors import BrokerUnavailableError
from simyard_adapter.wire import name_pool_user
from simyard_sites.kubernetes.client import KubeClient

POOL = {
    "metadata": {"name": "pool", "namespace": "ns", "uid": "uid", "resourceVersion": "1"},
    "spec": {"serviceRef": {"name": "service"}, "replicas": 1},
}
USER = name_pool_user("uid")


FIRST_PAUSE_SECONDS = PRODUCTION.quarantine_first_seconds


@dataclass
class ScriptedBroker:
    """A broker that records the requests of the quarantine, and fails once where ``failures`` says so."""

    earlier: list[str] = field(default_factory=list)
    failures: int = 0
    asked: list[str] = field(default_factory=list)
    prepared: asyncio.Event = field(default_factory=asyncio.Event)

    async def cut_off(self, user: str) -> None:
        if self.failures:
            self.failures -= 1
            raise BrokerUnavailableError("away")
        self.asked.append(f"cut off {user}")

    async def release(self, user: str) -> None:
        self.asked.append(f"release {user}")

    async def cut_off_users(self) -> list[str]:
        return self.earlier


class Bench:
    """A quarantine whose clock is set by hand; its queue runs on the loop's clock."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.now = 0.0
        self.broker = broker
        self.events: list[tuple[str, str]] = []
        registry = Registry(cast(KubeClient, ScriptedClient()))
        registry.pools.learn(POOL)
        self.quarantine = Quarantine(registry, cast(Broker, broker), cast(Recorder, self), lambda: self.now)
        connect(registry, self.quarantine)
        broker.prepared.set()

    def emit(self, _: Any, regarding: Any, reason: str, note: str, *, warning: bool) -> None:
        assert warning
        self.events.append((reason, note))

    def flood(self) -> None:
        while self.quarantine.count_event(USER, 0):
            pass

    async def pass_over(self, seconds: float) -> None:
        """Let time pass, and let the queue work on the user."""
        self.now += seconds
        await self.quarantine.enforce(USER)


async def test_a_sender_is_refused_and_cut_off_until_the_pause_is_over_then_released() -> None:
    bench = Bench(ScriptedBroker(failures=2))
    assert bench.quarantine.count_event(USER, 0)
    bench.flood()
    assert bench.quarantine.count_event(name_pool_user("other"), 0), "nobody else is refused"
    assert [reason for reason, _ in bench.events] == ["WorkersCutOff"]
    async with running(bench):
        await until(lambda: bench.broker.asked == [f"cut off {USER}"])
        assert not bench.quarantine.count_event(USER, 0)
        await bench.pass_over(FIRST_PAUSE_SECONDS)
    assert bench.broker.asked[-1] == f"release {USER}"
    assert bench.quarantine.count_event(USER, 0)


async def test_the_pause_doubles_up_to_a_maximum_and_is_forgotten_after_good_times() -> None:
    bench, pauses = Bench(ScriptedBroker()), []
    async with running(bench):
        for _ in range(8):
            bench.flood()
            pauses.append(float(bench.events[-1][1].partition(" for ")[2].partition(" s")[0]))
            await bench.pass_over(pauses[-1])
        assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
        assert pauses[-1] == MAX_PAUSE_SECONDS
        bench.now += GOOD_SECONDS
        bench.flood()
    assert f"for {FIRST_PAUSE_SECONDS:g} s" in bench.events[-1][1]


async def test_users_that_an_earlier_operator_cut_off_are_released() -> None:
    bench = Bench(ScriptedBroker(earlier=[USER]))
    async with running(bench):
        await until(lambda: bench.broker.asked == [f"cut off {USER}"])
        await bench.pass_over(FIRST_PAUSE_SECONDS)
    assert bench.broker.asked == [f"cut off {USER}", f"release {USER}"]


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.create_task(bench.quarantine.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
