# SPDX-License-Identifier: Apache-2.0
"""After `helm install` everything is Available, hardened and spread over the nodes, and `helm test` passes."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from cluster import NAMESPACE, Cluster, base_image

ROLES = ("operator", "apiserver")
MAX_ABOVE_BASE = 150e6
LARGEST_ID = 1 << 30


def pods(cluster: Cluster, role: str) -> list[Any]:
    selector = f"app.kubernetes.io/part-of=simyard,app.kubernetes.io/component={role}"
    running = "status.phase=Running"
    return list(cluster.get("pods", f"-n={NAMESPACE}", "-l", selector, f"--field-selector={running}")["items"])


@pytest.mark.parametrize("role", ROLES)
def test_two_replicas_are_available_on_two_nodes_and_do_not_crash(cluster: Cluster, role: str) -> None:
    deployment = cluster.get(f"deployment/simyard-{role}", f"-n={NAMESPACE}")
    assert deployment["status"]["availableReplicas"] == deployment["spec"]["replicas"] == 2
    found = pods(cluster, role)
    assert len({pod["spec"]["nodeName"] for pod in found}) == 2
    assert not [status for pod in found for status in pod["status"]["containerStatuses"] if status["restartCount"]]


def test_helm_test_passes(cluster: Cluster) -> None:
    said = cluster.helm("test", cluster.release, "--timeout=120s")
    assert "Phase:          Succeeded" in said


def test_one_operator_leads(cluster: Cluster) -> None:
    holder = cluster.get("lease/simyard-operator", f"-n={NAMESPACE}")["spec"]["holderIdentity"]
    names = [pod["metadata"]["name"] for pod in pods(cluster, "operator")]
    assert sum(holder.startswith(name) for name in names) == 1, (holder, names)


def test_the_broker_has_three_nodes_and_a_secret_that_the_operator_uses(cluster: Cluster) -> None:
    broker = cluster.get("rabbitmqcluster/simyard-broker", f"-n={NAMESPACE}")
    assert broker["status"]["binding"]["name"] == "simyard-broker-default-user"
    status = cluster.kubectl(
        *("exec", f"-n={NAMESPACE}", "simyard-broker-server-0", "-c", "rabbitmq", "--"),
        *("rabbitmqctl", "--quiet", "cluster_status", "--formatter=json"),
    )
    assert len(json.loads(status)["running_nodes"]) == 3


def test_the_kinds_explain_themselves_and_the_aggregated_api_is_discovered(cluster: Cluster) -> None:
    assert "WorkerPool" in cluster.kubectl("explain", "workerpools.spec")
    found = cluster.kubectl("get", "--raw", "/apis/subresources.simyard.dev/v1alpha1")
    assert {"workers/actions", "workerpools/actions"} <= {item["name"] for item in json.loads(found)["resources"]}


def test_a_privileged_pod_is_refused_beside_them(cluster: Cluster) -> None:
    container = {"name": "x", "image": cluster.image, "securityContext": {"privileged": True}}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "privileged", "namespace": NAMESPACE},
        "spec": {"containers": [container]},
    }
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(manifest))


def test_the_image_is_small_says_what_is_in_it_and_runs_as_anybody(cluster: Cluster, report: ModuleType) -> None:
    about = json.loads(cluster.docker("image", "inspect", cluster.image))[0]
    assert about["Config"]["User"] == "65532:65532"
    labels = about["Config"]["Labels"]
    assert {"version", "revision", "created", "licenses"} <= {key.rpartition(".")[2] for key in labels}
    run = ("run", "--rm", "--read-only", "--network=none", "--cap-drop=ALL", f"--user={LARGEST_ID}:{LARGEST_ID}")
    read = f"print(open({labels['dev.simyard.sbom']!r}).read())"
    document = json.loads(cluster.docker(*run, "--entrypoint=python", cluster.image, "-c", read))
    components = {item["name"] for item in document["components"]}
    assert {"simyard", "simyard-sites", "simyard-adapter", "kopf", "aiohttp", "libc6"} <= components
    report.add("Image", "components in the SBOM", len(document["components"]))
    assert "operator" in cluster.docker(*run, cluster.image, "--help")
    above = about["Size"] - json.loads(cluster.docker("image", "inspect", base_image()))[0]["Size"]
    assert 0 < above < MAX_ABOVE_BASE
