# SPDX-License-Identifier: Apache-2.0
"""The logs of Async actions go to the file store in parts, and neither delay nor fail their actions."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simyard_adapter.action_logs import MAX_KEPT, MAX_LOG_PARTS, PART_BYTES, READ_BYTES, ActionLogs
from simyard_adapter.context import Context
from simyard_adapter.current_session import Tasks
from simyard_adapter.errors import FileTransferError
from simyard_adapter.log_requests import LogRequests
from simyard_adapter.logs import WorkerLog
from simyard_adapter.wire import Event, Request

Service = Any
DEADLINE = 30.0
LINE = "x" * (PART_BYTES // 2)


class Store:
    """The control plane and its file store: the content of each part, and the reports about the logs."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        self.reports: list[list[str]] = []
        self.away = False
        self._changed = asyncio.Condition()

    async def upload(self, _: Context, path: Path, name: str, media_type: str, __: str) -> Mapping[str, Any]:
        assert (name, media_type) == ("solve.log", "text/plain")
        if self.away:
            raise FileTransferError("the store is away")
        address = f"part {len(self.parts)}"
        self.parts[address] = await asyncio.to_thread(path.read_bytes)
        return {"file": address, "bytes": len(self.parts[address])}

    async def publish_until_routed(self, _: str, key: str, kind: str, body: bytes) -> None:
        assert (key, kind) == ("log.user.uid", "log")
        async with self._changed:
            self.reports.append([part["file"] for part in json.loads(body)["parts"]])
            self._changed.notify_all()

    def read(self) -> list[str]:
        """The lines of the log as the last report gives it, without their times."""
        content = b"".join(self.parts[address] for address in self.reports[-1]).decode()
        return [line.partition(" ")[2] for line in content.splitlines()]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE), self._changed:
            await self._changed.wait_for(condition)


class Logs:
    """The logs of a worker with one action."""

    def __init__(self, store: Store, directory: Path, **settings: float) -> None:
        broker = SimpleNamespace(identity="user")
        bootstrap: Any = SimpleNamespace(broker=broker, worker="w1", worker_uid="uid")
        self.directory = directory
        self.tasks = Tasks()
        self.has_store = True
        current: Any = store
        self.logs = ActionLogs(
            bootstrap, directory, current, self.tasks, store.upload, lambda: self.has_store, **settings
        )
        self.context = Context("id", "solve", Path("unused"), lambda _: None, lambda _: None)
        self.stored = asyncio.Event()
        self.logs.begin(self.context, self.stored.set)

    async def end(self) -> None:
        self.logs.end(self.context)
        async with asyncio.timeout(DEADLINE):
            await self.stored.wait()
        assert self.logs.unfinished == set()


@pytest.fixture
async def store() -> Store:
    return Store()


@pytest.fixture
async def logs(store: Store, tmp_path: Path) -> AsyncIterator[Logs]:
    made = Logs(store, tmp_path / "logs")
    yield made
    await made.tasks.close()
    assert list((tmp_path / "logs").iterdir()) == []


async def test_the_whole_log_is_stored_after_the_end(store: Store, logs: Logs) -> None:
    logs.context.log("one")
    logs.context.log("two")
    await logs.end()
    logs.context.log("late")
    assert store.read() == ["one", "two"]
    assert store.reports == [["part 0"]]


async def test_a_log_is_stored_in_parts_while_its_action_runs(store: Store, logs: Logs) -> None:
    for number in (1, 2):
        for _ in range(2):
            logs.context.log(LINE)
        await store.until(lambda number=number: len(store.reports) == number)  # type: ignore[misc]
    assert store.reports == [["part 0"], ["part 0", "part 1"]]
    logs.context.log("end")
    await logs.end()
    assert store.read() == [LINE] * 4 + ["end"]
    assert store.reports[-1] == ["part 0", "part 1", "part 2"]


async def test_many_parts_become_one(store: Store, tmp_path: Path) -> None:
    logs = Logs(store, tmp_path / "logs", max_pause_seconds=0.001)
    lines = [f"line {number}" for number in range(MAX_LOG_PARTS + 1)]
    for number, line in enumerate(lines, 1):
        logs.context.log(line)
        await store.until(lambda number=number: len(store.reports) == number)  # type: ignore[misc]
        assert store.read() == lines[:number]
    assert [len(report) for report in store.reports[-3:]] == [MAX_LOG_PARTS - 1, MAX_LOG_PARTS, 1]
    await logs.end()


async def test_a_part_that_cannot_be_stored_is_contained_in_the_next_one(store: Store, logs: Logs) -> None:
    store.away = True
    logs.context.log(LINE + LINE)
    await asyncio.to_thread(logs.context.log, "end")
    store.away = False
    await logs.end()
    assert store.read() == [LINE + LINE, "end"]


async def test_a_line_that_the_disk_takes_in_part_is_dropped(store: Store, logs: Logs) -> None:
    logs.context.log("one")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # stands for a full disk
    try:
        logs.context.log("x" * 2000)
        logs.context.log("y" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    logs.context.log("two")
    await logs.end()
    assert store.read() == ["one", "two"]


async def test_a_silent_action_and_a_platform_without_a_store_have_no_log(store: Store, tmp_path: Path) -> None:
    silent = Logs(store, tmp_path / "silent")
    await silent.end()
    without = Logs(store, tmp_path / "without")
    without.has_store = False
    without.context.log("line")
    await without.end()
    assert store.parts == {}


async def test_readers_get_a_log_from_any_position_until_some_time_after_its_end(logs: Logs) -> None:
    requests = LogRequests(WorkerLog("w1"), logs.logs)

    async def read(**body: int) -> tuple[list[str], int, bool]:
        reply = await requests.read({"invocation": "id", **body})
        return [line.partition(" ")[2] for line in reply["log"].splitlines()], reply["next"], reply["ended"]

    assert await read(after=0) == ([], 0, False)
    for word in ("one", "two", "three"):
        logs.context.log(word)
    lines, end, ended = await read(after=0)
    assert (lines, ended) == (["one", "two", "three"], False)
    assert await read(tailLines=2) == (["two", "three"], end, False)
    assert await read(after=end) == ([], end, False)
    await logs.end()
    assert await read(after=end) == ([], end, True)
    assert (await read(after=0))[0] == lines


async def test_a_long_log_is_read_in_pieces_that_end_with_a_line(logs: Logs) -> None:
    requests = LogRequests(WorkerLog("w1"), logs.logs)
    words = [f"word {number} \u00e9" for number in range(10_000)]
    for word in words:
        logs.context.log(word)
    found: list[str] = []
    position = 0
    while (reply := await requests.read({"invocation": "id", "after": position}))["log"]:
        assert reply["log"].endswith("\n")
        assert len(reply["log"]) <= READ_BYTES
        found += [line.partition(" ")[2] for line in reply["log"].splitlines()]
        position = reply["next"]
    assert found == words


async def test_the_logs_of_few_ended_actions_are_kept(store: Store, tmp_path: Path) -> None:
    logs = Logs(store, tmp_path / "logs")
    contexts = [logs.context]
    for number in range(MAX_KEPT):
        contexts.append(Context(f"id {number}", "solve", Path("unused"), lambda _: None, lambda _: None))
        logs.logs.begin(contexts[-1], lambda: None)
    for context in contexts:
        context.log("line")
        reports = len(store.reports)
        logs.logs.end(context)
        await store.until(lambda reports=reports: len(store.reports) > reports)  # type: ignore[misc]
    async with asyncio.timeout(DEADLINE):
        while logs.logs.find("id") is not None:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert logs.logs.find("id 0") is not None
    logs.logs.stop()
    async with asyncio.timeout(DEADLINE):
        while list((tmp_path / "logs").iterdir()):  # noqa: ASYNC110
            await asyncio.sleep(0)
    await logs.tasks.close()


async def test_a_log_neither_delays_nor_fails_its_action(service: Service) -> None:
    """No question about a file is answered: the store is away."""
    await service.start()
    body = {"action": "report", "parameters": {"steps": 3}, "mode": "Async", "timeoutSeconds": 5}
    await service.send(Request.ACTION, body, invocation="reported", reply=False)
    assert (await service.result("reported"))["result"] == {}
    assert "error" not in await service.result("reported")


async def test_the_stored_log_is_reported_after_the_result(service: Service) -> None:
    await service.start()
    await service.begin("report", {"steps": 3}, invocation="reported")
    question = await service.event(Event.FILES)
    assert (await service.result("reported"))["result"] == {}
    answer = {"request": question["request"], "status": {"present": True}}
    await service.send(Request.FILES, answer, reply=False)
    reported = await service.event(Event.LOG)
    expected = {"file": question["put"]["address"], "bytes": question["put"]["bytes"]}
    assert (reported["invocation"], reported["parts"]) == ("reported", [expected])


async def test_a_worker_drains_when_its_last_log_is_stored(service: Service) -> None:
    await service.start()
    await service.begin("report", {"steps": 3})
    question = await service.event(Event.FILES)
    await service.send(Request.DRAIN, {}, reply=False)
    await service.send(Request.FILES, {"request": question["request"], "status": {"present": True}}, reply=False)
    await service.event(Event.DRAINED)
    kinds = [kind for kind, _, _ in service.events]
    assert kinds.index(Event.LOG) < kinds.index(Event.DRAINED)
