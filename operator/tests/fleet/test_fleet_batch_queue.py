# SPDX-License-Identifier: Apache-2.0
"""The order of batches when several kinds of calls compete for one site."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from scripted_site import until

from simyard.api.cloud_site import SiteLimits
from simyard.fleet.sites.batch_queue import BatchQueue, BatchResult
from simyard.plan.machine import Step
from simyard.plan.tuner import START, Setting


@dataclass
class Sent:
    """The batches that were sent. Those of deletions are answered when ``answers`` has an item for each."""

    batches: list[tuple[Step, int]] = field(default_factory=list)
    answers: asyncio.Queue[None] | None = None

    async def send(self, step: Step, keys: Sequence[str]) -> BatchResult:
        self.batches.append((step, len(keys)))
        if step is Step.DELETE and self.answers is not None:
            await self.answers.get()
        return BatchResult(0.001, len(keys))

    def count(self, step: Step) -> int:
        return sum(items for sent, items in self.batches if sent is step)


def made(**limits: int) -> BatchQueue:
    return BatchQueue("site", SiteLimits.model_validate(limits), lambda: None)


@asynccontextmanager
async def running(queue: BatchQueue, sent: Sent) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run(sent.send))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def want(queue: BatchQueue, step: Step, count: int) -> None:
    for number in range(count):
        queue.add(step, str(number))


def tuned(queue: BatchQueue, step: Step, setting: Setting) -> None:
    """Give the tuner of a step this setting."""
    calls = queue._calls[step]
    calls.tuner = replace(calls.tuner, base=setting)


async def test_many_deletions_at_a_slow_pace_do_not_hold_up_creations() -> None:
    sent = Sent()
    queue = made(requestsPerSecond=200)
    want(queue, Step.DELETE, 400)
    want(queue, Step.CREATE, 20)
    async with running(queue, sent):
        await until(lambda: sent.count(Step.CREATE) == 20)
    assert sent.count(Step.DELETE) <= 100


async def test_small_batches_do_not_overtake_a_large_one_that_waits_for_room() -> None:
    sent = Sent(answers=asyncio.Queue())
    queue = made(maxInFlight=8)
    tuned(queue, Step.CREATE, Setting(1, 8))
    want(queue, Step.DELETE, 100)
    async with running(queue, sent):
        await until(lambda: sent.count(Step.DELETE) == 8)
        want(queue, Step.CREATE, 8)
        assert sent.answers is not None
        for _ in range(4):
            sent.answers.put_nowait(None)
        await until(lambda: sent.count(Step.CREATE) == 8)
    assert sent.batches[4] == (Step.CREATE, 8)


async def test_a_breaker_that_closes_lets_little_through_at_first() -> None:
    sent, queue = Sent(), made()
    queue.permit(0)
    tuned(queue, Step.CREATE, Setting(2, 100))
    want(queue, Step.CREATE, 100)
    async with running(queue, sent):
        queue.permit(None)
        await until(lambda: sent.count(Step.CREATE) == 100)
    assert sent.batches[0] == (Step.CREATE, START.batch)
