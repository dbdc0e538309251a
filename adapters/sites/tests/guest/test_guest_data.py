# SPDX-License-Identifier: Apache-2.0
"""What guests are given, read as cloud-init reads it, and run by a real shell with its directories moved."""

import base64
import email
import os
import stat
import subprocess
from email.message import Message
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simyard_adapter.bootstrap import Bootstrap, BrokerAddress, remove_worker
from simyard_adapter.declarations import Interface
from simyard_sites.base import InvalidSpecError
from simyard_sites.guest import build_context, build_user_data
from simyard_sites.guest.one_context import MAX_VARIABLE_BYTES

PASSWORD = "pa'ss\"w$(rm -rf /)`rd\\END\nEND\n"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
MULTIPART = (
    'Content-Type: multipart/mixed; boundary="b"\nMIME-Version: 1.0\n\n--b\nContent-Type: text/x-shellscript\n\n'
    "#!/bin/sh\necho one\n--b\nContent-Type: text/cloud-config\n\n#cloud-config\nruncmd: [two]\n--b--\n"
)
FEW = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


def document(worker: str = "beams-1", **files: str) -> bytes:
    return Bootstrap(
        namespace="tests",
        worker=worker,
        worker_uid="7d1cd5c9-8b4f-4a55-9b0e-2a2f0a0b0c0d",
        service="beam",
        pool="beams",
        broker=BrokerAddress("broker.example", 5671, "simyard", "pool-1", PASSWORD, "-----BEGIN CERTIFICATE-----\n"),
        interface=Interface((), ()),
        connector={"python": {"class": "beam:Beam"}},
        files=files,
    ).to_bytes()


def read(data: bytes) -> list[tuple[str, str, Message]]:
    """The parts as cloud-init's ``user_data.py`` finds them: declared type, payload, headers."""
    if b"mime-version:" not in data[:4096].lower():
        return [("text/x-not-multipart", data.decode(), Message())]
    message = email.message_from_string(data.decode())
    parts = [part for part in message.walk() if part.get_content_maintype() != "multipart"]
    return [(part.get_content_type(), part.get_payload(decode=True).decode(), part) for part in parts]


class Machine:
    """Runs a start script as a guest would: /run and /var/lib are below a directory, and systemctl writes down."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "bin").mkdir(parents=True)
        (directory / "var/lib").mkdir(parents=True)
        self.calls = directory / "calls"
        systemctl = directory / "bin" / "systemctl"
        systemctl.write_text(f'#!/bin/sh\necho "$@" >>{self.calls}\n')
        systemctl.chmod(0o755)

    def boot(self, script: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        for place in ("run", "var/lib"):
            script = script.replace(f"/{place}/", f"{self.directory}/{place}/")
        file = self.directory / "script"
        file.write_text(script)
        file.chmod(0o755)
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        return subprocess.run([file], env={"PATH": path, **variables}, capture_output=True, text=True, check=False)

    @property
    def document(self) -> Path:
        return self.directory / "run/simyard/bootstrap.json"

    @property
    def unit(self) -> str:
        return (self.directory / "run/systemd/system/simyard-adapter.service").read_text()

    def check(self, document: bytes) -> None:
        """It has the very document, for root alone, the adapter was started, and the password is nowhere else."""
        assert self.document.read_bytes() == document
        assert stat.S_IMODE(self.document.stat().st_mode) == 0o600
        assert self.calls.read_text().splitlines()[-1] == "start --no-block simyard-adapter.service"
        for file in self.directory.rglob("*"):
            if file.is_file() and file not in (self.document, self.directory / "script"):
                assert "pa'ss" not in file.read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


@FEW
@given(files=st.dictionaries(st.from_regex(r"\A[a-z]{1,8}\Z"), TEXT, max_size=3))
def test_a_guest_with_cloud_init_gets_the_very_document_for_root_alone(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]
) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine") / "root")
    given_document = document(**files)
    [(kind, script, _)] = read(build_user_data(given_document))
    assert kind == "text/cloud-boothook"
    done = machine.boot(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    machine.check(given_document)
    assert machine.boot(script).returncode == 0  # the next boot


@FEW
@given(own=TEXT.filter(bool), keys=st.lists(TEXT, max_size=3))
def test_what_the_user_gives_arrives_as_it_is_and_changes_nothing_of_ours(own: str, keys: list[str]) -> None:
    ours, theirs, *rest = read(build_user_data(document(), own, keys))
    assert ours[:2] == read(build_user_data(document(), "x"))[0][:2]
    assert theirs[:2] == ("text/plain", own)
    assert bool(rest) == bool(keys)
    for kind, payload, headers in rest:
        assert kind == "text/cloud-config"
        assert payload.startswith("#cloud-config\n")
        assert yaml.safe_load(payload) == {"ssh_authorized_keys": keys}
        assert headers["Merge-Type"] == "list(append)+dict(recurse_array)+str()"


@pytest.mark.parametrize("own", [MULTIPART, MULTIPART.replace("\n", "\r\n"), MULTIPART.replace("--b--\n", "")])
def test_a_users_own_mime_message_keeps_its_parts(own: str) -> None:
    def content(data: bytes) -> list[tuple[str, str]]:
        return [(kind, payload.strip()) for kind, payload, _ in read(data)]

    data = build_user_data(document(), own, ["ssh-ed25519 AAAA me"])
    assert content(data)[1:-1] == content(own.encode())
    assert len(content(own.encode())) == 2


def test_a_machine_with_a_shared_document_reads_from_its_firmware_who_it_is(machine: Machine) -> None:
    for given_document, reads in ((document(), False), (remove_worker(document()), True)):
        [(_, script, _)] = read(build_user_data(given_document))
        assert machine.boot(script).returncode == 0
        machine.check(given_document)
        identity = (
            '--worker "$$(cat /sys/class/dmi/id/product_serial)" --worker-uid "$$(cat /sys/class/dmi/id/product_uuid)"'
        )
        assert (identity in machine.unit) == reads
    assert build_user_data(remove_worker(document("beams-1"))) == build_user_data(remove_worker(document("beams-2")))


def test_the_adapter_waits_for_cloud_init_only_if_the_user_has_given_it_something_to_do(machine: Machine) -> None:
    for own, after in (("", "network-online.target"), ("#!/bin/sh\n", "network-online.target cloud-final.service")):
        assert machine.boot(read(build_user_data(document(), own))[0][1]).returncode == 0
        assert f"\nAfter={after}\n" in machine.unit


def test_a_guest_of_opennebula_runs_the_users_script_once_and_then_the_adapter(machine: Machine) -> None:
    own = f"#!/bin/sh\necho user >>{machine.calls}\nenv >{machine.directory}/env\nexit 3\n"
    variables = build_context(document(), own, ["ssh-ed25519 AAAA me", "ssh-rsa BBBB you"])
    script = base64.b64decode(variables["START_SCRIPT_BASE64"]).decode()
    for boot in range(2):
        done = machine.boot(script, **variables)
        assert (done.returncode, done.stderr) == (0, "" if boot else "the user's script ended with 3\n")
        machine.check(document())
    calls = machine.calls.read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["daemon-reload", "user", "start", "daemon-reload", "start"]
    assert "SIMYARD_BOOTSTRAP" not in (machine.directory / "env").read_text()
    assert variables["SSH_PUBLIC_KEY"] == "ssh-ed25519 AAAA me\nssh-rsa BBBB you"


def test_a_guest_of_opennebula_with_cloud_init_gets_the_same_user_data() -> None:
    variables = build_context(document(), "#cloud-config\n{}", ["ssh-ed25519 AAAA me"])
    assert base64.b64decode(variables["USER_DATA"]) == build_user_data(
        document(), "#cloud-config\n{}", ["ssh-ed25519 AAAA me"]
    )
    assert variables["USER_DATA_ENCODING"] == "base64"
    assert "SIMYARD_USER_SCRIPT" not in variables  # OpenNebula's own packages know scripts only


def test_contextualisation_that_no_guest_could_export_is_refused() -> None:
    text = "line of a table\n" * 32768
    assert len(document(table=text)) > 4 * MAX_VARIABLE_BYTES
    assert (
        max(len(f"{name}={value}") for name, value in build_context(document(table=text)).items()) <= MAX_VARIABLE_BYTES
    )
    with pytest.raises(InvalidSpecError, match=r"move large files of spec\.connector into the image"):
        build_context(document(noise=base64.b64encode(os.urandom(MAX_VARIABLE_BYTES)).decode()))


def test_a_machine_without_systemd_says_so(machine: Machine) -> None:
    (machine.directory / "bin" / "systemctl").unlink()
    done = machine.boot(read(build_user_data(document()))[0][1].replace("systemctl", "no-systemctl"))
    assert done.returncode == 127
    assert "not found" in done.stderr
