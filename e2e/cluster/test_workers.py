# SPDX-License-Identifier: Apache-2.0
"""A pool of pods with a real program starts, solves, and replaces lost workers."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
from beams import SOLVE, Beams, pool
from cluster import Cluster

EXPECTED = {"max_displacement": 9.52437, "max_stress": 29.9935, "nodes": 621, "elements": 80}
TEN = 10


def test_three_workers_are_ready_on_pods_of_the_restricted_profile(beams: Beams, cluster: Cluster) -> None:
    workers = beams.workers()
    assert len(workers) == 3
    for worker in workers:
        namespace, _, name = worker["status"]["machineId"].partition("/")
        pod = cluster.get(f"pod/{name}", f"-n={namespace}")
        assert pod["status"]["phase"] == "Running"
        assert pod["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    "beam", [{}, {"elements": 1}, {"length": 500, "width": 50, "height": 50}, {"load": 20}, {"material": "titanium"}]
)
def test_a_solve_agrees_with_the_theory(beams: Beams, beam: dict[str, Any]) -> None:
    result = beams.call(f"workerpools/{beams.pool}", **beam)["result"]
    values = {**SOLVE, **beam}
    modulus = {"steel": 210_000, "titanium": 114_000}[values["material"]]
    theory = 4 * values["load"] * values["length"] ** 3 / (modulus * values["width"] * values["height"] ** 3)
    assert result["theory"] == pytest.approx(theory)
    assert result["max_displacement"] == pytest.approx(theory, rel=0.02)
    if not beam:
        assert {name: result[name] for name in EXPECTED} == pytest.approx(EXPECTED, rel=1e-4)


def test_each_worker_solves_by_itself(beams: Beams, report: ModuleType) -> None:
    names = [worker["metadata"]["name"] for worker in beams.workers()]
    begin = time.monotonic()
    with ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda name: beams.call(f"workers/{name}"), names))
    assert all(answer["result"]["max_displacement"] > 9 for answer in answers)
    report.add("Workers", "three solves at once, kubectl included", time.monotonic() - begin, "s")


def test_a_hundred_durable_actions_end_well(beams: Beams, cluster: Cluster, report: ModuleType) -> None:
    label = "e2e=hundred"
    spec = {"target": {"kind": "WorkerPool", "name": beams.pool}, "action": "solve", "parameters": SOLVE}
    actions = [
        {
            "apiVersion": "simyard.dev/v1alpha1",
            "kind": "ServiceAction",
            "metadata": {"name": f"hundred-{index}", "labels": {"e2e": "hundred"}},
            "spec": spec,
        }
        for index in range(100)
    ]
    begin = time.monotonic()
    where = f"-n={beams.namespace}"
    try:
        cluster.kubectl("create", where, "-f", "-", stdin="\n---\n".join(json.dumps(action) for action in actions))
        until = ("--for=condition=Complete", "--timeout=240s")
        cluster.kubectl("wait", "serviceactions", where, "-l", label, *until, seconds=260)
        report.add("Workers", "100 ServiceActions on 3 workers, all Complete", time.monotonic() - begin, "s")
        ended = cluster.get("serviceactions", where, "-l", label)["items"]
        assert len(ended) == 100
        assert {round(item["status"]["result"]["max_displacement"], 3) for item in ended} == {9.524}
    finally:
        cluster.kubectl("delete", "serviceactions", where, "-l", label)


def test_a_pool_of_ten_is_available_and_goes_again(beams: Beams, cluster: Cluster, report: ModuleType) -> None:
    where = f"--namespace={beams.namespace}"
    begin = time.monotonic()
    try:
        cluster.apply(pool("ten", TEN, cluster.site), namespace=beams.namespace)
        cluster.wait("workerpool/ten", "condition=Available", beams.namespace, 240)
        report.add("Workers", f"pool of {TEN} pods, apply to Available", time.monotonic() - begin, "s")
        assert cluster.get("workerpool/ten", where)["status"]["readyReplicas"] == TEN
    finally:
        begin = time.monotonic()
        cluster.kubectl("delete", "workerpool/ten", where, "--timeout=170s", seconds=180)
    report.add("Workers", f"pool of {TEN} pods, deleted with its machines", time.monotonic() - begin, "s")
    left = [pod["metadata"]["name"] for pod in cluster.get("pods", where)["items"]]
    assert not [name for name in left if name.startswith("ten-")]


def test_a_deleted_pod_is_replaced_and_its_worker_solves(beams: Beams, cluster: Cluster, report: ModuleType) -> None:
    victim = beams.workers()[0]
    name, uid = victim["metadata"]["name"], victim["metadata"]["uid"]
    pod = victim["status"]["machineId"].partition("/")[2]
    begin = time.monotonic()
    cluster.kubectl("delete", "pod", pod, f"--namespace={beams.namespace}", "--now", "--wait=false")

    def replaced() -> bool:
        return any(
            worker["metadata"]["name"] == name and worker["metadata"]["uid"] != uid and _ready(worker)
            for worker in beams.workers()
        )

    cluster.wait_for(f"another machine for {name}", replaced)
    report.add("Workers", "pod deleted: successor Ready after", time.monotonic() - begin, "s")
    cluster.wait(f"workerpool/{beams.pool}", "condition=Available", beams.namespace)
    assert beams.call(f"workers/{name}")["result"]["max_displacement"] == pytest.approx(9.524, rel=1e-3)


def _ready(worker: Any) -> bool:
    conditions = worker.get("status", {}).get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
