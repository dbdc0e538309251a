# SPDX-License-Identifier: Apache-2.0
"""Measure the yardstick ``peer``: the time that Kubernetes itself needs for as many pods.

A Deployment goes from 0 to N replicas on a fresh control plane with kube-scheduler and kube-controller-manager. Their
clients may send 1,000 requests per second; with the defaults of 20 and 50, only these limits would be measured. kwok
simulates the kubelets: it pulls no image and starts no container. The measurement ends when ``kubectl wait`` sees N
ready replicas, as for our pools.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path

from kube_api import Api
from simyard.api.base import Json
from simyard_bench.waiting import Waiting
from simyard_bench.workload import NAME, NAMESPACE
from simyard_dev import tools
from simyard_dev.controlplane import ControlPlane
from simyard_dev.errors import SetupError
from simyard_dev.processes import Process
from simyard_dev.progress import say, step

PODS_PER_NODE = 250
REQUESTS_PER_SECOND = 1000
BURST = 2000
_PREPARE_SECONDS = 60
_BASE_SECONDS = 180.0
_PER_POD_SECONDS = 0.1
_GRACE_SECONDS = 10.0
_POD: Json = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "containers": [{"name": "program", "image": "program"}],
}


def peer(directory: Path, n: int) -> float:
    """Return the seconds until ``n`` pods are ready.

    Raises:
        SetupError: a server, or not all pods, became ready in time.
    """
    with cluster(directory, n) as (plane, processes), step(f"peer, {n} pods"):
        seconds = _measure(plane, processes, n)
    say(f"peer {seconds:.2f} s")
    return seconds


@contextlib.contextmanager
def cluster(directory: Path, n: int) -> Iterator[tuple[ControlPlane, tuple[Process, ...]]]:
    """Provide a fresh control plane with a namespace and nodes for ``n`` pods, its scheduler and its emulated kubelets.

    Raises:
        SetupError: a server did not become ready in time.
    """
    plane = ControlPlane(directory / "controlplane")
    kwok, scheduler = Process(directory, "kwok"), Process(directory, "kube-scheduler")
    try:
        plane.start(fresh=True)
        programs = tools.ensure([kwok.name, scheduler.name])
        kwok.start([programs[kwok.name], *_kwok_flags(plane.kubeconfig)])
        scheduler.start([programs[scheduler.name], *_scheduler_flags(plane.kubeconfig)])
        api = Api(plane.kubeconfig)
        nodes = [_node(number) for number in range(math.ceil(n / PODS_PER_NODE))]
        api.install([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, *nodes])
        for node in nodes:
            # Every new node has the taint `not-ready`, and the controller that would remove the taint does not run.
            api.patch(node, {"spec": {"taints": None}})
        yield plane, (kwok, scheduler)
    finally:
        for process in (scheduler, kwok):
            process.stop(_GRACE_SECONDS)
        plane.stop()


def _measure(plane: ControlPlane, processes: tuple[Process, ...], n: int) -> float:
    api = Api(plane.kubeconfig)
    api.install([deployment(_POD), _first_pod()])
    namespace, timeout = f"--namespace={NAMESPACE}", f"--timeout={_PREPARE_SECONDS}s"
    # Scheduler, controllers and kubelets work once these conditions hold.
    plane.kubectl("wait", namespace, "pod/first", "--for=condition=Ready", timeout)
    plane.kubectl("wait", namespace, f"deployment/{NAME}", "--for=condition=Available", timeout)

    def check() -> None:
        for process in processes:
            if not process.is_alive():
                raise SetupError(f"{process.name} has ended.\n{process.log_tail()}")

    seconds = _BASE_SECONDS + _PER_POD_SECONDS * n
    ready = f"jsonpath={{.status.readyReplicas}}={n}"
    with Waiting(plane.kubeconfig, f"deployment/{NAME}", ready, seconds, NAMESPACE) as waiting:
        asked = time.monotonic()
        _scale(api, n)
        return round(waiting.until(check) - asked, 3)


def _scale(api: Api, n: int) -> None:
    answer = api.patch(deployment(_POD), {"spec": {"replicas": n}})
    if not answer.accepted:
        raise SetupError(f"the Deployment cannot be scaled: {answer.message}")


def _first_pod() -> Json:
    metadata = {"name": "first", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _POD}


def deployment(pod: Json) -> Json:
    """Return a Deployment without replicas for pods with this spec."""
    labels = {"app": NAME}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _node(number: int) -> Json:
    name = f"node-{number}"
    resources = {"cpu": "1000", "memory": "1Ti", "pods": str(2 * PODS_PER_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _kwok_flags(kubeconfig: Path) -> list[str]:
    # Frequent renewals of Leases would take requests from the status of pods; 40 s is the kubelets' default.
    return [f"--kubeconfig={kubeconfig}", "--manage-all-nodes", "--node-lease-duration-seconds=40"]


def _scheduler_flags(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--kube-api-qps={REQUESTS_PER_SECOND}",
        f"--kube-api-burst={BURST}",
    ]
