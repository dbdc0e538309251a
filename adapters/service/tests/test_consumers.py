# SPDX-License-Identifier: Apache-2.0
"""The consumer of the pool's queue stays through short actions, and leaves the queue of a busy worker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from adapter_service import DEADLINE, Service

from simyard_adapter.consumers import PoolConsumer
from simyard_adapter.logs import WorkerLog
from simyard_adapter.transport import Session
from simyard_adapter.wire import Request


class Channel:
    """A channel of a broker that notes the starts and stops of consumers."""

    def __init__(self) -> None:
        self.closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.connection = SimpleNamespace(url=SimpleNamespace(user="user"))
        self.on_consumer_cancel_callbacks: set[Any] = set()
        self.calls: list[str] = []

    async def basic_qos(self, **_: Any) -> None:
        """The limit does not matter here."""

    async def basic_consume(self, queue: str, receive: Any) -> Any:
        self.calls.append("start")
        return SimpleNamespace(consumer_tag="tag")

    async def basic_cancel(self, tag: str) -> None:
        self.calls.append("stop")


class Work:
    """A worker that is busy or free, and notes when it returns its waiting requests."""

    def __init__(self) -> None:
        self.busy = False
        self.returned = asyncio.Event()

    def may_take_from_pool(self, session: Session, *, consuming: bool) -> bool:
        return not self.busy

    def return_to_pool(self) -> None:
        self.returned.set()

    def drop_session(self, session: Session) -> None:
        """Nothing waits."""


async def test_a_short_action_does_not_stop_the_consumer_and_a_long_one_does(until: Any) -> None:
    channel, work = Channel(), Work()

    @asynccontextmanager
    async def open_channel() -> AsyncIterator[Channel]:
        yield channel

    connections: Any = SimpleNamespace(open_channel=open_channel)
    pool = PoolConsumer(connections, "user", lambda *_: None, work, asyncio.ensure_future, WorkerLog("worker"))
    running = asyncio.ensure_future(pool.run())
    await until(lambda: channel.calls)
    for _ in range(20):
        work.busy = True
        pool.adjust_soon()
        await asyncio.sleep(0)
        work.busy = False
        pool.adjust_soon()
        await asyncio.sleep(0)
    assert channel.calls == ["start"]
    assert not work.returned.is_set()
    work.busy = True
    pool.adjust_soon()
    await asyncio.wait_for(work.returned.wait(), DEADLINE)
    assert channel.calls == ["start", "stop"]
    work.busy = False
    pool.adjust_soon()
    await until(lambda: channel.calls == ["start", "stop", "start"])
    running.cancel()
    await asyncio.wait({running})


async def test_a_request_of_the_pool_that_meets_a_busy_worker_is_returned_before_it_begins(
    service: Service, tmp_path: Path, lines: Any, work: Any
) -> None:
    await service.start()
    for number in range(20):  # a slow machine delivers the second request too late to meet the first one
        gate = tmp_path / f"gate-{number}"
        parameters = {"action": "once", "parameters": work(gate=str(gate))}
        busy = await service.send(Request.ACTION, parameters, invocation=f"busy-{number}")
        asked = {"action": "once", "parameters": work(), "tellBegun": True}
        waiting = await service.send(Request.ACTION, asked, worker=None, invocation=f"waiting-{number}")
        await asyncio.wait({waiting}, timeout=1)
        gate.touch()
        assert "result" in await asyncio.wait_for(busy, DEADLINE)
        reply = await asyncio.wait_for(waiting, DEADLINE)
        if reply.get("again"):
            break
    else:
        raise AssertionError("no request was returned")
    assert reply["error"]["reason"] == "Busy"
    assert f"waiting-{number}" not in lines()
