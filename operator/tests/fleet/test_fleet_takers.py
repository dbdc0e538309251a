# SPDX-License-Identifier: Apache-2.0
"""The choice of workers that take from the pool's queue, with caches that are filled by hand."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import orjson
import pytest

from simyard.api import names
from simyard.api.base import Json
from simyard.fleet.broker.orders import Orders
from simyard.fleet.pools.takers import BATCH, Takers
from simyard.fleet.registry import Registry
from simyard.fleet.timing import Timing
from simyard.fleet.wiring import connect
from simyard.guest.messages import read_event
from simyard.messaging.errors import BrokerUnavailableError, NoConsumerError
from simyard.messaging.events import ReceivedEvent
from simyard.plan.takers import STANDING_TAKERS
from simyard_adapter.wire import Event, Request, name_pool_user
from simyard_sites.kubernetes.resource import Resource

TIME = "2026-01-01T12:00:00Z"
DEADLINE_SECONDS = 240.0


class FakeRequester:
    """A requester that records the workers that it tells; ``fails`` returns the error for a worker."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.at_once = self.most_at_once = 0
        self.fails: Callable[[str], Exception | None] = lambda _: None

    async def publish_transient(self, queue: str, kind: Request, body: Mapping[str, Json], message_id: str) -> None:
        assert (kind, body) == (Request.TAKE, {})
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        uid = queue.rpartition(".")[2]
        if (error := self.fails(uid)) is not None:
            raise error
        self.told.append(uid)


class World:
    def __init__(self) -> None:
        self.registry = Registry(cast(Any, None))
        self.requester = FakeRequester()
        self.takers = Takers(
            self.registry,
            Orders(self.registry, cast(Any, self.requester)),
            Timing(takers_spacing_seconds=0.001),
        )
        connect(self.registry, self.takers)
        self._numbers = itertools.count(1)
        self.put(names.WORKER_POOLS, "pool", {"serviceRef": {"name": "service"}})

    def put(self, resource: Resource, name: str, spec: Json, status: Json | None = None, **meta: Any) -> None:
        metadata = {"namespace": "ns", "uid": name, "resourceVersion": str(next(self._numbers)), **meta}
        raw = {"metadata": {"name": name, **metadata}, "spec": spec, "status": status or {}}
        next(cache for cache in self.registry.caches if cache.resource is resource).learn(raw)

    def workers(self, *numbers: int, ready: bool = True, drain: bool = False, pool: str = "pool") -> None:
        owner = {"kind": "WorkerPool", "name": pool, "uid": pool, "controller": True}
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": "Registered" if ready else "Starting",
            "lastTransitionTime": TIME,
        }
        spec = {"serviceRef": {"name": "service"}, "site": "a", "drain": drain}
        for number in numbers:
            status = {"conditions": [condition]}
            self.put(names.WORKERS, uid(number), spec, status, ownerReferences=[owner] if pool else [])

    def end(self, *numbers: int) -> None:
        for number in numbers:
            worker = self.registry.find_worker(uid(number))
            assert worker is not None
            self.registry.workers.forget(worker)

    def assign(self, *numbers: int, finished: bool = False) -> None:
        condition = {"type": "Complete", "status": "True", "reason": "Succeeded", "lastTransitionTime": TIME}
        for number in numbers:
            status = {"worker": uid(number), "workerUid": uid(number), "conditions": [condition] if finished else []}
            spec = {"target": {"kind": "WorkerPool", "name": "pool"}, "action": "solve"}
            self.put(names.SERVICE_ACTIONS, f"action-{number}", spec, status)

    def hear(self, kind: Event, *numbers: int, **body: Any) -> None:
        for number in numbers:
            message = read_event(kind, orjson.dumps(body))
            self.takers.apply_event(ReceivedEvent(name_pool_user("pool"), uid(number), message, received_at=1000.0))

    async def tells(self, count: int) -> set[str]:
        """Return the workers that were told in the end; there are exactly ``count``."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self.requester.told) < count or self.is_about_to():  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert len(self.requester.told) == count, self.requester.told
        return set(self.requester.told)

    def is_about_to(self) -> bool:
        queue = self.takers._queue
        return bool(queue._due or queue._running)


def uid(number: int) -> str:
    return f"w-{number}"


def uids(*numbers: int) -> set[str]:
    return {uid(number) for number in numbers}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    task = asyncio.create_task(made.takers.run())
    yield made
    task.cancel()
    await asyncio.wait([task])


async def test_a_few_of_a_large_pool_are_told_and_nobody_else(world: World) -> None:
    world.workers(*range(100), ready=False)
    world.workers(*range(50))
    world.workers(*range(200, 210), pool="")
    assert await world.tells(STANDING_TAKERS) < uids(*range(50))


async def test_all_are_told_in_batches_when_the_pool_is_used_and_who_comes_later_too(world: World) -> None:
    count = 4 * BATCH
    world.workers(*range(count))
    await world.tells(STANDING_TAKERS)
    world.hear(Event.ACTIVE, 3)
    await world.tells(count)
    assert world.requester.most_at_once <= BATCH
    world.workers(count, count + 1)
    assert await world.tells(count + 2) == uids(*range(count + 2))


async def test_takers_that_go_drain_or_work_are_replaced(world: World) -> None:
    world.workers(*range(100))
    first = await world.tells(STANDING_TAKERS)
    one, two, three = sorted(int(name.removeprefix("w-")) for name in first)[:3]
    world.end(one)
    world.workers(two, drain=True)
    world.assign(three)
    assert not (await world.tells(STANDING_TAKERS + 3) - first) & uids(one, two, three)


async def test_a_taker_that_has_worked_counts_again(world: World) -> None:
    world.workers(*range(100))
    first = [int(name.removeprefix("w-")) for name in await world.tells(STANDING_TAKERS)]
    world.assign(*first)
    await world.tells(2 * STANDING_TAKERS)
    world.assign(*first, finished=True)
    world.end(*(number for number in range(100) if uid(number) in set(world.requester.told) - uids(*first)))
    await world.tells(2 * STANDING_TAKERS)


async def test_a_new_process_is_told_again_and_one_that_takes_is_not(world: World) -> None:
    world.workers(*range(STANDING_TAKERS))
    await world.tells(STANDING_TAKERS)
    world.hear(Event.REGISTER, 1, takes=True)
    world.hear(Event.REGISTER, 2, takes=False)
    world.hear(Event.REGISTER, 3)
    await world.tells(STANDING_TAKERS + 2)
    assert set(world.requester.told[STANDING_TAKERS:]) == uids(2, 3)


async def test_workers_that_take_by_their_own_word_need_not_be_told(world: World) -> None:
    world.workers(*range(STANDING_TAKERS), ready=False)
    world.hear(Event.REGISTER, *range(STANDING_TAKERS), takes=True)
    world.workers(*range(STANDING_TAKERS + 1))
    world.workers(50, pool="other")
    assert await world.tells(1) == uids(50)


async def test_a_broker_that_is_away_is_tried_until_it_is_back(world: World) -> None:
    failures = itertools.count()
    world.requester.fails = lambda _: BrokerUnavailableError("away") if next(failures) < 40 else None
    world.workers(*range(STANDING_TAKERS))
    assert await world.tells(STANDING_TAKERS) == uids(*range(STANDING_TAKERS))


async def test_a_worker_without_a_queue_holds_up_nobody(world: World) -> None:
    world.requester.fails = lambda name: NoConsumerError("no queue") if name == uid(0) else None
    world.workers(*range(STANDING_TAKERS))
    assert await world.tells(STANDING_TAKERS - 1) == uids(*range(1, STANDING_TAKERS))


async def test_of_a_pool_that_is_gone_nothing_is_kept(world: World) -> None:
    world.workers(*range(3))
    world.hear(Event.ACTIVE, 0)
    await world.tells(3)
    pool = world.registry.pools.get("ns", "pool")
    assert pool is not None
    world.registry.pools.forget(pool)
    world.hear(Event.ACTIVE, 0)
    world.end(*range(3))
    assert not world.takers._told
    assert not world.takers._used
    assert not world.takers._pools
