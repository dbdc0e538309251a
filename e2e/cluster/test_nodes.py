# SPDX-License-Identifier: Apache-2.0
"""Nodes fail one after the other for longer than a restart: work goes on, and replicas stay on different nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import counting
import faults
import load as loads
import pytest
from load import Load

POOL = "pool"
REPLICAS = 6
AWAY_SECONDS = 90.0
PARTITION_SECONDS = 30.0
WHOLE_SECONDS = 420.0
DONE_WHILE_AWAY = 30
"""Number of actions that must end within these 90 s; one action is requested per second."""
BROKER = "app.kubernetes.io/name=simyard-broker"
ROLES = ("operator", "apiserver", "frontend")


@pytest.fixture(scope="module")
def load(cluster: Any) -> Iterator[Load]:
    with cluster.namespace("nodes") as namespace:
        pool = counting.pool(POOL, REPLICAS, cluster.site)
        cluster.apply(loads.service(cluster, namespace), pool, namespace=namespace)
        yield loads.start(cluster, namespace, POOL, REPLICAS)
        cluster.kubectl("delete", "workerpool", POOL, "-n", namespace)


@pytest.mark.parametrize("number", range(3))
def test_each_broker_node_may_be_away_for_90_seconds(load: Load, report: Any, number: int) -> None:
    """The volume of the broker node is on a node that takes no pods, so the broker node returns with that node."""
    cluster, pod = load.cluster, f"simyard-broker-server-{number}"
    release = cluster.release_namespace
    _whole(load)
    failed = load.failures()
    node = cluster.get("pod", pod, "-n", release)["spec"]["nodeName"]
    with faults.cordoned(cluster, node):
        began = time.time()
        cluster.kubectl("delete", "pod", pod, "-n", release)
        load.send("mark")
        time.sleep(AWAY_SECONDS)  # the length of the fault
        ended = {name: loads.ended_at(item) for name, item in load.actions().items() if loads.created(item) > began}
        assert not _is_ready(cluster.get("pod", pod, "-n", release)), f"{pod} was to be away"
        assert sum(bool(at) for at in ended.values()) >= DONE_WHILE_AWAY
        _tell(load, report, f"broker node {number} of 3 away for 90 s", began)
    _whole(load)
    load.check_all_ended()
    assert load.failures() == failed


def test_a_drain_of_each_node_leaves_the_replicas_apart(load: Load, report: Any) -> None:
    """Two of the three broker nodes share a node of this cluster, and their volumes cannot follow them.

    Their disruption budget therefore forbids to drain both, and this test drains all other pods.
    """
    cluster = load.cluster
    for node in [node for node in cluster.nodes() if node != faults.control_plane(cluster)]:
        _whole(load)
        load.send("mark")
        began = time.time()
        with faults.cordoned(cluster, node):
            options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=240s")
            cluster.kubectl("drain", node, f"--pod-selector={BROKER.replace('=', '!=')}", *options, seconds=300)
        _whole(load)
        report.add(
            "Recovery", "a node is drained and returns: everything runs again after", round(time.time() - began), "s"
        )
        _tell(load, report, "a node is drained", began)
        load.check_all_ended()
    for role in ROLES:
        labels = f"app.kubernetes.io/part-of=simyard,app.kubernetes.io/component={role}"
        pods = cluster.get("pods", "-n", cluster.release_namespace, "-l", labels)["items"]
        assert len({pod["spec"]["nodeName"] for pod in pods}) > 1, f"all pods of {role} are on one node"


def test_a_node_that_is_cut_off_for_30_seconds(load: Load, report: Any) -> None:
    cluster = load.cluster
    node = cluster.get("pod", "simyard-broker-server-0", "-n", cluster.release_namespace)["spec"]["nodeName"]
    _whole(load)
    load.send("mark")
    began = time.time()
    with faults.partitioned(cluster, node):
        time.sleep(PARTITION_SECONDS)  # the length of the fault
    _whole(load)
    _tell(load, report, "a broker's node cut off for 30 s", began)
    load.asked_since(time.time(), 15)
    load.check_all_ended()


def _whole(load: Load) -> None:
    load.cluster.wait_for("everything to be whole", load.is_whole, seconds=WHOLE_SECONDS)


def _is_ready(pod: Any) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _tell(load: Load, report: Any, what: str, began: float) -> None:
    report.add("Recovery", f"{what}: longest wait for a result (of 1 s)", load.longest_wait(began), "s")
    for kind, counts in load.report()["answers"].items():
        report.add("Recovery", f"{what}: longest time without a successful call, {kind}", counts["longestGap"], "s")
        report.add("Recovery", f"{what}: failed calls, {kind}", sum(counts["bad"].values()))
