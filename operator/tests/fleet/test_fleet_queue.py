# SPDX-License-Identifier: Apache-2.0
"""Work by key, and the rate of requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import REGISTRY

from simyard.fleet.work_queue import KeyQueue, RateLimit, find_most_overdue
from simyard_sites.kubernetes.errors import UnavailableError


def told_overdue(name: str) -> float:
    """Return the value of a queue's metric."""
    seconds = REGISTRY.get_sample_value("simyard_reconcile_overdue_seconds", {"queue": name})
    assert seconds is not None
    return seconds


@asynccontextmanager
async def running(queue: KeyQueue[str]) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_key_is_worked_on_by_one_pass_at_a_time_and_again_when_asked_meanwhile() -> None:
    begun, go_on, passes = asyncio.Event(), asyncio.Event(), 0

    async def process(key: str) -> None:
        nonlocal passes
        passes += 1
        begun.set()
        await go_on.wait()

    queue = KeyQueue("test", process)
    async with running(queue):
        queue.add("a")
        await begun.wait()
        queue.add("a")
        queue.add("a")
        done = asyncio.ensure_future(queue.pass_now(["a"]))
        assert passes == 1
        go_on.set()
        await done
        assert passes == 2


async def test_settling_waits_for_a_pass_that_began_afterwards_and_succeeded() -> None:
    attempts = 0

    async def process(key: str) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise UnavailableError(0, "", "no answer")

    queue = KeyQueue("test", process)
    async with running(queue):
        await queue.pass_now(["a"])
        assert attempts == 3
        await queue.pass_now([])


async def test_one_key_that_fails_does_not_hold_up_others() -> None:
    async def process(key: str) -> None:
        if key == "bad":
            raise ZeroDivisionError

    queue = KeyQueue("test", process, concurrency=1)
    async with running(queue):
        queue.add("bad")
        await queue.pass_now(["good", "better"])


async def test_no_more_passes_run_at_once_than_permitted() -> None:
    now, most = 0, 0

    async def process(key: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    queue = KeyQueue("test", process, concurrency=3)
    task = asyncio.create_task(queue.run())
    await queue.pass_now(range(20))
    assert most == 3
    task.cancel()
    await asyncio.wait([task])


async def test_passes_over_a_key_keep_their_distance() -> None:
    times: list[float] = []
    loop = asyncio.get_running_loop()

    async def process(key: str) -> None:
        times.append(loop.time())

    queue = KeyQueue("test", process, spacing_seconds=0.05)
    async with running(queue):
        for _ in range(3):
            await queue.pass_now(["a"])
    assert len(times) == 3
    assert all(later - earlier >= 0.049 for earlier, later in itertools.pairwise(times))


def test_requests_are_spread_over_time_after_a_burst() -> None:
    time = 100.0
    limit = RateLimit(10, lambda: time)
    assert limit.reserve(10) == 0
    assert limit.reserve(5) == 0.5
    assert limit.reserve(5) == 1.0
    time = 200.0
    assert limit.reserve() == 0


async def test_a_pass_that_does_not_end_is_overdue_and_a_key_that_is_due_later_is_not() -> None:
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    async def hang(key: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    stuck, later = KeyQueue("stuck", hang), KeyQueue("later", hang)
    async with running(stuck), running(later):
        later.add("a", 1000.0)
        asked = loop.time()
        stuck.add("a")
        await begun.wait()
        assert later.measure_overdue_seconds() == 0
        before = stuck.measure_overdue_seconds()
        await asyncio.sleep(0)
        assert 0 < before <= stuck.measure_overdue_seconds() <= loop.time() - asked
        assert find_most_overdue()[1] >= before
        assert told_overdue("stuck") >= before
        assert told_overdue("later") == 0
    find_most_overdue()
    assert told_overdue("stuck") == 0, "it has ended"
    idle = KeyQueue("idle", hang)
    assert idle.measure_overdue_seconds() == 0


async def test_a_key_that_nobody_works_on_is_overdue() -> None:
    async def never(key: str) -> None:
        raise AssertionError(key)

    queue = KeyQueue("unattended", never)
    queue.add("a", -5.0)
    assert queue.measure_overdue_seconds() >= 5


async def test_groups_take_turns_when_more_keys_are_due_than_can_be_worked_on() -> None:
    order: list[str] = []

    async def process(key: str) -> None:
        order.append(key)

    queue = KeyQueue("test", process, concurrency=1, group=lambda key: key[0])
    for key in ("a1", "a2", "a3", "a4", "b1", "c1", "c2"):
        queue.add(key)
    async with running(queue), asyncio.timeout(240):
        await queue.pass_now(["a4"])
    assert order == ["a1", "b1", "c1", "a2", "c2", "a3", "a4"]


async def test_a_key_that_waits_for_its_turn_is_worked_on_once_and_is_overdue() -> None:
    begun, go_on, order = asyncio.Event(), asyncio.Event(), []

    async def process(key: str) -> None:
        order.append(key)
        begun.set()
        await go_on.wait()

    queue = KeyQueue("test turns", process, concurrency=1)
    async with running(queue), asyncio.timeout(240):
        queue.add("a")
        await begun.wait()
        queue.add("b")
        await asyncio.sleep(0)
        queue.add("b")
        waited = asyncio.ensure_future(queue.pass_now(["b"]))
        while find_most_overdue()[1] == 0:  # noqa: ASYNC110 - time has no event
            await asyncio.sleep(0.001)
        go_on.set()
        await waited
    assert order == ["a", "b"]
