# SPDX-License-Identifier: Apache-2.0
"""The connector with no code: real programs over a real broker, and parameters that try to break out."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from simyard_adapter.declarations import Interface
from simyard_adapter.wire import Event, Request

Service = Any

ARGUMENTS = "import json, sys; print('argv=' + json.dumps(sys.argv[1:]))"
TEXT = {"name": "text", "type": "string", "default": ""}
NAME = {"name": "name", "type": "string", "default": ""}
SAID = {"name": "said", "type": "string"}

INTERFACE = Interface.from_json(
    {
        "attributes": [
            {"name": "temperature", "type": "number", "unit": "K"},
            {"name": "host", "type": "string"},
            {"name": "broken", "type": "string"},
        ],
        "actions": [
            {"name": "arguments", "parameters": [TEXT], "result": [{"name": "argv", "type": "array"}]},
            {"name": "environment", "parameters": [TEXT], "result": [SAID]},
            {"name": "copy", "parameters": [TEXT, NAME], "result": [SAID]},
            {"name": "peek", "result": [{**SAID, "required": True}]},
            {"name": "refuse"},
            {"name": "fall"},
            {"name": "missing", "result": [{**SAID, "required": True}]},
            {"name": "slow", "timeoutSeconds": 60, "result": [{"name": "max", "type": "number"}]},
            {"name": "cancel", "concurrent": True, "result": [{"name": "cancelled", "type": "integer"}]},
        ],
    }
)

COMMANDS: dict[str, Any] = {
    "actions": [
        {
            "action": "arguments",
            "command": [sys.executable, "-c", ARGUMENTS, "$(text)", "<$(text)>", "$$(text)", "-n"],
            "results": [{"name": "argv", "pattern": "argv=(.*)"}],
        },
        {
            "action": "environment",
            "command": [sys.executable, "-c", "import os; print('said=' + ascii(os.environ['TEXT']))"],
            "env": [{"name": "TEXT", "value": "$(text)"}],
            "results": [{"name": "said", "pattern": "said='(.*)'"}],
        },
        {
            "action": "copy",
            "command": ["sh", "-c", "cat > out.txt"],
            "stdin": "$(text)",
            "files": [{"path": "$(name)", "content": "$(text)"}],
            "results": [{"name": "said", "file": "$(name)", "pattern": r"(?s)\A(.*)\Z"}],
        },
        {
            "action": "peek",
            "command": ["ln", "-s", "/etc/passwd", "out"],
            "results": [{"name": "said", "file": "out", "pattern": "(.+)"}],
        },
        {
            "action": "refuse",
            "command": ["sh", "-c", "echo start; echo ' *ERROR in frd: no elements'; echo noise >&2; exit 201"],
            "failurePattern": r"\*ERROR.*",
        },
        {"action": "fall", "command": ["sh", "-c", "echo last words >&2; kill -SEGV $$$$"]},
        {
            "action": "missing",
            "command": ["true"],
            "results": [{"name": "said", "file": "out.dat", "pattern": "(.+)"}],
        },
        {
            "action": "slow",
            "command": [
                "sh",
                "-c",
                "echo step 25%; until [ -e $(simyard.files)/gate ]; do sleep 0.05; done; echo max=1.5e-3",
            ],
            "progressPattern": r"step (\d+)%",
            "results": [{"name": "max", "pattern": r"max=(\S+)"}],
        },
        {"action": "cancel", "cancels": "slow"},
    ],
    "attributes": [
        {"attribute": "temperature", "file": "state.txt", "pattern": r"T=(\S+)", "intervalSeconds": 1},
        {"attribute": "host", "command": ["cat", "$(simyard.files)/host"], "pattern": "(.+)", "intervalSeconds": 3600},
        {"attribute": "broken", "command": ["false"], "pattern": "(.+)", "intervalSeconds": 1},
    ],
}


@pytest.fixture
async def worker(service: Service) -> Service:
    bootstrap = service.bootstrap(
        interface=INTERFACE,
        connector={"commands": COMMANDS},
        files={"state.txt": "T=293.15\n", "host": "node-7\n"},
    )
    await service.start(bootstrap=bootstrap)
    return service


def found(directory: Path, pattern: str) -> list[Path]:
    return list(directory.rglob(pattern))


NASTY = [
    "a b",
    "; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "$(text)",
    "$$(text)",
    "'\"\\",
    "line\nline",
    "--help",
    "-",
    "",
    "*",
    "Ω\U0001f600",
]


async def test_an_argument_stays_one_argument_whatever_it_holds(worker: Service) -> None:
    for text in NASTY:
        reply = await worker.act("arguments", {"text": text})
        assert reply["result"]["argv"] == [text, f"<{text}>", "$(text)", "-n"]
        said = (await worker.act("environment", {"text": text}))["result"]["said"]
        assert said == ascii(text)[1:-1]
    assert found(worker.directory, "pwned") == []


async def test_what_no_argument_can_carry_is_refused_with_the_name_of_the_parameter(worker: Service) -> None:
    for text in ("a\0b", "x" * 200_000):
        for action in ("arguments", "environment"):
            error = (await worker.act(action, {"text": text}))["error"]
            assert (error["reason"], error["field"]) == ("InvalidParameters", "parameters.text")
    deck = "x" * 1_000_000 + "\0"
    assert (await worker.act("copy", {"text": deck, "name": "deck"}))["result"]["said"] == deck


async def test_no_path_leads_out_of_the_scratch_directory(worker: Service, tmp_path: Path, until: Any) -> None:
    inside = await worker.act("copy", {"text": "here", "name": "a/b/deck.inp"})
    assert inside["result"]["said"] == "here"
    for name in ("../escaped", f"{tmp_path}/escaped", "a/../../escaped", ".", "", "a/.."):
        error = (await worker.act("copy", {"text": "x", "name": name}))["error"]
        assert error["reason"] == "InvalidParameters", name
    assert found(tmp_path, "escaped") == []
    assert (await worker.act("peek"))["error"]["reason"] == "InvalidParameters"
    await until(lambda: found(tmp_path / "w1" / "scratch", "*") == [])


async def test_the_message_of_a_failure_is_the_programs_own(worker: Service) -> None:
    refused = (await worker.act("refuse"))["error"]
    assert refused == {"reason": "ActionFailed", "message": "*ERROR in frd: no elements"}
    fallen = (await worker.act("fall"))["error"]
    assert fallen == {"reason": "ActionFailed", "message": "sh: ended by signal 11: last words"}
    missing = (await worker.act("missing"))["error"]
    assert missing == {"reason": "ActionFailed", "message": "the program did not write the file out.dat"}


async def test_progress_and_results_come_from_the_output(worker: Service, tmp_path: Path) -> None:
    reply = await worker.send(Request.ACTION, {"action": "slow"})
    await worker.event(Event.PROGRESS, lambda body: body.get("percent") == 25)
    (tmp_path / "w1" / "connector" / "gate").touch()
    assert (await reply)["result"] == {"max": 0.0015}


async def test_a_built_in_action_cancels_another_one(worker: Service) -> None:
    reply = await worker.send(Request.ACTION, {"action": "slow"})
    await worker.event(Event.PROGRESS, lambda body: body.get("percent") == 25)
    assert (await worker.act("cancel"))["result"] == {"cancelled": 1}
    assert (await reply)["error"]["reason"] == "Cancelled"


async def test_attributes_are_read_at_the_start_now_and_then_and_when_asked_for(
    worker: Service, tmp_path: Path
) -> None:
    assert worker.all(Event.REGISTER)[0]["attributes"] == {"temperature": 293.15, "host": "node-7"}
    files = tmp_path / "w1" / "connector"
    (files / "state.txt").write_text("T=300\n")
    await worker.event(Event.ATTRIBUTES, lambda body: body["values"] == {"temperature": 300.0})
    (files / "host").write_text("node-8\n")
    assert (await worker.ask(Request.GET_ATTRIBUTES, {"names": ["host"]}))["values"] == {"host": "node-8"}
    log = json.dumps((await worker.ask(Request.LOG, {}))["log"])
    assert log.count("cannot read the attribute broken: false ended with exit code 1") == 1
