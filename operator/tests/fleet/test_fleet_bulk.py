"""Who is served when several kinds of calls want the same site."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from scripted_site import until

from simyard.api.cloud_site import SiteLimits
from simyard.fleet.bulk import Bulk, Told
from simyard.plan.machine import Step
from simyard.plan.tuner import START, Setting


@dataclass
class Sent:
    """Batches that were sent; those of deletions are answered when ``answers`` has something for each."""

    batches: list[tuple[Step, int]] = field(default_factory=list)
    answers: asyncio.Queue[None] | None = None
    permitted: int | None = None

    async def send(self, step: Step, keys: Sequence[str]) -> Told:
        self.batches.append((step, len(keys)))
        if step is Step.DELETE and self.answers is not None:
            await self.answers.get()
        return Told(0.001, len(keys))

    def count(self, step: Step) -> int:
        return sum(items for sent, items in self.batches if sent is step)

    def bulk(self, **limits: int) -> Bulk:
        return Bulk("bulk", self.send, SiteLimits.model_validate(limits), lambda: self.permitted, lambda: None)


@asynccontextmanager
async def running(bulk: Bulk) -> AsyncIterator[None]:
    task = asyncio.create_task(bulk.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def want(bulk: Bulk, step: Step, count: int) -> None:
    for number in range(count):
        bulk.want(step, str(number))


def tuned(bulk: Bulk, step: Step, setting: Setting) -> None:
    """As if that had been found out."""
    calls = bulk._calls[step]
    calls.tuner = replace(calls.tuner, base=setting)


async def test_many_deletions_at_a_slow_pace_do_not_hold_up_creations() -> None:
    sent = Sent()
    bulk = sent.bulk(requestsPerSecond=200)
    want(bulk, Step.DELETE, 400)
    want(bulk, Step.CREATE, 20)
    async with running(bulk):
        await until(lambda: sent.count(Step.CREATE) == 20)
    assert sent.count(Step.DELETE) <= 100


async def test_small_batches_do_not_overtake_a_large_one_that_waits_for_room() -> None:
    sent = Sent(answers=asyncio.Queue())
    bulk = sent.bulk(maxInFlight=8)
    tuned(bulk, Step.CREATE, Setting(1, 8))
    want(bulk, Step.DELETE, 100)
    async with running(bulk):
        await until(lambda: sent.count(Step.DELETE) == 8)
        want(bulk, Step.CREATE, 8)
        assert sent.answers is not None
        for _ in range(4):
            sent.answers.put_nowait(None)
        await until(lambda: sent.count(Step.CREATE) == 8)
    assert sent.batches[4] == (Step.CREATE, 8)


async def test_a_breaker_that_closes_lets_little_through_at_first() -> None:
    sent = Sent(permitted=0)
    bulk = sent.bulk()
    tuned(bulk, Step.CREATE, Setting(2, 100))
    want(bulk, Step.CREATE, 100)
    async with running(bulk):
        sent.permitted = None
        bulk.permitted_changed()
        await until(lambda: sent.count(Step.CREATE) == 100)
    assert sent.batches[0] == (Step.CREATE, START.batch)
