# SPDX-License-Identifier: Apache-2.0
"""``kubectl simyard rotate`` writes a new master key, and keeps the former one as long as workers need it."""

from __future__ import annotations

import base64
import copy
from dataclasses import dataclass, field

import pytest
from click.testing import CliRunner, Result

from simyard.api.base import Json
from simyard.api.names import MASTER_KEY_SECRET
from simyard.cli.app import cli
from simyard.cli.kubectl import Kubectl, KubectlError
from simyard.fleet.broker.master_key import StoredKeys
from simyard_sites.kubernetes.resource import Resource

OLD = b"o" * 32


def secret(**data: bytes) -> Json:
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    metadata = {"name": MASTER_KEY_SECRET, "namespace": "simyard-system", "resourceVersion": "7", "uid": "u"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}


@dataclass
class Server:
    """A server with the Secret; its operator removes the former key after ``looks`` reads."""

    stored: Json
    looks: int = 1
    asked: list[str] = field(default_factory=list)
    conflicts: int = 0


@dataclass(frozen=True)
class Cluster(Kubectl):
    server: Server = field(default_factory=lambda: Server(secret(key=OLD)))

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        self.server.asked.append(f"{namespace}/{name}")
        if len(self.server.asked) > self.server.looks + 1:
            self.server.stored["data"].pop("previous", None)
        return copy.deepcopy(self.server.stored)

    def replace(self, item: Json) -> None:
        if self.server.conflicts:
            self.server.conflicts -= 1
            raise KubectlError("Error from server (Conflict): the object has been modified", 1)
        assert item["metadata"]["resourceVersion"] == "7", "somebody else's change is not overwritten"
        self.server.stored = copy.deepcopy(item)


def run(server: Server, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["rotate", *arguments], obj=Cluster(server=server))


def test_the_key_is_replaced_and_kept_as_the_former_one() -> None:
    server = Server(secret(key=OLD))
    done = run(server, "--no-wait")
    assert done.exit_code == 0, done.output
    keys = StoredKeys.read(server.stored).keys
    assert (keys.number, keys.previous) == (2, OLD)
    assert keys.key not in (OLD, b"")
    assert len(keys.key) == 32
    assert server.asked == [f"simyard-system/{MASTER_KEY_SECRET}"]


def test_it_waits_until_the_former_key_is_forgotten() -> None:
    server = Server(secret(key=OLD, number=b"5"))
    done = run(server)
    assert done.exit_code == 0, done.output
    assert "the broker refuses the former passwords" in done.output
    assert StoredKeys.read(server.stored).keys.number == 6


def test_it_does_not_wait_for_ever() -> None:
    done = run(Server(secret(key=OLD), looks=1000), "--timeout", "1")
    assert (done.exit_code, "still use a former password" in done.output) == (1, True)


def test_a_second_rotation_is_remembered_while_one_is_under_way_and_a_third_is_the_same() -> None:
    server = Server(secret(key=b"n" * 32, number=b"2", previous=OLD), looks=1000)
    done = run(server, "--no-wait")
    assert (done.exit_code, "this one starts when that one has ended" in done.output) == (0, True)
    keys = StoredKeys.read(server.stored).keys
    assert (keys.key, keys.number, keys.previous, len(keys.following)) == (b"n" * 32, 2, OLD, 32)
    again = run(server, "--no-wait")
    assert (again.exit_code, "the next one is already requested" in again.output) == (0, True)
    assert StoredKeys.read(server.stored).keys == keys


def test_it_waits_for_the_rotation_that_is_remembered_too() -> None:
    server = Server(secret(key=b"n" * 32, number=b"2", previous=OLD), looks=1)
    done = run(server, "--timeout", "1")
    assert (done.exit_code, "still use a former password" in done.output) == (1, True), "its key has still to follow"


def test_a_key_that_an_older_operator_left_to_follow_does_not_hold_up_a_rotation() -> None:
    server = Server(secret(key=OLD, number=b"2", following=b"f" * 32))
    assert run(server, "--no-wait").exit_code == 0
    keys = StoredKeys.read(server.stored).keys
    assert (keys.number, keys.previous, keys.following) == (3, OLD, b"")


def test_a_rotation_that_ends_while_another_is_asked_for_is_read_again() -> None:
    server = Server(secret(key=OLD), conflicts=2)
    done = run(server, "--no-wait")
    assert done.exit_code == 0, done.output
    assert StoredKeys.read(server.stored).keys.previous == OLD


@pytest.mark.parametrize("data", [{}, {"key": b"short"}, {"key": OLD, "number": b"x"}])
def test_a_secret_without_a_usable_key_is_left_alone(data: dict[str, bytes]) -> None:
    done = run(Server(secret(**data)))
    assert (done.exit_code, "no usable key" in done.output) == (1, True)


def test_another_namespace_may_be_the_platforms() -> None:
    server = Server(secret(key=OLD))
    run(server, "--no-wait", "-n", "elsewhere")
    assert server.asked == [f"elsewhere/{MASTER_KEY_SECRET}"]


def test_what_the_server_refuses_is_told() -> None:
    done = run(Server(secret(key=OLD), conflicts=1000))
    assert (done.exit_code, "(Conflict)" in done.output) == (1, True)
