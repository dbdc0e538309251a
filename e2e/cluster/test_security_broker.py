# SPDX-License-Identifier: Apache-2.0
"""The credentials of a worker reach nothing at the broker but its own queues: a table of attempts."""

from __future__ import annotations

import base64
import json
from typing import Any

import counting
import pytest
import script_pods

from simyard.messaging.occi_topology import name_clients_vhost
from simyard_adapter.wire import name_pool_queue, name_pool_user, name_worker_queue

MANAGEMENT_PORT = 15671


@pytest.fixture(scope="module")
def attempts(cluster: Any) -> dict[str, str]:
    """Return the answers of the broker to the user of one of two pools, by attempt."""
    with cluster.namespace("broker") as namespace:
        kubectl = cluster.kubectl
        pools = [counting.pool(name, 1, cluster.site) for name in ("mine", "theirs")]
        script_pods.apply(kubectl, namespace, [counting.service(cluster.image, namespace), *pools])
        for pool in ("mine", "theirs"):
            kubectl("wait", f"workerpool/{pool}", f"-n={namespace}", "--for=condition=Available", "--timeout=110s")
        env = {"ATTEMPTS": json.dumps(_settings(cluster, namespace))}
        manifest = script_pods.pod("attempts", cluster.image, "broker_attempts.py", env=env)
        lines = script_pods.run(kubectl, namespace, manifest)
        return {line["attempt"]: line["answer"] for line in lines}


def _settings(cluster: Any, namespace: str) -> dict[str, Any]:
    """Return what a worker learns of the broker from its bootstrap document, and the names of another pool."""

    def objects(kind: str) -> list[Any]:
        found: list[Any] = json.loads(cluster.kubectl("get", kind, f"-n={namespace}", "-o", "json"))["items"]
        return found

    uids = {item["metadata"]["name"]: item["metadata"]["uid"] for item in objects("workerpools")}
    workers = {item["metadata"]["labels"]["simyard.dev/pool"]: item["metadata"]["uid"] for item in objects("workers")}
    documents = [
        json.loads(base64.b64decode(item["data"]["bootstrap.json"])) for item in _bootstraps(objects("secrets"))
    ]
    [broker] = [document["broker"] for document in documents if document["pool"] == "mine"]
    mine, theirs = name_pool_user(uids["mine"]), name_pool_user(uids["theirs"])
    assert broker["username"] == mine
    return {
        "host": broker["host"],
        "port": broker["port"],
        "managementPort": MANAGEMENT_PORT,
        "vhost": broker["vhost"],
        "otherVhosts": [name_clients_vhost(broker["vhost"]), "nobody-has-it"],
        "ca": broker["caCertificate"],
        "username": mine,
        "password": broker["password"],
        "worker": workers["mine"],
        "own": name_worker_queue(mine, workers["mine"]),
        "foreignUser": theirs,
        "foreignWorker": workers["theirs"],
        "foreignQueue": name_worker_queue(theirs, workers["theirs"]),
        "foreignPool": name_pool_queue(theirs),
    }


def _bootstraps(secrets: list[Any]) -> list[Any]:
    return [item for item in secrets if "bootstrap.json" in (item.get("data") or {})]


def test_a_worker_can_do_what_it_must(attempts: dict[str, str]) -> None:
    permitted = {name: answer for name, answer in attempts.items() if name.startswith("permitted")}
    assert len(permitted) == 2
    assert set(permitted.values()) == {"done"}


def test_a_worker_can_do_nothing_else(attempts: dict[str, str], report: Any) -> None:
    forbidden = {name: answer for name, answer in attempts.items() if not name.startswith("permitted")}
    assert len(forbidden) > 45
    assert {name: answer for name, answer in forbidden.items() if not answer.startswith("refused")} == {}
    report.add("Security", "attempts with a worker's broker credentials, all refused", len(forbidden), "")
