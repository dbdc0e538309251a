# SPDX-License-Identifier: Apache-2.0
"""Answers to questions of workers about files: order, limits and faults, without a file store."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import orjson
import pytest

from simyard.api import names
from simyard.api.base import Json
from simyard.fleet.broker.orders import Orders
from simyard.fleet.files import (
    DOWNLOAD_BYTES,
    MAX_PARALLEL,
    MAX_PARALLEL_PER_SENDER,
    MAX_WAITING_BYTES_PER_SENDER,
    NO_STORE,
    PART_BYTES,
    UPLOAD_BYTES,
    FileAnswers,
)
from simyard.fleet.registry import Registry
from simyard.guest.messages import read_event
from simyard.messaging.events import ReceivedEvent
from simyard_adapter.digests import MAX_PARTS
from simyard_adapter.wire import Event, Request

ADDRESS = f"sha256:{'0' * 64}"
DEADLINE_SECONDS = 240.0


class FakeRequester:
    """A requester that records the answers; it sends none while ``open`` is not set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.under_way = 0
        self.answers: list[Mapping[str, Json]] = []
        self.error: Exception | None = None

    async def publish_transient(self, queue: str, kind: Request, body: Mapping[str, Json], message_id: str) -> None:
        assert kind is Request.FILES
        self.under_way += 1
        await self.open.wait()
        self.under_way -= 1
        if (error := self.error) is not None:
            self.error = None
            raise error
        self.answers.append(body)


class World:
    def __init__(self) -> None:
        registry = Registry(cast(Any, None))
        self.requester = FakeRequester()
        self.files = FileAnswers(registry, Orders(registry, cast(Any, self.requester)), None, cast(Any, None))
        self._workers = next(cache for cache in registry.caches if cache.resource is names.WORKERS)
        for name in ("honest", "hostile"):
            self.add_worker(name)

    def add_worker(self, name: str) -> None:
        metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"}
        spec = {"serviceRef": {"name": "service"}, "site": "site"}
        self._workers.learn({"metadata": metadata, "spec": spec, "status": {}})

    def ask(self, worker: str, number: int, **question: Any) -> None:
        body = orjson.dumps({"request": f"{number:032x}", **(question or {"get": ADDRESS})})
        self.files.apply_event(ReceivedEvent(f"worker-{worker}", worker, read_event(Event.FILES, body), 0.0))

    async def until(self, check: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not check():  # noqa: ASYNC110 - the world has no event for it
                await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    running = asyncio.create_task(made.files.run())
    await asyncio.sleep(0)
    yield made
    assert not running.done(), "no question ends the operator"
    running.cancel()
    await asyncio.wait([running])


async def test_without_a_file_store_every_question_is_answered_with_the_remedy(world: World) -> None:
    world.ask("honest", 1)
    await world.until(lambda: len(world.requester.answers) == 1)
    error = {"message": NO_STORE, "retryable": False, "absent": True}
    assert world.requester.answers == [{"request": f"{1:032x}", "error": error}]


async def test_a_repeated_question_is_answered_once_and_a_sender_has_its_share_only(world: World) -> None:
    world.requester.open.clear()
    for number in [*range(100), *range(100)]:
        world.ask("hostile", number)
    await world.until(lambda: world.requester.under_way == MAX_PARALLEL_PER_SENDER)
    world.ask("honest", 0)
    await world.until(lambda: world.requester.under_way == MAX_PARALLEL_PER_SENDER + 1)
    world.requester.open.set()
    await world.until(lambda: len(world.requester.answers) == 101)
    world.ask("hostile", 1)
    await world.until(lambda: len(world.requester.answers) == 102)


async def test_what_a_sender_may_leave_waiting_is_bounded(world: World) -> None:
    world.requester.open.clear()
    size = MAX_PARTS * 64 * 1024 * 1024
    put = {"address": f"sha256-64m:{'0' * 64}", "bytes": size, "parts": ["0" * 64] * MAX_PARTS}
    most = MAX_WAITING_BYTES_PER_SENDER // (UPLOAD_BYTES + PART_BYTES * MAX_PARTS)
    for number in range(2 * most):
        world.ask("hostile", number, put=put)
    world.requester.open.set()
    await world.until(lambda: len(world.requester.answers) == most)
    world.ask("hostile", 2 * most)
    await world.until(lambda: world.requester.answers[-1]["request"] == f"{2 * most:032x}")
    assert len(world.requester.answers) == most + 1


@pytest.mark.parametrize(
    ("size", "question"),
    [
        (DOWNLOAD_BYTES, {"get": ADDRESS}),
        (UPLOAD_BYTES, {"put": {"address": ADDRESS, "bytes": 1, "name": "ü" * 255, "uploadId": "i" * 1024}}),
    ],
)
async def test_waiting_questions_take_at_most_the_memory_that_is_said(
    world: World, size: int, question: dict[str, Any]
) -> None:
    world.requester.open.clear()
    tasks = len(asyncio.all_tasks())
    tracemalloc.start()
    try:
        for number in range(MAX_WAITING_BYTES_PER_SENDER // size):
            world.ask("hostile", number, **question)
        assert tracemalloc.get_traced_memory()[0] <= MAX_WAITING_BYTES_PER_SENDER
    finally:
        tracemalloc.stop()
    assert len(asyncio.all_tasks()) - tasks == MAX_PARALLEL_PER_SENDER
    world.requester.open.set()
    await world.until(lambda: len(world.requester.answers) == MAX_WAITING_BYTES_PER_SENDER // size)


async def test_senders_take_turns(world: World) -> None:
    world.requester.open.clear()
    senders = [f"sender-{number}" for number in range(2 * MAX_PARALLEL // MAX_PARALLEL_PER_SENDER)]
    for sender in senders:
        world.add_worker(sender)
        for number in range(2 * MAX_PARALLEL_PER_SENDER):
            world.ask(sender, number)
    await world.until(lambda: world.requester.under_way == MAX_PARALLEL)
    world.ask("honest", 1000)
    world.requester.open.set()
    total = len(senders) * 2 * MAX_PARALLEL_PER_SENDER + 1
    await world.until(lambda: len(world.requester.answers) == total)
    [place] = [n for n, answer in enumerate(world.requester.answers) if answer["request"] == f"{1000:032x}"]
    assert place < total - MAX_PARALLEL_PER_SENDER


async def test_a_defect_in_one_answer_stops_no_other_answer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.requester.error = RuntimeError("defect")
    world.ask("hostile", 1)
    await world.until(lambda: world.requester.error is None)
    world.ask("honest", 2)
    await world.until(lambda: len(world.requester.answers) == 1)
    assert "cannot be answered" in caplog.text
