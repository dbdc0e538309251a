"""jOCCI, a client that others wrote in Java, lives through the life of a compute at the frontends of `make dev-up`."""

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from simyard_dev.controlplane import ControlPlane
from simyard_dev.environment import Environment
from simyard_dev.platform import Platform

HERE = Path(__file__).parent
PROJECT = HERE / "jocci"
PRODUCTS = HERE.parents[1] / ".run" / "occi-clients" / "jocci"
BUILD_SECONDS = 240
CLIENT_SECONDS = 200
MISSING = [command for command in ("java", "javac", "mvn") if shutil.which(command) is None]

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=f"needs Java 17 and Maven: no {', '.join(MISSING)} here"),
]


@pytest.fixture(scope="module")
def classpath() -> str:
    """The client, built, with what it needs: as the version of the project says."""
    PRODUCTS.mkdir(parents=True, exist_ok=True)
    libraries = PRODUCTS / "classpath"
    command = ["mvn", "-q", "-B", "-f", str(PROJECT / "pom.xml"), f"-Dproducts={PRODUCTS}"]
    goals = ["compile", "dependency:build-classpath", f"-Dmdep.outputFile={libraries}"]
    done = subprocess.run([*command, *goals], capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return f"{PRODUCTS / 'classes'}:{libraries.read_text().strip()}"


@pytest.fixture(scope="module")
def environment(simyard_directory: Path) -> Iterator[Environment]:
    """Two frontends, with a service and a site in the namespace that they serve."""
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


class Client:
    """The Java program: what it has said so far, and where it waits."""

    def __init__(self, command: list[str], variables: dict[str, str], log: Path) -> None:
        self.said: dict[str, str] = {}
        self._log = log
        self._process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("wb"),
            text=True,
        )
        self._deadline = threading.Timer(CLIENT_SECONDS, self._process.kill)
        self._deadline.start()

    def reach(self, place: str) -> None:
        """Let it go on to a place, or to its end ("")."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self.said:
            print(file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            name, _, value = line.rstrip("\n").partition("=")
            self.said[name] = value
            if (name, value) == ("at", place):
                return
        assert not place and self._process.wait() == 0, f"{self.said}\n{self._log.read_text()}"

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._deadline.cancel()


@pytest.fixture
def client(environment: Environment, classpath: str, tmp_path: Path) -> Iterator[Client]:
    script = f"set -a; . {environment.directory / 'env'}; env"
    told = subprocess.run(["env", "-i", "bash", "-c", script], capture_output=True, text=True, check=True).stdout
    variables = {**os.environ, **dict(re.findall(r"^(OCCI_\w+)=(.*)$", told, re.MULTILINE))}
    command = ["java", "-cp", classpath, "dev.simyard.e2e.JocciClient", "primes", "medium", "factorise", "number=360"]
    client = Client(command, variables, tmp_path / "stderr")
    try:
        yield client
    finally:
        client.end()


def test_the_life_of_a_compute(environment: Environment, client: Client) -> None:
    kubectl = environment.control_plane.kubectl
    said = client.said

    client.reach("created")
    assert said["connected"] == "true"
    assert {"compute", "network", "storage", "application", "amqplink"} <= words(said["kinds"])
    assert said["os_tpl"] == "[primes]"
    assert {"small", "medium", "large"} <= words(said["resource_tpl"])
    assert said["listed"] == "[]"
    assert said["listed_after_creation"] == f"[{said['location']}]"
    assert said["location"].endswith(f"/compute/{said['id']}")
    assert {"primes", "medium", "interface", "ssh_key"} <= words(said["mixins"])
    assert {"stop", "restart", "suspend", "factorise"} == words(said["actions"])
    assert (said["title"], said["hostname"], said["state"]) == ("made by jOCCI", "jocci", "active")
    assert (said["cores"], said["memory"]) == ("2", "4")
    assert said["link_target"].startswith("amqp:///simyard.worker.")
    [worker] = json.loads(kubectl("get", "workers", "-o", "json"))["items"]
    spec = worker["spec"]
    assert (spec["serviceRef"]["name"], spec["site"]) == ("primes", "local")
    assert (spec["title"], spec["hostname"]) == ("made by jOCCI", "jocci")
    assert spec["resources"] == {"cpu": 2, "memory": "4Gi"}
    assert spec["sshPublicKeys"] == ["ssh-ed25519 AAAA jocci"]

    client.reach("triggered")
    assert said["triggered"] == "true"
    kubectl("wait", "serviceactions", "--all", "--for=condition=Complete", "--timeout=60s")
    [action] = json.loads(kubectl("get", "serviceactions", "-o", "json"))["items"]
    assert action["spec"]["parameters"] == {"number": 360}
    assert action["status"]["result"] == {"factors": "2 2 2 3 3 5"}

    client.reach("stopped")
    assert (said["stop"], said["offered_when_stopped"]) == ("true", "[start]")
    assert power(environment.control_plane, worker) == ("Stopped", "Stopped")

    client.reach("started")
    assert (said["stop_again"], said["start"]) == ("false", "true")  # what is stopped cannot be stopped
    assert power(environment.control_plane, worker) == ("Running", "Running")

    client.reach("")
    assert (said["deleted"], said["listed_after_deletion"]) == ("true", "[]")
    assert re.search(r"\b404\b.*there is no entity", said["described_after_deletion"])
    kubectl("wait", "--for=delete", f"worker/{worker['metadata']['name']}", "--timeout=60s")


def words(text: str) -> set[str]:
    """What is in a list as Java prints it."""
    return set(text.strip("[]").split(", "))


def power(control_plane: ControlPlane, worker: dict[str, dict[str, str]]) -> tuple[str, str]:
    """What a Worker's machine should do, and what it does."""
    found = json.loads(control_plane.kubectl("get", "worker", worker["metadata"]["name"], "-o", "json"))
    return found["spec"].get("powerState", "Running"), found["status"]["machineState"]
