# SPDX-License-Identifier: Apache-2.0
"""An adapter and the control plane, over a real broker with TLS and least privilege."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from simyard_adapter.wire import Event, Request

Service = Any


async def test_a_worker_registers_once_with_its_attributes(service: Service) -> None:
    await service.start(bootstrap=service.bootstrap(attributes={"colour": "red"}))
    await service.act("square", {"number": 2, "runs": os.devnull})
    (registration,) = service.all(Event.REGISTER)
    assert registration["attributes"] == {"state": "idle", "done": 0, "colour": "red"}
    assert registration["interfaceDigest"] == service.bootstrap().interface.compute_digest()
    assert registration["accepted"] == []
    assert registration["takes"] is False


async def test_a_sync_action_answers_with_its_result(service: Service, tmp_path: Path, work: Any) -> None:
    await service.start()
    reply = await service.act("square", work(7))
    assert reply["result"] == {"square": 49}
    assert 0 <= reply["seconds"] < 30


async def test_an_async_action_tells_that_it_started_and_its_result(
    service: Service, tmp_path: Path, work: Any
) -> None:
    await service.start()
    gate = tmp_path / "gate"
    invocation = await service.begin("square", work(5, gate=str(gate)))
    assert await service.event(Event.PROGRESS) == {"worker": "w1", "invocation": invocation}
    gate.touch()
    result = await service.result(invocation)
    assert result["result"] == {"square": 25}
    assert result["worker"] == "w1"
    assert result["startedAt"] > 1e9
    kinds = [kind for kind, body, _ in service.events if body.get("invocation") == invocation]
    assert kinds == [Event.PROGRESS, Event.RESULT]


async def test_changed_attributes_are_pushed_in_order(service: Service, tmp_path: Path, work: Any) -> None:
    await service.start()
    gate = tmp_path / "gate"
    running = await service.send(Request.ACTION, {"action": "square", "parameters": work(gate=str(gate))})
    await service.event(Event.ATTRIBUTES, lambda body: body["values"].get("state") == "running")
    gate.touch()
    await running
    await service.event(Event.ATTRIBUTES, lambda body: body["values"] == {"state": "idle", "done": 1})
    sequences = [body["sequence"] for body in service.all(Event.ATTRIBUTES)]
    assert sequences == list(range(1, len(sequences) + 1))


async def test_other_requests_are_answered_while_an_action_runs(service: Service, tmp_path: Path, work: Any) -> None:
    await service.start()
    gate = tmp_path / "gate"
    running = await service.send(
        Request.ACTION, {"action": "square", "parameters": work(gate=str(gate))}, invocation="first"
    )
    await service.event(Event.ATTRIBUTES, lambda body: body["values"].get("state") == "running")
    fresh = await service.ask(Request.GET_ATTRIBUTES, {"names": ["state"]})
    assert fresh["values"] == {"state": "running"}
    assert (await service.act("fail"))["error"]["reason"] == "ActionFailed"
    assert not running.done()
    gate.touch()
    assert (await running)["result"] == {"square": 9}


async def test_actions_that_are_not_concurrent_take_turns_across_both_queues(
    service: Service, tmp_path: Path, lines: Any, work: Any, until: Any
) -> None:
    await service.start()
    gate = tmp_path / "gate"
    parameters = work(gate=str(gate))
    asked = [
        await service.send(Request.ACTION, {"action": "square", "parameters": parameters}, worker=worker)
        for worker in ("w1", None, "w1", None)
    ]
    await until(lines)
    await service.ask(Request.GET_ATTRIBUTES, {})
    assert len(lines()) == 1
    gate.touch()
    assert [reply.get("result") for reply in await asyncio.gather(*asked)] == [{"square": 9}] * 4
    assert len(lines()) == 4


async def test_the_pool_queue_goes_to_the_worker_that_is_free(service: Service, tmp_path: Path, work: Any) -> None:
    await service.start("w1")
    await service.start("w2")
    gate = tmp_path / "gate"
    busy = await service.begin("square", work(gate=str(gate)), worker="w1")
    await service.event(Event.PROGRESS, lambda body: body["invocation"] == busy)
    for _ in range(3):
        invocation = await service.begin("square", work(), worker=None)
        assert (await service.result(invocation))["worker"] == "w2"
    gate.touch()
    await service.result(busy)


async def test_only_workers_that_were_told_to_take_from_the_pool_queue(
    service: Service, tmp_path: Path, work: Any
) -> None:
    await service.start("told")
    await service.start("idle", takes=False)
    replies = [await service.act("square", work(), worker=None) for _ in range(6)]
    assert {reply["worker"] for reply in replies} == {"told"}, "the broker would give them to both in turn"
    await service.take("idle")
    gate = tmp_path / "gate"
    busy = await service.begin("square", work(gate=str(gate)), worker="told")
    await service.event(Event.PROGRESS, lambda body: body["invocation"] == busy)
    assert (await service.act("square", work(), worker=None))["worker"] == "idle"
    gate.touch()
    await service.result(busy)


async def test_a_worker_that_was_told_to_take_does_so_in_its_next_session_and_says_so(
    service: Service, work: Any
) -> None:
    adapter = await service.start()
    await service.act("square", work(), worker=None)
    seen = len(service.events)
    await service.manage("DELETE", f"queues/{service.vhost}/simyard.worker.{service.user}.w1")
    await service.add_worker("w1")
    assert (await service.event(Event.REGISTER, after=seen))["takes"] is True
    assert (await service.act("square", work(), worker=None))["result"] == {"square": 9}
    await adapter.kill()
    seen = len(service.events)
    await service.start(takes=False)
    assert (await service.event(Event.REGISTER, after=seen))["takes"] is False, "it is another process"


@pytest.mark.parametrize(
    ("request_", "reason", "field"),
    [
        ({"action": "melt"}, "UnknownAction", "action"),
        ({"action": "square", "parameters": {"number": 1.5, "runs": "x"}}, "InvalidParameters", "parameters.number"),
        ({"action": "square", "parameters": {"number": 1}}, "InvalidParameters", "parameters.runs"),
        ({"action": "square", "parameters": []}, "InvalidParameters", "parameters"),
        ({"action": "fail", "timeoutSeconds": -1}, "InvalidRequest", None),
        ({"action": "fail", "mode": "Later"}, "InvalidRequest", None),
        (b"[]", "InvalidRequest", None),
        (b"\xff", "InvalidRequest", None),
        (b"[" * 100_000, "InvalidRequest", None),
        ({"action": "fail", "timeoutSeconds": 10**400}, "InvalidRequest", None),
    ],
)
async def test_a_bad_request_for_an_action_is_refused(
    service: Service, request_: Any, reason: str, field: str | None
) -> None:
    await service.start()
    error = (await service.ask(Request.ACTION, request_))["error"]
    assert (error["reason"], error.get("field")) == (reason, field)


async def test_a_bad_async_request_has_a_result_that_says_so(service: Service) -> None:
    await service.start()
    invocation = await service.begin("square", {"number": "many"})
    assert (await service.result(invocation))["error"]["reason"] == "InvalidParameters"


async def test_a_failing_and_a_crashing_connector_are_told_apart_and_survived(service: Service) -> None:
    await service.start()
    assert (await service.act("fail"))["error"] == {"reason": "ActionFailed", "message": "*ERROR: the deck is empty"}
    crash = (await service.act("crash"))["error"]
    assert crash["reason"] == "ConnectorCrashed"
    assert crash["message"].startswith("InvalidValueError: attributes.state")
    assert (await service.act("fail"))["error"]["reason"] == "ActionFailed"


async def test_a_duplicate_gets_the_first_answer_and_does_not_run(
    service: Service, tmp_path: Path, lines: Any, work: Any, until: Any
) -> None:
    await service.start()
    gate = tmp_path / "gate"
    body = {"action": "once", "parameters": work(gate=str(gate))}
    first = await service.send(Request.ACTION, body, invocation="same")
    await until(lines)
    second = await service.send(Request.ACTION, body, invocation="same")
    gate.touch()
    third = await service.ask(Request.ACTION, body, invocation="same")
    assert await first == await second == third
    assert lines() == ["same"]


async def test_a_duplicate_of_a_finished_async_invocation_gets_its_result_again(
    service: Service, tmp_path: Path, lines: Any, work: Any
) -> None:
    await service.start()
    first = await service.result(await service.begin("once", work(), invocation="same"))
    seen = len(service.events)
    await service.begin("once", work(), invocation="same")
    again = await service.event(Event.RESULT, lambda body: body["invocation"] == "same", after=seen)
    assert again == first
    assert lines() == ["same"]


async def test_an_expired_request_is_not_run(
    service: Service, tmp_path: Path, lines: Any, work: Any, until: Any
) -> None:
    await service.start()
    gate = tmp_path / "gate"
    running = await service.send(
        Request.ACTION, {"action": "once", "parameters": work(gate=str(gate))}, invocation="first"
    )
    await until(lines)
    late = await service.send(
        Request.ACTION, {"action": "once", "parameters": work()}, invocation="late", expiration=0.2
    )
    last = await service.send(Request.ACTION, {"action": "once", "parameters": work()}, invocation="last")
    await asyncio.wait({late}, timeout=0.5)
    gate.touch()
    await asyncio.gather(running, last)
    assert lines() == ["first", "last"]
    assert not late.done()


async def test_a_request_cancels_what_runs_and_what_waits(
    service: Service, tmp_path: Path, lines: Any, work: Any, until: Any
) -> None:
    await service.start()
    gate = str(tmp_path / "gate")
    for invocation in ("runs", "waits"):
        await service.begin("once", work(gate=gate), invocation=invocation)
    await until(lines)
    for invocation in ("waits", "runs"):
        assert await service.ask(Request.CANCEL, {"invocation": invocation}) == {"cancelled": True}
        assert (await service.result(invocation))["error"]["reason"] == "Cancelled"
    assert await service.ask(Request.CANCEL, {"invocation": "unheard of"}) == {"cancelled": False}
    assert lines() == ["runs"]


async def test_a_concurrent_action_can_cancel_the_others(
    service: Service, tmp_path: Path, lines: Any, work: Any, until: Any
) -> None:
    await service.start()
    running = await service.send(Request.ACTION, {"action": "once", "parameters": work(gate=str(tmp_path / "gate"))})
    waiting = await service.send(Request.ACTION, {"action": "wait"})
    await until(lines)
    await service.event(Event.PROGRESS, lambda body: body.get("message") == "waiting")
    assert (await service.act("cancel"))["result"] == {"cancelled": 2}
    assert (await running)["error"]["reason"] == (await waiting)["error"]["reason"] == "Cancelled"


async def test_a_time_out_ends_the_program_and_all_that_it_started(
    service: Service, tmp_path: Path, alive: Any, until: Any
) -> None:
    await service.start()
    pids = tmp_path / "pids"
    reply = await service.act("sleep", {"pids": str(pids)})
    assert reply["error"] == {"reason": "TimedOut", "message": "the action did not end within 2 s"}
    leader, child = map(int, pids.read_text().split())
    await until(lambda: not alive(leader) and not alive(child))


async def test_progress_is_thinned_out_and_the_newest_is_kept(service: Service) -> None:
    await service.start()
    reply = await service.act("report", {"steps": 200}, invocation="reported")
    steps = [body for body in service.all(Event.PROGRESS) if body["invocation"] == "reported"]
    assert 2 <= len(steps) <= 4 * reply["seconds"] + 2
    percents = [body["percent"] for body in steps]
    assert percents == sorted(percents)


async def test_a_sync_request_tells_that_the_worker_is_used_while_it_runs(
    service: Service, tmp_path: Path, work: Any
) -> None:
    await service.start()
    gate = tmp_path / "gate"
    body = {"action": "square", "parameters": work(gate=str(gate))}
    reply = await service.send(Request.ACTION, body, worker=None)
    assert await service.event(Event.ACTIVE) == {"worker": "w1"}
    assert not reply.done()
    gate.touch()
    await reply


async def test_sync_requests_tell_that_the_worker_is_used_and_seldom(service: Service) -> None:
    await service.start()
    assert service.all(Event.ACTIVE) == []
    await service.act("report", {"steps": 1})
    await service.event(Event.ACTIVE)
    for _ in range(3):
        await service.act("report", {"steps": 1})
    assert len(service.all(Event.ACTIVE)) == 1, "the next one is due after ACTIVE_SECONDS"


async def test_the_log_has_the_last_lines_of_the_worker_or_of_one_invocation(service: Service) -> None:
    await service.start()
    await service.act("report", {"steps": 20}, invocation="reported")
    log = (await service.ask(Request.LOG, {"invocation": "reported", "tailLines": 2}))["log"].splitlines()
    assert [line.partition(" ")[2][:7] for line in log] == ["line 19", "report:"]
    whole = await service.ask(Request.LOG, {})
    assert "started with colour" in whole["log"]
    assert whole["next"] == len(whole["log"].splitlines())
    assert (await service.ask(Request.LOG, {"tailLines": 0}))["log"] == ""


async def test_the_log_of_a_worker_marks_runs_and_goes_on_after_a_position(service: Service) -> None:
    await service.start()
    before = await service.ask(Request.LOG, {"tailLines": 0})
    assert (before["log"], before["ended"]) == ("", False)
    await service.act("report", {"steps": 1})
    reply = await service.ask(Request.LOG, {"after": before["next"]})
    lines = [line.partition(" ")[2] for line in reply["log"].splitlines()]
    assert lines[:2] == ["report: begins", "line 0"]
    assert lines[2].startswith("report: done after")
    assert reply["next"] == before["next"] + 3
    again = await service.ask(Request.LOG, {"after": reply["next"]})
    assert (again["log"], again["next"]) == ("", reply["next"])
    assert "started with colour" in (await service.ask(Request.LOG, {"after": 10**9}))["log"], "another adapter's"
    refused = await service.ask(Request.LOG, {"after": -1})
    assert refused["error"]["field"] == "after"


async def test_only_mutable_attributes_can_be_set_and_the_connector_may_refuse(service: Service) -> None:
    await service.start()
    done = await service.ask(Request.SET_ATTRIBUTES, {"values": {"colour": "green"}})
    assert done["values"] == {"colour": "green"}
    await service.event(Event.ATTRIBUTES, lambda body: body["values"] == {"colour": "green"})
    refusals = [
        ({"state": "running"}, "InvalidParameters", "values.state"),
        ({"weight": 1}, "UnknownAttribute", "values.weight"),
        ({"colour": "pink"}, "InvalidParameters", "values.colour"),
        ({"colour": "blue"}, "ActionFailed", "values.colour"),
    ]
    for values, reason, field in refusals:
        error = (await service.ask(Request.SET_ATTRIBUTES, {"values": values}))["error"]
        assert (error["reason"], error["field"]) == (reason, field)
    assert (await service.ask(Request.GET_ATTRIBUTES, {}))["values"]["colour"] == "green"
    error = (await service.ask(Request.GET_ATTRIBUTES, {"names": ["weight"]}))["error"]
    assert error["reason"] == "UnknownAttribute"


async def test_a_draining_worker_finishes_refuses_and_says_so(
    service: Service, tmp_path: Path, lines: Any, work: Any, until: Any
) -> None:
    await service.start()
    gate = tmp_path / "gate"
    await service.begin("once", work(gate=str(gate)), invocation="last")
    await until(lines)
    assert await service.ask(Request.DRAIN, {}) == {}
    await service.take()
    refused = (await service.act("once", work()))["error"]
    assert refused["reason"] == "Draining"
    assert service.all(Event.DRAINED) == []
    gate.touch()
    await service.event(Event.DRAINED)
    kinds = [kind for kind, _, _ in service.events if kind in (Event.RESULT, Event.DRAINED)]
    assert kinds == [Event.RESULT, Event.DRAINED]
    queues = await service.manage("GET", f"queues/{service.vhost}")
    (pool,) = [queue for queue in queues if ".pool." in queue["name"]]
    consumers = await service.manage("GET", f"consumers/{service.vhost}")
    assert pool["name"] not in [consumer["queue"]["name"] for consumer in consumers]


async def test_too_many_waiting_requests_are_refused_and_control_still_works(
    service: Service, tmp_path: Path, lines: Any, work: Any
) -> None:
    await service.start()
    body = {"action": "once", "parameters": work(gate=str(tmp_path / "gate"))}
    asked = [await service.send(Request.ACTION, body, invocation=f"call-{i}") for i in range(12)]
    refused = [await asyncio.wait_for(reply, 240) for reply in asked[9:]]
    assert [reply["error"]["reason"] for reply in refused] == ["Busy"] * 3
    for i in range(9):
        assert await service.ask(Request.CANCEL, {"invocation": f"call-{8 - i}"}) == {"cancelled": True}
    assert {(await reply)["error"]["reason"] for reply in asked[:9]} == {"Cancelled"}
