# SPDX-License-Identifier: Apache-2.0
"""The OCCI frontends of a service work over HTTP from outside of the cluster, and over AMQP from inside."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import environment
import pytest
import script_pods
import users
from beams import SOLVE, Beams
from cluster import NAMESPACE, Cluster
from environment import Hidden

COMPUTE = "http://schemas.ogf.org/occi/infrastructure#compute"
VHOST = "simyard-occi"
QUEUES = r"^(amq\.gen.*|e2e\..+|[0-9]+\.[0-9.e-]+)$"
Occi = Callable[..., str]


@pytest.fixture(scope="module")
def endpoint(beams: Beams, cluster: Cluster) -> str:
    """Provide the URL of the service's frontends, which are ready."""

    def found() -> str:
        status = cluster.get(f"simulationservice/{beams.service}", f"-n={beams.namespace}")["status"]
        ready = status.get("frontends", {}).get("ready", 0)
        return status["endpoints"][0] if status.get("endpoints") and ready == 2 else ""

    return cluster.wait_for("two frontends", found)


@pytest.fixture(scope="module")
def token(beams: Beams, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Hidden:
    folder = tmp_path_factory.mktemp("occi")
    made = users.make(cluster.kubectl, beams.namespace, "occi", "simyard-edit", folder)
    users.let_make_machines(cluster.kubectl, beams.namespace, "occi")
    return made.token


@pytest.fixture(scope="module")
def occi(cluster: Cluster, endpoint: str, token: Hidden, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Occi]:
    """Provide curl with a forwarded port to the frontends; it verifies their certificate."""
    folder = tmp_path_factory.mktemp("curl")
    authority, header = folder / "ca.crt", folder / "header"
    authority.write_text(cluster.authority())
    host = str(urlsplit(endpoint).hostname)
    with cluster.forward(NAMESPACE, f"svc/{host.partition('.')[0]}", 443) as port:
        connect = ("--connect-to", f"{host}:443:127.0.0.1:{port}", "--cacert", str(authority))

        def run(path: str, *arguments: str, bearer: str = token) -> str:
            header.write_text(f"Authorization: Bearer {bearer}")
            who = ("-H", f"@{header}") if bearer else ()
            url = path if path.startswith("https:") else endpoint.rstrip("/") + path
            return environment.run("curl", "-sS", "--fail-with-body", "-m", "90", *connect, *who, *arguments, url)

        yield run


def test_the_query_interface_has_the_service(occi: Occi, beams: Beams) -> None:
    answer = occi("/-/")
    assert f'compute; scheme="{COMPUTE.removesuffix("compute")}"' in answer
    assert beams.service in answer


def test_computes_are_the_workers(occi: Occi, beams: Beams) -> None:
    listed = [line for line in occi("/compute/").splitlines() if line.strip()]
    assert len(listed) == len(beams.workers())


def test_nobody_reads_without_a_token(occi: Occi) -> None:
    for bearer in ("", "x.y.z"):
        with pytest.raises(AssertionError, match="returned error: 401"):
            occi("/compute/", bearer=bearer)


def test_a_compute_is_made_solves_and_is_deleted(occi: Occi, beams: Beams, cluster: Cluster) -> None:
    category = COMPUTE.replace("#compute", "#")
    body = (
        f'Category: compute; scheme="{category}"; class="kind"\n'
        f'Category: {beams.service}; scheme="http://simyard.dev/occi/os_tpl#"; class="mixin"\n'
        'X-OCCI-Attribute: occi.core.title="of e2e"\n'
    )
    made = occi("/compute/", "-H", "Content-Type: text/plain", "--data-binary", body)
    location = made.removeprefix("X-OCCI-Location: ").strip()
    try:
        occi(f"{location}?action=start&wait=true", "-X", "POST")
        action = {"action": f"http://cloud4e/{beams.service}/action#solve", "attributes": SOLVE}
        cluster.wait_for("the compute to offer its action", lambda: "solve" in occi(location))
        headers = ("-H", "Content-Type: application/json", "-H", "Accept: application/json")
        result = occi(f"{location}?action=solve", *headers, "-d", json.dumps(action))
        assert "9.524" in result
    finally:
        occi(location, "-X", "DELETE")
    path = urlsplit(location).path
    cluster.wait_for("its end", lambda: path not in occi("/compute/"))


def test_requests_over_amqp_are_answered(
    beams: Beams, cluster: Cluster, endpoint: str, token: Hidden, report: ModuleType
) -> None:
    user, password = f"e2e-{secrets.token_hex(3)}", Hidden(secrets.token_hex(16))
    control = ("exec", "-i", f"-n={NAMESPACE}", "simyard-broker-server-0", "-c", "rabbitmq", "--", "rabbitmqctl")
    # The command reads the password only if there are exactly these two arguments.
    cluster.kubectl(*control, "add_user", user, stdin=f"{password}\n")
    try:
        cluster.kubectl(*control, "set_permissions", "-p", VHOST, user, QUEUES, r"^amq\.default$", QUEUES)
        variables = {
            "URL": f"amqps://{user}:{password}@simyard-broker.{NAMESPACE}.svc:5671/{VHOST}",
            "QUEUE": f"amqp.occi.{endpoint.rstrip('/')}/",
            "TOKEN": token,
            "CA": cluster.authority(),
        }
        pod = script_pods.pod("occi-amqp", cluster.image, "occi_amqp.py", env=variables)
        answers = script_pods.run(cluster.kubectl, beams.namespace, pod)
    finally:
        cluster.kubectl(*control, "delete_user", user)
    answer = answers[-1]
    assert (answer["refused"], answer["status"]) == (401, 200)
    assert answer["computes"] == len(beams.workers())
    report.add("OCCI", "a read over AMQP, in the cluster (median of 100)", answer["median_milliseconds"], "ms")


def test_the_certificate_names_the_frontends(cluster: Cluster, endpoint: str, tmp_path: Path) -> None:
    host = str(urlsplit(endpoint).hostname)
    authority = tmp_path / "ca.crt"
    authority.write_text(cluster.authority())
    with cluster.forward(NAMESPACE, f"svc/{host.partition('.')[0]}", 443) as port:
        connect = ("--connect-to", f"other.example.org:443:127.0.0.1:{port}", "--cacert", str(authority))
        with pytest.raises(AssertionError, match=r"exit code 60"):
            environment.run("curl", "-sS", *connect, "https://other.example.org/-/")
