# SPDX-License-Identifier: Apache-2.0
"""Each component is killed under load: no action is lost or runs twice, and the platform recovers by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import counting
import faults
import load as loads
import pytest
from load import Load

SITE = "e2e-chaos"
POOL = "pool"
REPLICAS = 6
AFTER = 15
"""Minimum number of actions that are requested after each fault."""
WHOLE_SECONDS = 420.0
PAUSE_SECONDS = 30.0
UNREACHABLE = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
BROKER = "app.kubernetes.io/name=simyard-broker"


@pytest.fixture(scope="module")
def load(cluster: Any) -> Iterator[Load]:
    """Provide workers that leave a dead node after 5 s instead of 5 min, by a site's ``tolerations``."""
    tolerations = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5} for key in UNREACHABLE
    ]
    site = {
        "apiVersion": "simyard.dev/v1alpha1",
        "kind": "CloudSite",
        "metadata": {"name": SITE},
        "spec": {"provider": {"pod": {"tolerations": tolerations}}},
    }
    with cluster.namespace("chaos") as namespace:
        try:
            cluster.apply(site)
            pool = counting.pool(POOL, REPLICAS, SITE)
            cluster.apply(loads.service(cluster, namespace), pool, namespace=namespace)
            yield loads.start(cluster, namespace, POOL, REPLICAS)
            cluster.kubectl("delete", "workerpool", POOL, "-n", namespace)
        finally:
            cluster.kubectl("delete", "cloudsite", SITE, "--ignore-not-found")


def test_a_killed_operator_leader(load: Load, report: Any) -> None:
    release = load.cluster.release_namespace

    def kill() -> None:
        holder = load.cluster.get("lease", "simyard-operator", "-n", release)["spec"]["holderIdentity"]
        [leader] = [pod for pod in _pods(load, "app.kubernetes.io/component=operator") if pod in holder]
        faults.kill(load.cluster, release, leader)

    survives(load, report, "operator leader killed", kill)


def test_a_killed_apiserver(load: Load, report: Any) -> None:
    kill_one(load, report, "one apiserver killed", "app.kubernetes.io/component=apiserver")


def test_a_killed_frontend(load: Load, report: Any) -> None:
    labels = f"app.kubernetes.io/component=frontend,simyard.dev/service-namespace={load.namespace}"
    kill_one(load, report, "one frontend killed", labels)


def test_a_killed_broker_node(load: Load, report: Any) -> None:
    assert len(_pods(load, BROKER)) == 3
    kill_one(load, report, "broker node (of 3) killed", BROKER)


def test_an_api_server_that_pauses(load: Load, report: Any) -> None:
    survives(
        load, report, "API server paused for 30 s", lambda: faults.pause_kube_apiserver(load.cluster, PAUSE_SECONDS)
    )


def test_a_node_that_dies(load: Load, report: Any) -> None:
    cluster = load.cluster
    _wait_until_whole(load)
    node = _node_to_lose(load)
    with faults.switched_off(cluster, node):
        began = time.time()
        cluster.wait_for("workers on other nodes", lambda: _all_ready_elsewhere(load, node), seconds=WHOLE_SECONDS)
        report.add("Recovery", "a worker's node dies: all workers ready elsewhere", round(time.time() - began), "s")
        load.asked_since(began, AFTER)
        load.check_all_ended()
        report.add(
            "Recovery", "a worker's node dies: longest wait for a result (of 1 s)", load.longest_wait(began), "s"
        )
    _wait_until_whole(load)
    load.check_all_ended()


def test_at_the_end_nothing_is_lost_and_nothing_double(load: Load, report: Any) -> None:
    load.send("stop")
    load.check_all_ended()
    seen, failed = load.report(), load.failures()
    report.add("Recovery", "Async actions under all faults, none lost, none run twice", len(seen["accepted"]))
    report.add("Recovery", "Async actions under all faults, failed because their worker died", len(failed))
    for kind in ("sync", "occi"):
        report.add("Recovery", f"successful calls under all faults: {kind}", seen["answers"][kind]["good"])


def kill_one(load: Load, report: Any, what: str, labels: str) -> None:
    pod = _pods(load, labels)[-1]
    survives(load, report, what, lambda: faults.kill(load.cluster, load.cluster.release_namespace, pod))


def survives(load: Load, report: Any, what: str, fault: Callable[[], None]) -> None:
    """Check that a fault costs only time: no worker dies of it."""
    _wait_until_whole(load)
    load.send("mark")
    workers, failed = load.workers(), load.failures()
    began = time.time()
    fault()
    _wait_until_whole(load)
    whole = round(time.time() - began)
    load.asked_since(began, AFTER)
    load.check_all_ended()
    report.add("Recovery", f"{what}: all components ready again after", whole, "s")
    report.add("Recovery", f"{what}: longest wait for a result (of 1 s)", load.longest_wait(began), "s")
    for kind in ("sync", "occi"):
        answers = load.report()["answers"][kind]
        report.add("Recovery", f"{what}: longest time without a successful call, {kind}", answers["longestGap"], "s")
        report.add("Recovery", f"{what}: failed calls, {kind}", sum(answers["bad"].values()))
    assert load.workers() == workers
    assert load.failures() == failed


def _wait_until_whole(load: Load) -> None:
    load.cluster.wait_for("everything to be whole", load.is_whole, seconds=WHOLE_SECONDS)


def _pods(load: Load, labels: str) -> list[str]:
    return faults.names(load.cluster.get("pods", "-n", load.cluster.release_namespace, "-l", labels))


def _node_to_lose(load: Load) -> str:
    """Return the node with workers of the pool and the fewest broker nodes; most broker nodes must keep running."""
    cluster = load.cluster

    def on(node: str, namespace: str, labels: str) -> int:
        where = ["-n", namespace, "-l", labels, "--field-selector", f"spec.nodeName={node}"]
        return len(cluster.get("pods", *where)["items"])

    nodes = [node for node in cluster.nodes() if node != faults.control_plane(cluster)]
    brokers = {node: on(node, cluster.release_namespace, BROKER) for node in nodes}
    found = [node for node in nodes if brokers[node] <= 1 and on(node, load.namespace, f"simyard.dev/pool={POOL}")]
    assert found, f"there is no node whose loss leaves most brokers: {brokers}"
    return str(min(found, key=brokers.__getitem__))


def _all_ready_elsewhere(load: Load, node: str) -> bool:
    pods = load.cluster.get("pods", "-n", load.namespace, "-l", f"simyard.dev/pool={POOL}")["items"]
    of = {pod["metadata"]["labels"]["simyard.dev/worker-uid"]: pod["spec"].get("nodeName") for pod in pods}
    ready = [
        worker["metadata"]["uid"]
        for worker in load.cluster.get("workers", "-n", load.namespace)["items"]
        for condition in worker.get("status", {}).get("conditions", [])
        if condition["type"] == "Ready" and condition["status"] == "True"
    ]
    return len(ready) == REPLICAS and all(of.get(uid) not in (None, node) for uid in ready)
