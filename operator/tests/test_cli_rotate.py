"""``kubectl simyard rotate``: a new master key, and the former one for as long as workers need it."""

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
from simyard.fleet.master_key import StoredKeys
from simyard_sites.kubernetes.resource import Resource

OLD = b"o" * 32


def secret(**data: bytes) -> Json:
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    metadata = {"name": MASTER_KEY_SECRET, "namespace": "simyard-system", "resourceVersion": "7", "uid": "u"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}


@dataclass
class Server:
    """The Secret. The operator forgets the former key after so many ``looks``."""

    stored: Json
    looks: int = 1
    asked: list[str] = field(default_factory=list)
    fails: bool = False


@dataclass(frozen=True)
class Cluster(Kubectl):
    server: Server = field(default_factory=lambda: Server(secret(key=OLD)))

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        self.server.asked.append(f"{namespace}/{name}")
        if len(self.server.asked) > self.server.looks + 1:
            self.server.stored["data"].pop("previous", None)
        return copy.deepcopy(self.server.stored)

    def replace(self, item: Json) -> None:
        if self.server.fails:
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
    assert "the former passwords are refused" in done.output
    assert StoredKeys.read(server.stored).keys.number == 6


def test_it_does_not_wait_for_ever() -> None:
    done = run(Server(secret(key=OLD), looks=1000), "--timeout", "1")
    assert (done.exit_code, "still use a former password" in done.output) == (1, True)


def test_a_second_rotation_is_refused_while_one_is_under_way() -> None:
    server = Server(secret(key=b"n" * 32, number=b"2", previous=OLD), looks=1000)
    done = run(server)
    assert (done.exit_code, "a rotation is under way" in done.output) == (1, True)
    assert StoredKeys.read(server.stored).keys.number == 2


@pytest.mark.parametrize("data", [{}, {"key": b"short"}, {"key": OLD, "number": b"x"}])
def test_a_secret_without_a_usable_key_is_left_alone(data: dict[str, bytes]) -> None:
    done = run(Server(secret(**data)))
    assert (done.exit_code, "no usable key" in done.output) == (1, True)


def test_another_namespace_may_be_the_platforms() -> None:
    server = Server(secret(key=OLD))
    run(server, "--no-wait", "-n", "elsewhere")
    assert server.asked == [f"elsewhere/{MASTER_KEY_SECRET}"]


def test_what_the_server_refuses_is_told() -> None:
    done = run(Server(secret(key=OLD), fails=True))
    assert done.exit_code == 1
