# SPDX-License-Identifier: Apache-2.0
"""The chart is upgraded and rolled back while a pool works: no worker restarts, no action is lost or runs twice.

There is no older release yet, so the installed one counts as old. The new one is the chart of this tree with a higher
version and the image under another tag, so that every pod of ours is replaced.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import counting
import load as loads
import pytest
import yaml
from load import Load

POOL = "pool"
REPLICAS = 3
SECONDS = 600.0
COMPONENTS = ("operator", "apiserver", "frontend")


@pytest.fixture(scope="module")
def load(cluster: Any) -> Iterator[Load]:
    with cluster.namespace("upgrade") as namespace:
        pool = counting.pool(POOL, REPLICAS, cluster.site)
        cluster.apply(loads.service(cluster, namespace), pool, namespace=namespace)
        yield loads.start(cluster, namespace, POOL, REPLICAS)
        cluster.kubectl("delete", "workerpool", POOL, "-n", namespace)


@pytest.fixture(scope="module")
def next_image(cluster: Any) -> str:
    """Provide the same image under another tag on every node."""
    image = f"{cluster.image}-next"
    for node in cluster.nodes():
        names = cluster.node(node, "ctr", "--namespace=k8s.io", "images", "ls", "-q").split()
        [name] = [each for each in names if each.endswith(f"/{cluster.image}") or each == cluster.image]
        renamed = name.removesuffix(cluster.image) + image
        cluster.node(node, "ctr", "--namespace=k8s.io", "images", "tag", "--force", name, renamed)
    return image


@pytest.fixture(scope="module")
def next_chart(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the chart with a higher version."""
    chart = tmp_path_factory.mktemp("next") / "simyard"
    shutil.copytree(cluster.chart, chart)
    file = chart / "Chart.yaml"
    described = yaml.safe_load(file.read_text())
    described["version"] = described["appVersion"] = "99.0.0"
    file.write_text(yaml.safe_dump(described))
    return chart


def test_an_upgrade(cluster: Any, load: Load, next_image: str, next_chart: Path, report: Any) -> None:
    tag = next_image.rpartition(":")[2]
    chart = [cluster.release, str(next_chart), "-f", str(cluster.values)]
    how = [f"--set=image.tag={tag}", "--wait", "--timeout=6m"]
    changes(load, report, "upgrade", next_image, lambda: cluster.helm("upgrade", *chart, *how))


def test_a_rollback(cluster: Any, load: Load, next_image: str, report: Any) -> None:
    assert images(cluster) == {next_image}
    release = [cluster.release, "--wait", "--timeout=6m"]
    changes(load, report, "rollback", cluster.image, lambda: cluster.helm("rollback", *release))


def changes(load: Load, report: Any, what: str, image: str, change: Any) -> None:
    """Check that all our pods are replaced, and nothing else."""
    cluster = load.cluster
    cluster.wait_for("everything to be whole", load.is_whole, seconds=SECONDS)
    load.check_all_ended()
    load.send("mark")
    workers, failed, began = load.workers(), load.failures(), time.time()
    change()
    report.add("Upgrade", f"{what}: helm --wait returned after", round(time.time() - began), "s")
    cluster.wait_for("pods of the other image", lambda: images(cluster) == {image}, seconds=SECONDS)
    cluster.wait_for("everything to be whole", load.is_whole, seconds=SECONDS)
    load.asked_since(time.time(), 10)
    load.check_all_ended()
    answers = load.report()["answers"]
    for kind in ("async", "sync", "occi"):
        report.add(
            "Upgrade", f"{what}: longest time without a successful call, {kind}", answers[kind]["longestGap"], "s"
        )
        report.add("Upgrade", f"{what}: failed calls, {kind}", sum(answers[kind]["bad"].values()))
    assert {kind: told["bad"] for kind, told in answers.items() if told["bad"]} == {}
    assert load.workers() == workers
    assert load.failures() == failed


def images(cluster: Any) -> set[str]:
    """Return the images of our own running pods."""
    labels = f"app.kubernetes.io/component in ({', '.join(COMPONENTS)})"
    pods = cluster.get("pods", "-n", cluster.release_namespace, "-l", labels)["items"]
    return {pod["spec"]["containers"][0]["image"] for pod in pods}
