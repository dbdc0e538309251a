# SPDX-License-Identifier: Apache-2.0
"""``kubectl simyard set`` reads values as the interface declares them, and sends them to the worker or the pool."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from click.testing import CliRunner, Result

from simyard.api.base import Json
from simyard.cli.app import cli
from simyard.cli.kubectl import Kubectl
from simyard_sites.kubernetes.resource import Resource

INTERFACE: Json = {
    "attributes": [
        {"name": "speed", "type": "number", "mutable": True},
        {"name": "label", "type": "string", "mutable": True},
    ]
}


@dataclass(frozen=True)
class Recorder(Kubectl):
    """A server with one service, which records all changes."""

    changes: list[tuple[str, str, Json]] = field(default_factory=list)

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        spec: Json = {"serviceRef": {"name": "beam"}}
        if resource.kind == "SimulationService":
            spec = {"interface": INTERFACE, "connector": {"python": {"class": "m:C"}}}
        return {"metadata": {"name": name, "namespace": "ns"}, "spec": spec}

    def put(self, resource: Resource, name: str, path: str, body: Json) -> Json:
        self.changes.append((f"{resource.kind}/{name}", path, body))
        return {}

    def patch(self, resource: Resource, name: str, change: Json) -> None:
        self.changes.append((f"{resource.kind}/{name}", "", change))


def run(server: Recorder, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["set", *arguments], obj=server)


def test_a_workers_attributes_are_set_at_once() -> None:
    server = Recorder()
    done = run(server, "worker/beams-0", "speed=2.5", "label=12")
    assert done.exit_code == 0
    assert server.changes == [
        ("Worker/beams-0", "attributes/speed", {"value": 2.5}),
        ("Worker/beams-0", "attributes/label", {"value": "12"}),
    ]
    assert "set it on the pool too" in done.stderr


def test_a_pools_attributes_are_those_of_its_replacements_too() -> None:
    server = Recorder()
    done = run(server, "pool/beams", "speed=3")
    assert (done.exit_code, done.stdout) == (
        0,
        "workerpool.simyard.dev/beams changed: the pool replaces its workers, a few at a time\n",
    )
    assert server.changes == [("WorkerPool/beams", "", {"spec": {"attributes": {"speed": 3}}})]


@pytest.mark.parametrize(("arguments", "said"), [(("service/beam", "a=1"), "name a worker/NAME or a pool/NAME"),
                                                 (("pool/beams", "speed"), "'speed' has no =")])  # fmt: skip
def test_what_cannot_be_set_is_refused_before_anything_is_sent(arguments: tuple[str, ...], said: str) -> None:
    server = Recorder()
    done = run(server, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert server.changes == []
