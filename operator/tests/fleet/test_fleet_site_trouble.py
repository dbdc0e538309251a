# SPDX-License-Identifier: Apache-2.0
"""The work of a site's runner while its site is in trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from scripted_site import Bench, ScriptedSite, owner, spec, until

from simyard.plan.pace import MAX_RETRY_AFTER_SECONDS
from simyard.plan.tuner import START
from simyard_sites.base import (
    Gone,
    Machine,
    SiteError,
    SiteEvent,
    SiteInfo,
    Snapshot,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
    UnknownOutcomeError,
)

REFUSED = UnauthenticatedError("wrong password")


@dataclass
class LockedSite(ScriptedSite):
    """A site that refuses the credentials of its stream of events; it refuses all calls when it is ``broken``."""

    stream_error: SiteError | None = None

    async def probe(self) -> SiteInfo:
        self.called("probe")
        return SiteInfo("locked")

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        self.called("events")
        if self.stream_error is not None:
            raise self.stream_error
        async for event in super().events():
            yield event


@dataclass
class SlowList(ScriptedSite):
    """A site that lists its machines only after ``may`` is set."""

    may: asyncio.Event = field(default_factory=asyncio.Event)

    async def list_owned(self) -> Sequence[Machine]:
        await self.may.wait()
        return await super().list_owned()


async def test_a_worker_that_came_after_its_machine_is_scaled_in_like_any_other() -> None:
    bench = Bench(grace_seconds=3600)
    async with bench.running():
        await until(lambda: bench.runner.complete)
        bench.site.add("pool-0-x", owner("pool-0"))
        await until(lambda: bench.client.asked)
        worker = bench.worker()
        bench.runner.adjust(spec(0))
        asked = bench.client.asked
        bench.registry.workers.forget(worker)
        await until(lambda: not bench.site.machines)
    assert (bench.orphans, bench.client.asked) == ([], asked)


async def test_an_open_breaker_keeps_the_stream_of_events_from_logging_in_again() -> None:
    site = LockedSite(broken=REFUSED)
    bench = Bench(site)
    async with bench.running():
        await until(lambda: site.calls["probe"] >= 4)
        assert site.calls["events"] == 1
        site.broken = None
        await until(lambda: bench.runner.complete)


async def test_credentials_that_only_the_stream_of_events_refuses_open_the_breaker() -> None:
    site = LockedSite(stream_error=REFUSED)
    bench = Bench(site)
    async with bench.running():
        await until(lambda: bench.runner.observe().breaker.state == "Open")
        assert bench.runner.observe().breaker.cause is REFUSED
        site.stream_error = None
        await until(lambda: bench.runner.complete)


async def test_a_site_that_asks_for_a_long_pause_takes_no_new_workers_and_is_not_left_alone_for_a_day() -> None:
    bench = Bench()
    bench.site.refusals = [(ThrottledError("slower", retry_after_seconds=86_400), False)]
    bench.worker()
    async with bench.running():
        await until(lambda: bench.runner.health.exhausted_seconds > 0)
        seen = bench.runner.observe()
        assert bench.runner.health.exhausted_seconds <= MAX_RETRY_AFTER_SECONDS
    assert isinstance(seen.exhausted, ThrottledError)
    assert seen.paused_until is not None


async def test_what_failed_is_forgotten_with_its_machine() -> None:
    bench = Bench()
    worker = bench.worker()
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 1)
        bench.site.broken = UnavailableError("down")
        bench.registry.workers.forget(worker)
        await until(lambda: bench.runner.reconciler.attempts)
        (machine,) = bench.site.machines.values()
        bench.site.machines.clear()
        bench.site.tell(Gone(machine.id, machine.name))
        await until(lambda: len(bench.runner.machines) == 0)
    assert not bench.runner.reconciler.attempts


async def test_a_look_that_succeeds_at_last_is_no_failure_any_more() -> None:
    bench = Bench()
    bench.worker()
    async with bench.running():
        await until(lambda: len(bench.runner.machines) == 1)
        bench.site.broken = UnavailableError("down")
        bench.site.tell(Snapshot([]))
        await until(lambda: bench.runner.reconciler.attempts)
        bench.site.broken = None
        await until(lambda: not bench.runner.reconciler.attempts)
        assert len(bench.runner.machines) == 1


async def test_answers_that_are_lost_together_list_the_site_once_or_twice() -> None:
    site = SlowList(mute=True)
    bench = Bench(site)
    site.refusals = [(UnknownOutcomeError("lost"), True)] * START.in_flight
    for number in range(START.in_flight):
        bench.worker(f"pool-{number}")
    async with bench.running():
        await until(lambda: len(site.machines) == START.in_flight)
        assert site.calls["create"] == START.calls
        site.may.set()
        await until(lambda: len(bench.runner.machines) == START.in_flight)
        await until(lambda: bench.runner.observe().calls[0].idle)
    assert 1 <= site.asked.count("list") <= 2
    assert site.calls["create"] == START.calls


async def test_workers_that_registered_from_machines_nobody_knows_are_all_lost() -> None:
    bench = Bench()
    uids = [
        bench.worker(f"pool-{number}", stages={"registered": "2026-01-01T00:00:00Z"}).metadata.uid
        for number in range(3)
    ]
    async with bench.running():
        await until(lambda: all(bench.statuses.seen.get(uid, {}).get("lost") for uid in uids))
    assert bench.site.calls["get"] == 0
