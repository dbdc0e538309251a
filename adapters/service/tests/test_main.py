# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, its exit codes, and that no password is ever logged."""

import ast
import asyncio
import json
import os
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import simyard_adapter
from simyard_adapter.bootstrap import Bootstrap, remove_worker
from simyard_adapter.declarations import Interface
from simyard_adapter.wire import Event
from simyard_dev.certificates import CertificateAuthority

Service = Any

PYTHON = os.environ.get("ADAPTER_PYTHON", sys.executable)
SOURCES = sorted(Path(simyard_adapter.__file__).parent.glob("*.py"))


def call(*arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    command = [PYTHON, "-m", "simyard_adapter", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=240, check=False)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_the_sources_are_python_3_9(source: Path) -> None:
    ast.parse(source.read_text(), feature_version=(3, 9))


def test_the_interface_of_a_class_is_printed_for_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "printed_connector.py").write_text(
        "from simyard_adapter import Connector, attribute\n"
        "class Printed(Connector):\n    state = attribute('string', default='idle')\n"
    )
    done = call("interface", "printed_connector:Printed", "--path", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert Interface.from_json(json.loads(done.stdout)).find_attribute("state") is not None


def test_wrong_usage_and_bad_documents_have_exit_codes_and_clear_messages(tmp_path: Path) -> None:
    assert call("run").returncode == 2
    for document, message in (
        (b"", b"is not valid: JSONDecodeError"),
        (b"[]", b"is not valid: TypeError"),
        (b'{"namespace": "a"}', b"has no field 'worker'"),
        (b"\xff", b"bootstrap document"),
    ):
        done = call("run", "--bootstrap", "-", stdin=document)
        assert done.returncode == 3
        assert message in done.stderr
        assert b"Traceback" not in done.stderr
    assert call("run", "--bootstrap", str(tmp_path / "absent")).returncode == 3


@pytest.mark.parametrize("by", ["arguments", "environment"])
async def test_a_shared_document_becomes_the_worker_that_the_machine_is_told_to_be(
    service: Service, tmp_path: Path, by: str
) -> None:
    uid = str(uuid.uuid4())
    await service.add_worker(uid)
    document = tmp_path / "bootstrap.json"
    document.write_bytes(remove_worker(service.bootstrap().to_bytes()))
    command = [PYTHON, "-m", "simyard_adapter", "run", "--bootstrap", str(document), "--directory", str(tmp_path / "w")]
    told = {"SIMYARD_WORKER": "run-7", "SIMYARD_WORKER_UID": uid} if by == "environment" else {}
    arguments = ["--worker", "run-7", "--worker-uid", uid.upper()] if by == "arguments" else []
    process = await asyncio.create_subprocess_exec(*command, *arguments, env={**os.environ, **told})
    try:
        registered = await service.event(Event.REGISTER)
        assert registered["worker"] == "run-7"
        assert (await service.act("square", {"number": 3, "runs": str(tmp_path / "runs")}, worker=uid))[
            "worker"
        ] == "run-7"
    finally:
        process.terminate()
        assert await process.wait() == 0


def test_what_workers_share_says_of_none_who_it_is(service: Service) -> None:
    first, second = (service.bootstrap(worker).to_bytes() for worker in ("w1", "w2"))
    assert remove_worker(first) == remove_worker(second) == remove_worker(remove_worker(first))
    uid = str(uuid.uuid4())
    again = Bootstrap.from_bytes(remove_worker(first)).name_worker("w1", uid)
    assert again == replace(Bootstrap.from_bytes(first), worker_uid=uid)


def test_a_machine_that_is_not_told_who_it_is_has_exit_code_3(service: Service) -> None:
    document = service.bootstrap().to_bytes()
    uid = str(uuid.uuid4())
    for source, arguments, message in (
        (remove_worker(document), (), b"'' is not the name of a worker: set --worker or SIMYARD_WORKER"),
        (document, ("--worker-uid", uid), b"'' is not the name of a worker"),
        (document, ("--worker", "Not Specified", "--worker-uid", uid), b"'Not Specified' is not the name of a worker"),
        (remove_worker(document), ("--worker", "w1"), b"'' is not a UUID: set --worker-uid or SIMYARD_WORKER_UID"),
        (document, ("--worker", "w1", "--worker-uid", "w1"), b"'w1' is not a UUID"),
    ):
        done = call("run", "--bootstrap", "-", *arguments, stdin=source)
        assert (done.returncode, message in done.stderr) == (3, True), done.stderr


def test_a_connector_that_is_wrong_has_exit_code_3(service: Service, tmp_path: Path) -> None:
    good = service.bootstrap()
    other = replace(good.interface.actions[0], timeout_seconds=7)
    cases = {
        "action square is {": {"interface": Interface((), (other,))},
        "connector.commands: actions": {"connector": {"commands": {"actions": []}}},
        "exactly one of python and commands": {"connector": {"commands": 5}},
        "attributes.colour": {"attributes": {"colour": "mauve"}},
        "leads out": {"files": {"../x": ""}},
    }
    for message, changes in cases.items():
        document = service.bootstrap(**changes).to_bytes()
        done = call("run", "--bootstrap", "-", "--directory", str(tmp_path / "home"), stdin=document)
        assert (done.returncode, message in done.stderr.decode()) == (3, True), done.stderr


def test_a_directory_that_cannot_be_used_has_exit_code_4(service: Service, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    document = service.bootstrap().to_bytes()
    done = call("run", "--bootstrap", "-", "--directory", str(tmp_path / "file"), stdin=document)
    assert done.returncode == 4
    assert b"cannot use the directory" in done.stderr


def test_the_log_can_be_json(tmp_path: Path) -> None:
    done = call("run", "--bootstrap", str(tmp_path / "absent"), "--log-format", "json")
    line = json.loads(done.stderr)
    assert (line["level"], line["logger"]) == ("ERROR", "simyard_adapter")
    assert "No such file" in line["message"]


async def test_the_password_is_not_logged_when_the_broker_refuses_it(service: Service, until: Any) -> None:
    good = service.bootstrap()
    secret = "se/cr:et@+%41 word"
    refused = await service.start(bootstrap=replace(good, broker=replace(good.broker, password=secret)), ready=False)
    await until(lambda: refused.log.count("trying again") >= 2)
    assert "connecting" in refused.log
    for shape in (secret, "se%2Fcr", "et@+"):
        assert shape not in refused.log
    assert await refused.end() == 0


async def test_a_broker_whose_certificate_is_not_the_given_authoritys_is_refused(
    service: Service, tmp_path: Path, until: Any
) -> None:
    good = service.bootstrap()
    pem = CertificateAuthority(tmp_path, "another").files.certificate.read_text()
    adapter = await service.start(bootstrap=replace(good, broker=replace(good.broker, ca_certificate=pem)), ready=False)
    await until(lambda: "CERTIFICATE_VERIFY_FAILED" in adapter.log)
