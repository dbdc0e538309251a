# SPDX-License-Identifier: Apache-2.0
"""Adapters and brokers that die: no accepted action is lost, and none runs twice."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from simyard_adapter.wire import Event, Request
from simyard_dev.local_broker import LocalBroker

Service = Any
Lines = Any


@pytest.fixture
async def fragile(mortal_broker: LocalBroker, tmp_path: Path, install: Any) -> AsyncIterator[Service]:
    await asyncio.to_thread(mortal_broker.start)  # a test that failed may have left it stopped
    async with install(mortal_broker, tmp_path) as made:
        yield made


async def test_a_sync_action_of_a_killed_worker_is_run_by_another_one_if_idempotent(
    service: Service, tmp_path: Path, lines: Lines, gated: Any, until: Any
) -> None:
    first = await service.start("w1")
    reply = await service.send(
        Request.ACTION, {"action": "square", "parameters": gated()}, worker=None, invocation="sync"
    )
    await until(lines)
    await service.start("w2")
    await first.kill()
    await until(lambda: len(lines()) == 2)
    (tmp_path / "gate").touch()
    assert (await reply)["result"] == {"square": 9}


async def test_a_sync_action_of_a_killed_worker_is_interrupted_if_not_idempotent(
    service: Service, tmp_path: Path, lines: Lines, gated: Any, until: Any
) -> None:
    first = await service.start("w1")
    reply = await service.send(Request.ACTION, {"action": "once", "parameters": gated()}, worker=None)
    await until(lines)
    await service.start("w2")
    await first.kill()
    assert (await asyncio.wait_for(reply, 240))["error"]["reason"] == "Interrupted"
    assert len(lines()) == 1


async def test_a_requester_can_tell_whether_a_request_that_came_back_was_begun(
    service: Service, lines: Lines, work: Any
) -> None:
    body = {"action": "once", "parameters": work(), "tellBegun": True}
    reply = await service.send(Request.ACTION, body, worker=None)
    await service.return_one()
    await service.start()
    answer = await asyncio.wait_for(reply, 240)
    assert (answer["error"]["reason"], answer["again"], service.begun) == ("Interrupted", True, [])
    assert (await service.ask(Request.ACTION, body, worker=None))["result"] == {"square": 9}
    assert (len(service.begun), len(lines())) == (1, 1)


async def test_who_is_not_told_of_begins_is_not_asked_to_send_again(service: Service, lines: Lines, work: Any) -> None:
    reply = await service.send(Request.ACTION, {"action": "once", "parameters": work()}, worker=None)
    await service.return_one()
    await service.start()
    answer = await asyncio.wait_for(reply, 240)
    assert (answer["error"]["reason"], "again" in answer, lines()) == ("Interrupted", False, [])


async def test_a_request_that_was_begun_is_not_forgotten_with_its_worker(
    service: Service, lines: Lines, gated: Any, until: Any
) -> None:
    first = await service.start("w1")
    body = {"action": "once", "parameters": gated(), "tellBegun": True}
    reply = await service.send(Request.ACTION, body, worker=None)
    await until(lines)
    await service.start("w2")
    await first.kill()
    assert (await asyncio.wait_for(reply, 240))["error"]["reason"] == "Interrupted"
    assert (len(service.begun), len(lines())) == (1, 1)


async def test_a_killed_adapter_continues_from_its_journal(
    service: Service, tmp_path: Path, lines: Lines, gated: Any, until: Any
) -> None:
    adapter = await service.start()
    await service.begin("once", gated(), invocation="running")
    await until(lines)
    for invocation, action in (("waits-once", "once"), ("waits-square", "square")):
        await service.begin(action, gated(), invocation=invocation)
    await service.ask(Request.GET_ATTRIBUTES, {})
    await adapter.kill()
    await service.start()
    registration = service.all(Event.REGISTER)[-1]
    assert "running" in registration["accepted"]
    assert (await service.result("running"))["error"]["reason"] == "Interrupted"
    (tmp_path / "gate").touch()
    for invocation in ("waits-once", "waits-square"):
        assert (await service.result(invocation))["result"] == {"square": 9}
    assert lines() == ["running", "waits-once", "waits-square"]


async def test_an_adapter_that_is_killed_again_and_again_loses_and_repeats_nothing(
    service: Service, work: Any, lines: Lines, until: Any
) -> None:
    adapter = await service.start()
    once, square = [f"once-{i}" for i in range(15)], [f"square-{i}" for i in range(15)]
    for pair in zip(once, square, strict=True):
        for invocation in pair:
            await service.begin(invocation.partition("-")[0], work(), invocation=invocation)
    for kill_after in (1, 2, 5, 9, 14, 20):
        await until(lambda it=kill_after: len(lines()) >= it)
        await adapter.kill()
        adapter = await service.start()
    reasons = {}
    for invocation in (*once, *square):
        result = await service.result(invocation)
        reasons[invocation] = result.get("error", {}).get("reason")
    runs = lines()
    assert [runs.count(it) for it in once if runs.count(it) > 1] == []
    assert all(reasons[it] == "Interrupted" for it in once if it not in runs)
    assert {reasons[it] for it in once} <= {None, "Interrupted"}
    assert {reasons[it] for it in square} == {None}
    assert set(square) <= set(runs)


async def test_a_killed_adapter_runs_an_idempotent_action_again(
    service: Service, tmp_path: Path, lines: Lines, gated: Any, until: Any
) -> None:
    adapter = await service.start()
    await service.begin("square", gated(), invocation="again")
    await until(lines)
    await adapter.kill()
    (tmp_path / "gate").touch()
    await service.start()
    assert (await service.result("again"))["result"] == {"square": 9}
    assert lines() == ["again", "again"]
    # A request that comes back, because its acknowledgement was lost with the adapter, is answered again.
    results = [body for body in service.all(Event.RESULT) if body["invocation"] == "again"]
    assert all(body == results[0] for body in results)


async def test_programs_of_a_killed_adapter_are_ended_by_the_next_one(
    service: Service, tmp_path: Path, alive: Any, until: Any
) -> None:
    adapter = await service.start()
    pids = tmp_path / "pids"
    await service.begin("sleep", {"pids": str(pids)})
    await until(pids.exists)
    leader, child = map(int, pids.read_text().split())
    await adapter.kill()
    assert alive(leader)
    assert alive(child)
    await service.start()
    await until(lambda: not alive(leader) and not alive(child))


async def test_an_adapter_that_is_told_to_end_leaves_nothing_open(
    service: Service, tmp_path: Path, lines: Lines, gated: Any, until: Any
) -> None:
    adapter = await service.start("w1")
    await service.begin("once", gated(), invocation="interrupted")
    await until(lines)
    waiting = await service.send(Request.ACTION, {"action": "once", "parameters": gated()})
    await service.begin("once", gated(), invocation="later")
    await service.ask(Request.GET_ATTRIBUTES, {})
    adapter.send_signal(signal.SIGTERM)
    assert await adapter.wait() == 0
    assert (await service.result("interrupted"))["error"]["reason"] == "Interrupted"
    assert (await asyncio.wait_for(waiting, 240))["error"]["reason"] == "Draining"
    (tmp_path / "gate").touch()
    await service.start("w1")
    assert (await service.result("later"))["result"] == {"square": 9}
    assert lines() == ["interrupted", "later"]


async def test_an_idempotent_sync_action_of_an_ending_worker_moves_to_another_one(
    service: Service, tmp_path: Path, lines: Lines, gated: Any, until: Any
) -> None:
    adapter = await service.start("w1")
    reply = await service.send(
        Request.ACTION, {"action": "square", "parameters": gated()}, worker=None, invocation="moved"
    )
    await until(lines)
    await service.start("w2")
    adapter.send_signal(signal.SIGTERM)
    assert await adapter.wait() == 0
    (tmp_path / "gate").touch()
    assert (await asyncio.wait_for(reply, 240))["result"] == {"square": 9}
    assert lines() == ["moved", "moved"]


@pytest.mark.xdist_group("mortal-broker")
@pytest.mark.parametrize("grace_seconds", [20.0, 0.0], ids=["stopped", "killed"])
async def test_a_broker_that_goes_and_comes_back_loses_and_repeats_nothing(
    fragile: Service,
    mortal_broker: LocalBroker,
    tmp_path: Path,
    lines: Lines,
    grace_seconds: float,
    gated: Any,
    until: Any,
) -> None:
    await fragile.start("w1")
    await fragile.start("w2")
    await fragile.begin("once", gated(), invocation="runs")
    await until(lines)
    await fragile.begin("once", gated(), invocation="waits")
    reply = await fragile.send(
        Request.ACTION, {"action": "once", "parameters": gated()}, invocation="sync", worker="w2"
    )
    await until(lambda: len(lines()) == 2)
    seen = len(fragile.events)
    await asyncio.to_thread(mortal_broker.stop, grace_seconds)
    (tmp_path / "gate").touch()  # "waits" begins only when the broker has confirmed that it does
    await asyncio.to_thread(mortal_broker.start)
    await fragile.apply()
    await fragile.connect()
    for worker in ("w1", "w2"):
        again = await fragile.event(Event.REGISTER, lambda body, it=worker: body["worker"] == it, after=seen)
        before = next(body for body in fragile.all(Event.REGISTER) if body["worker"] == worker)
        assert again["bootId"] == before["bootId"]
    for invocation in ("runs", "waits"):
        assert (await fragile.result(invocation))["result"] == {"square": 9}
    assert (await asyncio.wait_for(reply, 240))["result"] == {"square": 9}
    assert sorted(lines()) == ["runs", "sync", "waits"]
    assert (await fragile.act("fail", worker="w1"))["error"]["reason"] == "ActionFailed"


async def test_a_worker_whose_queue_was_deleted_comes_back_when_it_exists_again(service: Service) -> None:
    await service.start()
    seen = len(service.events)
    await service.manage("DELETE", f"queues/{service.vhost}/simyard.worker.{service.user}.w1")
    await service.add_worker("w1")
    await service.event(Event.REGISTER, after=seen)
    assert (await service.act("fail"))["error"]["reason"] == "ActionFailed"
