# SPDX-License-Identifier: Apache-2.0
"""jOCCI, an OCCI client in Java by other authors, takes a compute through its life at the frontends in the cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jocci_client
import pytest
import users
import yaml
from jocci_client import MISSING, Client, words

SERVICE = Path(jocci_client.__file__).with_name("service.yaml")
HTTPS = 443

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=f"needs Java 17 and Maven: no {', '.join(MISSING)} here"),
    pytest.mark.skipif(os.geteuid() != 0, reason="listens on the port 443 of loopback, which takes root"),
]


@pytest.fixture(scope="module")
def namespace(cluster: Any) -> Iterator[str]:
    """Provide a namespace with the service."""
    with cluster.namespace("jocci") as name:
        service = next(item for item in yaml.safe_load_all(SERVICE.read_text()) if item["kind"] == "SimulationService")
        service["spec"] |= {"images": {"pod": cluster.image}, "frontend": {"replicas": 1}}
        service["spec"]["resources"] = {"cpu": "100m", "memory": "128Mi"}
        cluster.apply(service, namespace=name)
        cluster.kubectl("wait", "simulationservice/primes", "-n", name, "--for=condition=Available", "--timeout=110s")
        yield name


@pytest.fixture
def client(cluster: Any, namespace: str, tmp_path: Path) -> Iterator[Client]:
    user = users.make(cluster.kubectl, namespace, "jocci", "simyard-edit", tmp_path)
    users.let_make_machines(cluster.kubectl, namespace, "jocci")
    [endpoint] = cluster.get("simulationservice", "primes", "-n", namespace)["status"]["endpoints"]
    host = str(urlsplit(endpoint).hostname)
    authority, hosts = tmp_path / "ca.crt", tmp_path / "hosts"
    authority.write_text(cluster.authority())
    hosts.write_text(f"127.0.0.1 {host}\n")
    variables = {**os.environ, "OCCI_URL": endpoint, "OCCI_CA_FILE": str(authority), "OCCI_TOKEN": user.token}
    arguments = ["primes", "default", "factorise", "number=360"]
    classpath, log = jocci_client.build(), tmp_path / "stderr"
    frontend = f"svc/{host.partition('.')[0]}"
    with (
        cluster.forward(cluster.release_namespace, frontend, HTTPS, local=HTTPS),
        jocci_client.running(classpath, log, variables, *arguments, jdk_net_hosts_file=str(hosts)) as client,
    ):
        yield client


def test_the_life_of_a_compute(cluster: Any, namespace: str, client: Client) -> None:
    said = client.said
    client.reach("created")
    assert said["connected"] == "true"
    assert said["listed"] == "[]"
    assert said["listed_after_creation"] == f"[{said['location']}]"
    assert {"stop", "restart", "factorise"} <= words(said["actions"])
    assert (said["title"], said["hostname"], said["state"]) == ("made by jOCCI", "jocci", "active")
    [worker] = cluster.get("workers", "-n", namespace)["items"]
    assert (worker["spec"]["serviceRef"]["name"], worker["spec"]["title"]) == ("primes", "made by jOCCI")
    [pod] = cluster.get("pods", "-n", namespace)["items"]
    assert pod["spec"]["hostname"] == "jocci"

    client.reach("triggered")
    assert said["triggered"] == "true"
    cluster.kubectl("wait", "serviceactions", "--all", "-n", namespace, "--for=condition=Complete", "--timeout=110s")
    [action] = cluster.get("serviceactions", "-n", namespace)["items"]
    assert action["status"]["result"] == {"factors": "2 2 2 3 3 5"}

    client.reach("stopped")
    assert said["stop"] == "true"
    client.reach("started")
    assert (said["stop_again"], said["start"]) == ("false", "true")  # a stopped compute cannot be stopped

    client.reach("")
    assert (said["deleted"], said["listed_after_deletion"]) == ("true", "[]")
    cluster.wait_for("the pod to be gone", lambda: not cluster.get("pods", "-n", namespace)["items"])
