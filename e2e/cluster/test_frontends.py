# SPDX-License-Identifier: Apache-2.0
"""The number of a service's frontends follows the load, and no frontend stops with an unfinished request."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import beams as examples
import pytest
import script_pods
import users
from cluster import NAMESPACE, Cluster, Json

LOAD_SECONDS = 150
CLIENTS = 6
LEAST, MOST = 2, 4


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    """Provide a namespace with a service of its own, whose frontends may come and go."""
    with cluster.namespace("e2e-frontends") as name:
        scale(cluster, name, autoscaling={"minReplicas": LEAST, "maxReplicas": MOST, "targetLatencyMilliseconds": 1})
        cluster.wait_for("the least frontends", lambda: frontends(cluster, name) == LEAST)
        yield name


def scale(cluster: Cluster, namespace: str, **frontend: Any) -> None:
    """Set ``spec.frontend``."""
    manifest: Json = examples.service(cluster.ccx_image)
    manifest["spec"]["frontend"] = frontend
    cluster.apply(manifest, namespace=namespace)


def status(cluster: Cluster, namespace: str) -> Any:
    return cluster.get(f"simulationservice/{examples.SERVICE}", f"-n={namespace}").get("status", {})


def frontends(cluster: Cluster, namespace: str) -> int:
    """Return the number of ready frontends from the service's status."""
    return int(status(cluster, namespace).get("frontends", {}).get("ready", 0))


def load(cluster: Cluster, namespace: str, folder: Path) -> list[Json]:
    """Read the frontends from a pod for a while; return the counts of each second."""
    variables = {
        "URL": status(cluster, namespace)["endpoints"][0].rstrip("/") + "/compute/",
        "TOKEN": users.make(cluster.kubectl, namespace, "reader", "simyard-view", folder).token,
        "CA": cluster.authority(),
        "CLIENTS": str(CLIENTS),
        "SECONDS": str(LOAD_SECONDS),
    }
    pod = script_pods.pod("load", cluster.image, "occi_load.py", env=variables)
    return script_pods.run(cluster.kubectl, namespace, pod)


@pytest.fixture(scope="module")
def story(cluster: Cluster, namespace: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Let load begin and frontends start; then, under the same load, stop all frontends but one."""
    folder = tmp_path_factory.mktemp("load")
    with ThreadPoolExecutor() as threads:
        begin = time.monotonic()
        loading: Future[list[Json]] = threads.submit(load, cluster, namespace, folder)
        cluster.wait_for("the most frontends", lambda: frontends(cluster, namespace) == MOST, LOAD_SECONDS)
        most_after = time.monotonic() - begin
        scale(cluster, namespace, replicas=1)
        scaled = time.monotonic()
        cluster.wait_for("one frontend", lambda: frontends(cluster, namespace) == 1)
        assert not loading.done(), "the load had ended before the frontends had"
        one_after = time.monotonic() - scaled
        lines = loading.result()
    return {"most_after": most_after, "one_after": one_after, "lines": lines}


def test_frontends_come_with_the_load(story: dict[str, Any], report: ModuleType) -> None:
    assert story["lines"][-1]["good"] > 0
    report.add("Frontends", f"under load: {MOST} of {MOST} frontends ready after", story["most_after"], "s")


def test_no_request_fails_while_frontends_come_and_go(story: dict[str, Any], report: ModuleType) -> None:
    counts = dict(story["lines"][-1])
    seconds, good = counts.pop("seconds"), counts.pop("good")
    report.add("Frontends", f"reads of {CLIENTS} clients without keep-alive", good / seconds, "per s")
    report.add("Frontends", "failed reads while frontends started and stopped", sum(counts.values()), f"of {good}")
    report.add("Frontends", f"under load: from {MOST} frontends to 1 after", story["one_after"], "s")
    assert not counts


def test_one_frontend_has_no_disruption_budget_and_its_pods_are_gone(
    story: dict[str, Any], cluster: Cluster, namespace: str
) -> None:
    assert story["lines"]
    label = f"simyard.dev/service-namespace={namespace}"

    def gone() -> bool:
        pods = cluster.get("pods", f"-n={NAMESPACE}", "-l", label)["items"]
        budgets = cluster.get("poddisruptionbudgets", f"-n={NAMESPACE}", "-l", label)["items"]
        return len(pods) == 1 and not budgets

    cluster.wait_for("what is not needed any more to go", gone)


def test_no_frontend_is_left_when_the_service_goes(cluster: Cluster, namespace: str) -> None:
    label = f"simyard.dev/service-namespace={namespace}"
    cluster.kubectl("delete", "simulationservice", examples.SERVICE, f"-n={namespace}")

    def gone() -> bool:
        return not cluster.get("deployments,services,pods", f"-n={NAMESPACE}", "-l", label)["items"]

    cluster.wait_for("the frontends to go", gone, 180)
