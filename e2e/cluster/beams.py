# SPDX-License-Identifier: Apache-2.0
"""Run the example calculix-beam in the cluster: a pool of pods with the real solver."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import yaml
from cluster import Cluster, Json, restricted_namespace
from deploy import BEAM

NAMESPACE = "e2e-beams"
SERVICE, POOL = "calculix-beam", "beams"
WORKERS, FRONTENDS = 3, 2
SOLVE = json.loads((BEAM / "solve.json").read_text())["parameters"]


@dataclass(frozen=True)
class Beams:
    """A namespace with the service and its pool."""

    cluster: Cluster
    namespace: str = NAMESPACE
    service: str = SERVICE
    pool: str = POOL

    def object(self) -> Any:
        """Return the WorkerPool."""
        return self.cluster.get("workerpool", self.pool, f"--namespace={self.namespace}")

    def workers(self) -> list[Any]:
        """Return the Workers."""
        selector = f"simyard.dev/pool={self.pool}"
        return list(self.cluster.get("workers", f"--namespace={self.namespace}", "-l", selector)["items"])

    def call(self, target: str, **parameters: Any) -> Any:
        """Solve through the aggregated API; ``target`` is ``workerpools/NAME`` or ``workers/NAME``."""
        path = f"/apis/subresources.simyard.dev/v1alpha1/namespaces/{self.namespace}/{target}/actions/solve"
        body = json.dumps({"parameters": {**SOLVE, **parameters}})
        return json.loads(self.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=body))


def service(image: str) -> Json:
    """Return the manifest of the example with the image for pods, two frontends and a smaller CPU request."""
    manifest: Json = yaml.safe_load((BEAM / "service.yaml").read_text())
    manifest["spec"] |= {"images": {"pod": image}, "frontend": {"replicas": FRONTENDS}}
    manifest["spec"]["resources"] = {"cpu": "200m", "memory": "256Mi"}
    return manifest


def pool(name: str = POOL, replicas: int = WORKERS, site: str = "") -> Json:
    """Return a pool of the service."""
    spec: Json = {"serviceRef": {"name": SERVICE}, "replicas": replicas, "placement": {"sites": [site]}}
    return {"apiVersion": "simyard.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": name}, "spec": spec}


def have_beams(cluster: Cluster) -> Beams:
    """Apply service and pool unless they exist, and wait until the pool is Available."""
    cluster.apply(restricted_namespace(NAMESPACE))
    cluster.apply(service(cluster.ccx_image), pool(site=cluster.site), namespace=NAMESPACE)

    def images() -> set[str]:
        pods = cluster.get("pods", f"--namespace={NAMESPACE}", "-l=simyard.dev/pool")["items"]
        return {container["image"] for pod in pods for container in pod["spec"]["containers"]}

    cluster.wait_for("workers of this image", lambda: images() == {cluster.ccx_image})
    cluster.wait(f"workerpool/{POOL}", "condition=Available", NAMESPACE, 180)
    cluster.wait(f"simulationservice/{SERVICE}", "condition=Available", NAMESPACE, 180)
    return Beams(cluster)
