# SPDX-License-Identifier: Apache-2.0
"""`broker.mode=existing` at a RabbitMQ that the chart does not create."""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from helm_release import NAMESPACE

from kube_api import wait_until
from release import API_SERVICE, BROKER_SECRET, Release
from simyard.api import names
from simyard.api.base import Json
from simyard_dev.frontends import SIMYARD
from simyard_dev.local_broker import LocalBroker
from simyard_dev.ports import LOOPBACK

SERVICE, SITE, POOL, REPLICAS = "factors", "here", "pool", 2


def _manifest(kind: str, metadata: Json, spec: Json) -> Json:
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


MANIFESTS = (
    _manifest("CloudSite", {"name": SITE}, {"provider": {"emulated": {"guests": "process"}}}),
    _manifest("SimulationService", {"name": SERVICE, "namespace": NAMESPACE}, {
        "interface": {
            "actions": [{
                "name": "factorise", "mode": "Sync", "timeoutSeconds": 30,
                "parameters": [{"name": "number", "type": "integer", "required": True, "minimum": 2}],
                "result": [{"name": "factors", "type": "string"}],
            }],
        },
        "connector": {
            "commands": {
                "actions": [{
                    "action": "factorise", "command": ["factor", "$(number)"],
                    "results": [{"name": "factors", "pattern": r"\d+: ([\d ]+)"}],
                }],
            },
        },
    }),
    _manifest("WorkerPool", {"name": POOL, "namespace": NAMESPACE}, {
        "serviceRef": {"name": SERVICE}, "replicas": REPLICAS, "placement": {"sites": [SITE]},
    }),
)  # fmt: skip


@pytest.fixture
def running(release: Release, broker: LocalBroker) -> Iterator[Release]:
    """Provide the release with operator and apiserver at the broker."""
    access = {
        "host": LOOPBACK,
        "port": str(urlsplit(broker.tls_url).port),
        "username": broker.user,
        "password": broker.password,
        "vhost": broker.virtual_host,
        "management_url": broker.management_url,
        "ca.crt": Path(str(broker.ca_file)).read_text(),
    }
    metadata = {"name": BROKER_SECRET, "namespace": NAMESPACE}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": access}
    release.api.install([secret])
    release.kubectl("wait", "--for=condition=Ready", "--timeout=240s", "certificate/simyard-apiserver")
    for pod in (release.operator, release.apiserver):
        release.start(pod)
    release.kubectl("wait", "--for=condition=Available", "--timeout=240s", f"apiservice/{API_SERVICE}")
    yield release
    for pod in (release.apiserver, release.operator):
        pod.stop()


def test_workers_work_at_an_existing_broker_and_cleanup_leaves_nothing(broker: LocalBroker, running: Release) -> None:
    running.api.install(MANIFESTS)
    running.kubectl("wait", "--for=condition=Available", "--timeout=240s", f"workerpool/{POOL}")
    assert running.get("workerpool", POOL)["status"]["readyReplicas"] == REPLICAS
    assert _factorise(running, 91) == "7 13"
    wait_until(lambda: {item.get("ssl") for item in _ask(broker, "connections")} == {True})

    for kind, name in (("workerpool", POOL), ("simulationservice", SERVICE), ("cloudsite", SITE)):
        running.kubectl("delete", kind, name, "--timeout=240s")
    for pod in (running.apiserver, running.operator):
        pod.stop()
    assert _ask(broker, "queues")
    _clean_up(broker)
    assert [item["name"] for item in _ask(broker, "users")] == [broker.user]
    assert [item["name"] for item in _ask(broker, "vhosts")] == [broker.virtual_host]
    assert [item["name"] for item in _ask(broker, "exchanges") if not _is_own(item["name"])] == []
    for kind in ("queues", "policies", "operator-policies", "parameters", "topic-permissions", "connections"):
        wait_until(lambda kind=kind: _ask(broker, kind) == [])


def _factorise(release: Release, number: int) -> Any:
    """Call an action of the pool through kube-apiserver and the aggregated apiserver, and return its result."""
    path = f"/apis/{names.SUBRESOURCES_API_VERSION}/namespaces/{NAMESPACE}/workerpools/{POOL}/actions/factorise"
    body = json.dumps({"parameters": {"number": number}})
    return json.loads(release.kubectl("create", "--raw", path, "-f", "-", stdin=body))["result"]["factors"]


def _clean_up(broker: LocalBroker) -> None:
    """Run the command of docs/uninstall.md."""
    access = [f"--amqp-url={broker.tls_url}", f"--amqp-management-url={broker.management_url}"]
    command = [SIMYARD, "cleanup", *access, f"--amqp-ca-file={broker.ca_file}", "--yes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def _is_own(exchange: str) -> bool:
    """Return whether each virtual host of RabbitMQ has this exchange."""
    return exchange == "" or exchange.startswith("amq.")


def _ask(broker: LocalBroker, path: str) -> Any:
    """Return what the management API answers."""
    login = base64.b64encode(f"{broker.user}:{broker.password}".encode()).decode()
    request = urllib.request.Request(f"{broker.management_url}/api/{path}", headers={"Authorization": f"Basic {login}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)
