# SPDX-License-Identifier: Apache-2.0
"""Logs that are followed: over a real kube-apiserver and kubectl, and with clients that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from apiserver_stack import Client, Running, Stack, path_of

from simyard.api.names import WORKERS
from simyard.apiserver.streams import send_texts
from simyard.guest.messages import Reply, read_reply
from simyard.serving.calls import ResourceCall
from simyard.serving.logs import MAX_FAILURES, MAX_FOLLOWERS, MAX_FOLLOWERS_PER_WORKER, FollowedLog, Logs
from simyard.serving.status import StatusError, StatusReason
from simyard_dev import tools

pytestmark = pytest.mark.xdist_group("apiserver")

DEADLINE = 30.0
CALL = ResourceCall("get", "lab", WORKERS, "w1", ("log",))


async def take(lines: AsyncIterator[str], wanted: str) -> str:
    """Return the next line that contains a text."""
    async with asyncio.timeout(DEADLINE):
        async for line in lines:
            if wanted in line:
                return line
    raise AssertionError(f"the log ended without {wanted}")


@contextlib.asynccontextmanager
async def following(stack: Stack, path: str) -> AsyncIterator[AsyncIterator[str]]:
    """Follow a log with the real kubectl."""
    kubectl = await asyncio.to_thread(tools.ensure, ["kubectl"])
    process = await asyncio.create_subprocess_exec(
        kubectl["kubectl"],
        f"--kubeconfig={stack.control_plane.kubeconfig}",
        "get",
        "--raw",
        path,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    output = process.stdout

    async def lines() -> AsyncGenerator[str, None]:
        while line := await output.readline():
            yield line.decode()

    try:
        yield lines()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_kubectl_follows_the_log_of_a_worker(stack: Stack, client: Client, running: Running) -> None:
    path = path_of(running.namespace, "workers", "pool-0", "log")
    solve = path_of(running.namespace, "workers", "pool-0", "actions/solve")
    async with following(stack, f"{path}?follow=true&tailLines=1") as lines:
        await take(lines, "")
        for length in (311, 312):
            await client.post(solve, {"parameters": {"length": length}})
            assert (await take(lines, f"solving {length}")).endswith(f" solving {length}\n")


@pytest.mark.parametrize("query", ["follow=perhaps", "after=-1", "after=x"])
async def test_a_wrong_query_is_refused(client: Client, running: Running, query: str) -> None:
    assert (await client.get(path_of(running.namespace, "workers", "pool-0", f"log?{query}"))).status == 400


class Worker:
    """A worker whose replies the test gives, and the directory that has it."""

    def __init__(self) -> None:
        self.replies: list[dict[str, Any] | StatusError] = []
        self.asked: list[dict[str, Any]] = []
        self.exists = True
        self.connected = True

    async def find_target(self, _: ResourceCall) -> Any:
        return SimpleNamespace(subject="worker w1", metadata=SimpleNamespace(uid="uid"))

    def choose_destination(self, _: Any) -> Any:
        return SimpleNamespace()

    def find_worker_by_uid(self, _: str) -> object:
        return self if self.exists else None

    async def request(self, _: Any, __: Any, body: dict[str, Any], **___: Any) -> Reply:
        self.asked.append(body)
        reply = self.replies.pop(0)
        if isinstance(reply, StatusError):
            raise reply
        return read_reply(orjson.dumps(reply))


@pytest.fixture
def worker() -> Worker:
    return Worker()


def make_logs(worker: Worker) -> Logs:
    parts: Any = worker
    return Logs(parts, parts, poll_seconds=0)


async def read(worker: Worker, **query: str) -> list[str]:
    log = await make_logs(worker).read(CALL, query)
    assert isinstance(log, FollowedLog)
    return [text async for text in log.texts if text]


def say(log: str, position: int, *, ended: bool = False) -> dict[str, Any]:
    return {"log": log, "next": position, "ended": ended}


async def test_a_follower_asks_for_the_lines_after_those_that_it_knows(worker: Worker) -> None:
    worker.replies = [say("a\n", 2), say("", 2), say("b\nc\n", 6), say("d\n", 8, ended=True)]
    assert await read(worker, follow="true", invocation="id") == ["a\n", "b\nc\n", "d\n"]
    first = {"invocation": "id"}
    assert worker.asked == [first, *({**first, "after": after} for after in (2, 2, 6))]


async def test_all_lines_after_a_position_are_read_without_waiting(worker: Worker) -> None:
    worker.replies = [say("a\n", 2), say("b\n", 4), say("", 4)]
    assert await read(worker, after="0") == ["a\n", "b\n"]


async def test_a_follower_survives_a_worker_that_is_away_for_a_moment(worker: Worker) -> None:
    away = StatusError(StatusReason.SERVICE_UNAVAILABLE, "away")
    worker.replies = [say("a\n", 2), away, away, say("b\n", 4, ended=True)]
    assert await read(worker, follow="true") == ["a\n", "b\n"]


async def test_a_follower_ends_with_its_worker_and_after_many_failures(worker: Worker) -> None:
    worker.exists = False
    worker.replies = [say("a\n", 2)]
    assert await read(worker, follow="true") == ["a\n"]
    worker.exists = True
    away = StatusError(StatusReason.SERVICE_UNAVAILABLE, "away")
    worker.replies = [say("a\n", 2), *[away] * (MAX_FAILURES + 1)]
    assert await read(worker, follow="true") == ["a\n"]
    assert worker.replies == []


async def test_an_adapter_without_positions_cannot_be_followed(worker: Worker) -> None:
    worker.replies = [{"log": "a"}]
    assert await read(worker, follow="true") == ["a"]


async def test_the_number_of_followers_is_limited_in_all_and_for_each_worker(worker: Worker) -> None:
    async def texts() -> AsyncGenerator[str, None]:
        yield ""

    logs = make_logs(worker)
    with contextlib.ExitStack() as stack:
        for number in range(MAX_FOLLOWERS):
            stack.enter_context(logs.admit(FollowedLog(str(number // MAX_FOLLOWERS_PER_WORKER), texts())))
        for busy in ("0", "new"):
            with (
                pytest.raises(StatusError, match="too many clients follow logs"),
                logs.admit(FollowedLog(busy, texts())),
            ):
                pass
    with logs.admit(FollowedLog("0", texts())):
        pass


class Streams:
    """A server that streams the texts of the test, and notes when a stream has ended."""

    def __init__(self) -> None:
        self.url = ""
        self.ended = asyncio.Event()
        self.texts = ["x" * 2**20]
        self.write_seconds = DEADLINE
        self.max_seconds = DEADLINE

    async def _repeat(self) -> AsyncGenerator[str, None]:
        while True:
            for text in self.texts:
                await asyncio.sleep(0)
                yield text

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await send_texts(
                request, self._repeat(), max_seconds=self.max_seconds, write_seconds=self.write_seconds
            )
        finally:
            self.ended.set()


@pytest.fixture
async def streams() -> AsyncIterator[Streams]:
    made = Streams()
    runner = web.ServerRunner(web.Server(made.handle), shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    yield made
    await runner.cleanup()


async def test_a_client_that_reads_nothing_is_cut_off(streams: Streams) -> None:
    streams.write_seconds = 0.2
    async with aiohttp.ClientSession(read_bufsize=1) as session, session.get(streams.url):
        async with asyncio.timeout(DEADLINE):
            await streams.ended.wait()


async def test_a_client_that_has_gone_is_noticed_while_the_log_is_silent(streams: Streams) -> None:
    streams.texts = [""]
    async with aiohttp.ClientSession() as session, session.get(streams.url):
        assert not streams.ended.is_set()
    async with asyncio.timeout(DEADLINE):
        await streams.ended.wait()


async def test_a_stream_ends_after_its_time(streams: Streams) -> None:
    streams.texts, streams.max_seconds = ["", "text"], 0.1
    async with aiohttp.ClientSession() as session, session.get(streams.url) as response:
        async with asyncio.timeout(DEADLINE):
            assert set((await response.text()).split("text")) == {""}
