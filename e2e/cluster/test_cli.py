# SPDX-License-Identifier: Apache-2.0
"""`kubectl simyard` against the cluster, as a user who may edit one namespace."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import environment
import pytest
import users
from beams import Beams
from cluster import Cluster
from deploy import BEAM

PLUGIN = str(environment.ROOT / ".venv" / "bin" / "kubectl-simyard")
Simyard = Callable[..., str]


@pytest.fixture(scope="module")
def simyard(beams: Beams, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Simyard:
    """Run the command with the rights of simyard-edit in the namespace of the beams."""
    user = users.make(cluster.kubectl, beams.namespace, "engineer", "simyard-edit", tmp_path_factory.mktemp("engineer"))

    def run(*arguments: str) -> str:
        return environment.run(PLUGIN, *arguments, KUBECONFIG=str(user.kubeconfig))

    return run


def test_kubectl_finds_the_plugin(beams: Beams) -> None:
    path = f"{Path(PLUGIN).parent}:{environment.variables()['PATH']}"
    assert "kubectl simyard" in environment.run("kubectl", "simyard", "--help", PATH=path)


def test_services_pools_and_workers_are_listed(simyard: Simyard, beams: Beams) -> None:
    assert beams.service in simyard("services")
    assert beams.pool in simyard("pools")
    listed = simyard("workers", beams.pool)
    assert all(worker["metadata"]["name"] in listed for worker in beams.workers())


def test_the_service_describes_itself(simyard: Simyard, beams: Beams) -> None:
    shown = simyard("describe", f"service/{beams.service}")
    assert all(word in shown for word in ("solve", "max_displacement", "MPa"))


def test_an_action_gives_its_result(simyard: Simyard, beams: Beams) -> None:
    said = simyard(
        "action", f"pool/{beams.pool}", "solve", "-f", str(BEAM / "solve.json"), "-p", "load=20", "-o", "json"
    )
    assert '"max_displacement": 19.04' in said
    deck = simyard("action", f"pool/{beams.pool}", "solve", "-p", f"deck=@{BEAM / 'deck.inp'}", "-o", "json")
    assert '"nodes": 43' in deck


def test_attributes_are_what_the_worker_says_now(simyard: Simyard, beams: Beams) -> None:
    worker = beams.workers()[0]["metadata"]["name"]
    beams.call(f"workers/{worker}")
    shown = json.loads(simyard("attributes", f"worker/{worker}", "--fresh", "-o", "json"))
    assert any(value["value"] >= 1 for value in _named(shown, "solved"))


def test_the_log_of_a_worker_has_its_actions(simyard: Simyard, beams: Beams) -> None:
    worker = beams.workers()[0]["metadata"]["name"]
    beams.call(f"workers/{worker}")
    assert "solve" in simyard("logs", worker)


def test_timeline_and_usage_are_drawn_from_the_pool(simyard: Simyard, beams: Beams) -> None:
    timeline = json.loads(simyard("timeline", beams.pool, "-o", "json"))
    assert timeline
    used = list(csv.DictReader(simyard("usage", "-o", "csv").splitlines()))
    assert [row for row in used if beams.service in row.values()]


def test_another_namespace_is_refused(simyard: Simyard) -> None:
    with pytest.raises(AssertionError, match="forbidden"):
        simyard("pools", "-n", "default")


def _named(shown: object, name: str) -> list[dict[str, float]]:
    """Return all values of that attribute in the answer, at any depth."""
    if isinstance(shown, list):
        return [value for item in shown for value in _named(item, name)]
    if not isinstance(shown, dict):
        return []
    if shown.get("name") == name:
        return [shown]
    found = [shown[name]] if isinstance(shown.get(name), dict) else []
    return found + [value for item in shown.values() for value in _named(item, name)]
