# SPDX-License-Identifier: Apache-2.0
"""jOCCI, an OCCI client in Java by other authors, drives a compute through its life at frontends of `make dev-up`."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from jocci_client import MISSING, Client, build, running, words

from simyard_dev.controlplane import ControlPlane
from simyard_dev.environment import Environment
from simyard_dev.platform import Platform

HERE = Path(__file__).parent
SSH_KEY = "ssh-ed25519 AAAA jocci"

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=f"needs Java 17 and Maven: no {', '.join(MISSING)} here"),
]


@pytest.fixture(scope="module")
def classpath() -> str:
    return build()


@pytest.fixture(scope="module")
def environment(simyard_directory: Path) -> Iterator[Environment]:
    """Provide two frontends, with a service and a site in their namespace."""
    environment = Environment(simyard_directory / "occi-clients")
    try:
        environment.up()
        Platform(environment, occi=True).up()
        kubectl = environment.control_plane.kubectl
        kubectl("apply", "--server-side", "-f", str(HERE / "service.yaml"))
        kubectl("wait", "--for=condition=Available", "--timeout=60s", "simulationservice/primes")
        kubectl("wait", "--for=condition=Ready", "--timeout=60s", "cloudsite/local")
        yield environment
    finally:
        Platform(environment).down()
        environment.control_plane.stop(0)
        environment.broker.stop(0)


@pytest.fixture
def client(environment: Environment, classpath: str, tmp_path: Path) -> Iterator[Client]:
    script = f"set -a; . {environment.directory / 'env'}; env"
    told = subprocess.run(["env", "-i", "bash", "-c", script], capture_output=True, text=True, check=True).stdout
    variables = {**os.environ, **dict(re.findall(r"^(OCCI_\w+)=(.*)$", told, re.MULTILINE))}
    variables["OCCI_SSH_KEY"] = SSH_KEY
    with running(classpath, tmp_path / "stderr", variables, "primes", "medium", "factorise", "number=360") as client:
        yield client
    environment.control_plane.kubectl("delete", "workers", "--all", "--timeout=60s")


def test_the_life_of_a_compute(environment: Environment, client: Client) -> None:
    kubectl = environment.control_plane.kubectl
    said = client.said

    client.reach("created")
    assert said["connected"] == "true"
    assert {"compute", "network", "networkinterface", "application", "amqplink"} <= words(said["kinds"])
    assert said["os_tpl"] == "[primes]"
    assert {"small", "medium", "large"} <= words(said["resource_tpl"])
    assert said["listed"] == "[]"
    assert said["listed_after_creation"] == f"[{said['location']}]"
    assert said["location"].endswith(f"/compute/{said['id']}")
    assert {"primes", "medium", "interface", "ssh_key"} <= words(said["mixins"])
    assert {"stop", "restart", "suspend", "factorise"} == words(said["actions"])
    assert (said["title"], said["hostname"], said["state"]) == ("made by jOCCI", "jocci", "active")
    assert (said["cores"], said["memory"]) == ("2", "4")
    assert said["target_of_amqplink"].startswith("amqp:///simyard.worker.")
    assert said["target_of_networkinterface"] == "/network/local"
    [worker] = json.loads(kubectl("get", "workers", "-o", "json"))["items"]
    spec = worker["spec"]
    assert (spec["serviceRef"]["name"], spec["site"]) == ("primes", "local")
    assert (spec["title"], spec["hostname"]) == ("made by jOCCI", "jocci")
    assert spec["resources"] == {"cpu": 2, "memory": "4Gi"}
    assert spec["sshPublicKeys"] == [SSH_KEY]

    client.reach("triggered")
    assert said["triggered"] == "true"
    kubectl("wait", "serviceactions", "--all", "--for=condition=Complete", "--timeout=60s")
    [action] = json.loads(kubectl("get", "serviceactions", "-o", "json"))["items"]
    assert action["spec"]["parameters"] == {"number": 360}
    assert action["status"]["result"] == {"factors": "2 2 2 3 3 5"}

    client.reach("stopped")
    assert (said["stop"], said["offered_when_stopped"]) == ("true", "[start]")
    wait_for_power(environment.control_plane, worker, "Stopped")

    client.reach("started")
    assert (said["stop_again"], said["start"]) == ("false", "true")  # a stopped compute cannot be stopped
    wait_for_power(environment.control_plane, worker, "Running")

    client.reach("")
    assert (said["deleted"], said["listed_after_deletion"]) == ("true", "[]")
    assert re.search(r"\b404\b.*there is no entity", said["described_after_deletion"])
    kubectl("wait", "--for=delete", f"worker/{worker['metadata']['name']}", "--timeout=60s")


def wait_for_power(control_plane: ControlPlane, worker: dict[str, dict[str, str]], state: str) -> None:
    """Wait until a Worker wants its machine in this state and its site has confirmed it."""
    for field in ("spec.powerState", "status.machineState"):
        name = f"worker/{worker['metadata']['name']}"
        control_plane.kubectl("wait", name, f"--for=jsonpath={{.{field}}}={state}", "--timeout=30s")
