# SPDX-License-Identifier: Apache-2.0
"""Chunks of studies on a real broker: each task has one row, whatever dies meanwhile, and calls go first."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from part_store import PartStore

from simyard_adapter.wire import Event, Request

Service = Any
Lines = Any


@pytest.fixture
async def store(service: Service) -> AsyncIterator[PartStore]:
    made = PartStore()
    answering = asyncio.create_task(made.answer(service))
    yield made
    answering.cancel()
    made.close()


@pytest.fixture
def send(service: Service, tmp_path: Path) -> Any:
    async def send(chunk: str, count: int, action: str = "square", worker: str = "w1", **more: Any) -> None:
        parameters = {"runs": str(tmp_path / "runs"), **more.pop("parameters", {})}
        points = more.pop("points", [[number] for number in range(count)])
        body = {"action": action, "parameters": parameters, "names": ["number"], "points": points, "first": 0, **more}
        await service.send(Request.TASKS, body, invocation=chunk, worker=worker, reply=False)

    return send


async def test_the_rows_of_a_chunk_become_one_table_and_a_summary(
    service: Service, store: PartStore, send: Any
) -> None:
    await service.start()
    points = [[1], [2], ["x"], [-3]]
    await send("s.0.1", 4, points=points, watched=["square"])
    ended = await service.result("s.0.1")
    assert ended["stored"] is True
    summary = ended["chunk"]
    assert summary.pop("seconds") > 0
    assert summary == {
        "tasks": 4,
        "failures": {"InvalidParameters": [1, 2, 'parameters.number: "x" is not of type integer']},
        "failedIndexes": [2],
        "extremes": {"square": [1, 0, 9, 3]},
    }
    assert store.questions[0]["part"]["summary"].items() >= summary.items()
    rows = store.read("s.0")
    assert [row["result.square"] for row in rows] == ["1", "4", "", "9"]
    assert [row["parameters.number"] for row in rows] == ["1", "2", "x", "-3"]
    assert [(row["index"], row["worker"], row["attempts"], row["reason"]) for row in rows] == [
        ("0", "w1", "1", ""),
        ("1", "w1", "1", ""),
        ("2", "", "0", "InvalidParameters"),
        ("3", "w1", "1", ""),
    ]
    assert rows[2]["error"].startswith("parameters.number: ")


async def test_a_repeated_request_runs_no_task_again_and_repeats_the_result(
    service: Service, store: PartStore, send: Any, lines: Lines
) -> None:
    await service.start()
    await send("s.0.1", 2)
    await service.result("s.0.1")
    seen = len(service.events)
    await send("s.0.1", 2)
    await service.event(Event.RESULT, after=seen)
    assert len(lines()) == 2


async def test_the_first_table_of_a_chunk_wins(service: Service, store: PartStore, send: Any) -> None:
    await service.start("w1")
    await service.start("w2")
    await send("s.0.1", 1)
    assert (await service.result("s.0.1"))["stored"] is True
    await send("s.0.2", 1, worker="w2")
    assert (await service.result("s.0.2"))["stored"] is False
    assert [row["worker"] for row in store.read("s.0")] == ["w1"]


async def test_a_call_waits_for_one_task_only_and_comes_from_the_pool_too(
    service: Service, store: PartStore, send: Any, lines: Lines, work: Any, until: Any, tmp_path: Path
) -> None:
    await service.start()
    await send("s.0.1", 50, parameters={"gate": str(tmp_path / "gate")})
    await until(lines)
    reply = await service.send(
        Request.ACTION, {"action": "square", "parameters": work()}, worker=None, invocation="called"
    )
    await asyncio.sleep(0.3)  # the worker takes the call while a task runs; nobody announces that
    (tmp_path / "gate").touch()
    assert (await reply)["result"] == {"square": 9}
    await service.result("s.0.1")
    assert lines()[:3] == ["s.0.1", "called", "s.0.1"]


async def test_the_tasks_of_two_studies_alternate(
    service: Service, store: PartStore, send: Any, lines: Lines, until: Any, tmp_path: Path
) -> None:
    process = await service.start()
    gate = {"gate": str(tmp_path / "gate")}
    await send("a.0.1", 3, parameters=gate)
    await until(lines)
    for number, chunk in enumerate(("a.1.1", "b.0.1"), 2):
        await send(chunk, 3, parameters=gate)
        await until(lambda number=number: process.log.count("3 tasks accepted") == number)
    (tmp_path / "gate").touch()
    for chunk in ("a.0.1", "a.1.1", "b.0.1"):
        await service.result(chunk)
    assert [line[0] for line in lines()] == list("abababaaa")


@pytest.mark.parametrize(("action", "extra"), [("square", 1), ("once", 0)])
async def test_a_killed_adapter_goes_on_after_the_last_row(
    service: Service, store: PartStore, send: Any, lines: Lines, until: Any, tmp_path: Path, action: str, extra: int
) -> None:
    first = await service.start()
    await send("s.0.1", 3, action)
    await service.result("s.0.1")
    store.parts.clear()
    await send("t.0.1", 3, action, parameters={"gate": str(tmp_path / "gate")})
    await until(lambda: len(lines()) == 4)
    await first.kill()
    (tmp_path / "gate").touch()
    await service.start()
    await service.result("t.0.1")
    rows = store.read("t.0")
    assert [row["index"] for row in rows] == ["0", "1", "2"]
    assert [row["reason"] for row in rows] == ["" if extra else "Interrupted", "", ""]
    assert Counter(lines()) == {"s.0.1": 3, "t.0.1": 3 + extra}


async def test_rows_survive_an_adapter_that_is_killed_while_the_store_is_away(
    service: Service, store: PartStore, send: Any, lines: Lines
) -> None:
    store.refusal = {"message": "away", "retryable": True}
    first = await service.start()
    await send("s.0.1", 3, "once")
    await service.event(Event.FILES)
    await first.kill()
    store.refusal = None
    await service.start()
    assert (await service.result("s.0.1"))["chunk"]["tasks"] == 3
    assert len(lines()) == 3


async def test_a_failed_task_is_tried_again_as_often_as_the_study_says(
    service: Service, store: PartStore, send: Any
) -> None:
    await service.start()
    body = {"action": "fail", "names": [], "points": [[], []], "first": 7, "retries": 2}
    await service.send(Request.TASKS, body, invocation="s.0.1", reply=False)
    ended = await service.result("s.0.1")
    assert ended["chunk"]["failures"] == {"ActionFailed": [2, 7, "*ERROR: the deck is empty"]}
    assert ended["chunk"]["failedIndexes"] == [7, 8]
    assert [(row["attempts"], row["error"]) for row in store.read("s.0")] == [("3", "*ERROR: the deck is empty")] * 2


async def test_a_task_that_hangs_has_its_own_timeout(service: Service, store: PartStore, send: Any) -> None:
    await service.start()
    body = {"action": "wait", "names": [], "points": [[], []], "first": 0, "timeoutSeconds": 0.1}
    await service.send(Request.TASKS, body, invocation="s.0.1", reply=False)
    assert (await service.result("s.0.1"))["chunk"]["failures"]["TimedOut"][0] == 2


async def test_a_cancelled_chunk_keeps_its_rows_and_one_that_has_not_begun_has_none(
    service: Service, store: PartStore, send: Any, lines: Lines, until: Any, tmp_path: Path
) -> None:
    await service.start()
    gate = {"gate": str(tmp_path / "gate")}
    await send("s.0.1", 3, parameters=gate)
    await send("s.1.1", 3, parameters=gate)
    await until(lines)
    for chunk in ("s.1.1", "s.0.1"):
        assert (await service.ask(Request.CANCEL, {"invocation": chunk})) == {"cancelled": True}
    assert (await service.result("s.1.1"))["error"]["reason"] == "Cancelled"
    assert (await service.result("s.0.1"))["chunk"]["failures"]["Cancelled"][0] == 3
    assert [row["attempts"] for row in store.read("s.0")] == ["1", "0", "0"]
    assert len(lines()) == 1


async def test_a_draining_worker_finishes_the_chunk_it_has_begun_and_gives_back_others(
    service: Service, store: PartStore, send: Any, lines: Lines, until: Any, tmp_path: Path
) -> None:
    await service.start()
    gate = {"gate": str(tmp_path / "gate")}
    await send("s.0.1", 2, parameters=gate)
    await send("s.1.1", 2, parameters=gate)
    await until(lines)
    await service.ask(Request.DRAIN, {})
    assert (await service.result("s.1.1"))["error"]["reason"] == "Draining"
    (tmp_path / "gate").touch()
    assert (await service.result("s.0.1"))["chunk"]["tasks"] == 2
    await service.event(Event.DRAINED)
    await send("s.2.1", 2)
    assert (await service.result("s.2.1"))["error"]["reason"] == "Draining"


async def test_a_chunk_that_must_not_run_twice_is_announced(service: Service, store: PartStore, send: Any) -> None:
    await service.start()
    await send("s.0.1", 2, "once")
    await service.result("s.0.1")
    assert [body["invocation"] for body in service.all(Event.BEGUN)] == ["s.0.1"]


async def test_a_table_that_the_platform_refuses_ends_the_chunk(service: Service, store: PartStore, send: Any) -> None:
    store.refusal = {"message": "the study is gone", "retryable": False}
    await service.start()
    await send("s.0.1", 1)
    error = (await service.result("s.0.1"))["error"]
    assert (error["reason"], "the study is gone" in error["message"]) == ("FileTransferFailed", True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"action": "nothing", "names": [], "points": [[]], "first": 0}, "UnknownAction"),
        ({"action": "square", "names": ["number"], "points": [[]], "first": 0}, "InvalidRequest"),
        ({"action": "square", "names": [], "points": [], "first": 0}, "InvalidRequest"),
    ],
)
async def test_a_chunk_that_cannot_be_read_is_refused(service: Service, body: dict[str, Any], reason: str) -> None:
    await service.start()
    await service.send(Request.TASKS, body, invocation="s.0.1", reply=False)
    assert (await service.result("s.0.1"))["error"]["reason"] == reason


async def test_a_stream_of_calls_leaves_tasks_a_share_of_the_time(
    service: Service, store: PartStore, send: Any, until: Any
) -> None:
    await service.start()
    answered, ended = Counter[str](), asyncio.Event()

    async def call() -> None:
        while not ended.is_set():
            await service.ask(Request.ACTION, {"action": "report", "parameters": {"steps": 20}})
            answered["calls"] += 1

    callers = [asyncio.create_task(call()) for _ in range(6)]
    await until(lambda: answered["calls"] > 2)
    await send("s.0.1", 3)
    assert (await service.result("s.0.1"))["chunk"]["tasks"] == 3
    ended.set()
    await asyncio.gather(*callers)
