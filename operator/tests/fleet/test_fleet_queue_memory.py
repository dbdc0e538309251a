# SPDX-License-Identifier: Apache-2.0
"""The memory of a queue does not grow with the work that is done."""

from __future__ import annotations

import asyncio

from simyard.fleet.work_queue import KeyQueue


async def test_times_that_are_brought_forward_again_and_again_are_not_kept() -> None:
    done = asyncio.Event()
    passes = 0

    async def process(_: str) -> float:
        nonlocal passes
        passes += 1
        if passes < 1000:
            queue.add("pool")
        else:
            done.set()
        return 600.0

    queue = KeyQueue("test", process)
    running = asyncio.create_task(queue.run())
    queue.add("pool")
    await done.wait()
    assert len(queue._heap) < 100
    running.cancel()


async def test_keys_that_are_worked_on_once_are_not_kept_for_their_distance() -> None:
    done: set[int] = set()
    all_done = asyncio.Event()

    async def process(key: int) -> None:
        done.add(key)
        if len(done) == 1000:
            all_done.set()

    queue = KeyQueue("test", process, spacing_seconds=0.0001)
    running = asyncio.create_task(queue.run())
    for key in range(1000):
        queue.add(key)
    await all_done.wait()
    assert len(queue._begun) < 200
    running.cancel()


async def test_a_key_waits_for_its_time_after_the_others_were_sorted_anew() -> None:
    order: list[int] = []
    all_done = asyncio.Event()

    async def process(key: int) -> None:
        order.append(key)
        if len(order) == 300:
            all_done.set()

    queue = KeyQueue("test", process, concurrency=1)
    for key in range(300):
        for round_ in range(3):
            queue.add(key, 0.3 - 0.1 * round_ + key * 0.0001)
    running = asyncio.create_task(queue.run())
    await all_done.wait()
    assert order == sorted(order)
    running.cancel()
