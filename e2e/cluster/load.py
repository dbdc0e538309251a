# SPDX-License-Identifier: Apache-2.0
"""Load a pool without pause, and check the result: no action may be lost, and none may run twice.

An observer in a pod (pods/observer.py) makes the load: it calls the pool's actions, Async and Sync, and reads the OCCI
frontends without pause. Workers report every run of an action to the observer, so no run stays unseen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import counting
import script_pods
import users
from script_pods import Json

LOST_WITH_THEIR_WORKER = {"WorkerLost", "Interrupted"}
"""Reasons for which an action that must not be repeated may fail after the death of its worker."""
END_SECONDS = 420.0


@dataclass(frozen=True)
class Load:
    """The pool and its observer."""

    cluster: Any
    namespace: str
    pool: str
    replicas: int

    def report(self) -> Any:
        """Return the observations so far."""
        return json.loads(self.cluster.kubectl("get", "--raw", f"{self._observer}/report"))

    def send(self, command: str) -> None:
        """Send ``mark`` (measure gaps and count failures anew) or ``stop`` (call no more) to the observer."""
        self.cluster.kubectl("create", "--raw", f"{self._observer}/{command}", "-f", "-", stdin="{}")

    @property
    def _observer(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{counting.OBSERVER}:{counting.PORT}/proxy"

    def actions(self) -> dict[str, Any]:
        """Return all ServiceActions by name."""
        found = self.cluster.get("serviceactions", "-n", self.namespace)["items"]
        return {item["metadata"]["name"]: item for item in found}

    def workers(self) -> dict[str, tuple[str, int]]:
        """Return the uid of each worker, and the restarts of its pod's container."""
        pods = self.cluster.get("pods", "-n", self.namespace, "-l", f"simyard.dev/pool={self.pool}")["items"]
        restarts = {
            pod["metadata"]["labels"]["simyard.dev/worker"]: pod["status"]["containerStatuses"][0]["restartCount"]
            for pod in pods
        }
        found = self.cluster.get("workers", "-n", self.namespace)["items"]
        return {
            item["metadata"]["name"]: (item["metadata"]["uid"], restarts[item["metadata"]["name"]]) for item in found
        }

    def is_whole(self) -> bool:
        """Return whether all our parts, the broker and the workers of the pool run."""
        pool = self.cluster.get("workerpool", self.pool, "-n", self.namespace)
        parts = self.cluster.get("deployments,statefulsets", "-n", self.cluster.release_namespace)["items"]
        ready = [part["spec"]["replicas"] == part["status"].get("readyReplicas", 0) for part in parts]
        return len(ready) >= 4 and all(ready) and pool["status"].get("readyReplicas") == self.replicas

    def check_all_ended(self) -> None:
        """Wait until all accepted actions have ended; check that each ran once, or not at all."""
        accepted = self.report()["accepted"]

        def all_over() -> bool:
            over = finished(self.actions())
            return all(name in over for name in accepted)

        self.cluster.wait_for("the end of all actions", all_over, seconds=END_SECONDS)
        seen, actions = self.report(), self.actions()
        assert {key: runs for key, runs in seen["begun"].items() if len(runs) > 1} == {}, "done twice"
        for name in accepted:
            status = actions[name]["status"]
            if "failure" in status:
                assert status["failure"]["reason"] in LOST_WITH_THEIR_WORKER, f"{name}: {status}"
            else:
                assert seen["ended"][name] == seen["begun"][name] == [status["result"]["run"]], f"{name}: {status}"
        assert [key for key in seen["syncGood"] if len(seen["ended"].get(key, [])) != 1] == []

    def failures(self) -> dict[str, str]:
        """Return the ServiceActions that failed, with their reasons."""
        failed = {name: item for name, item in self.actions().items() if "failure" in item.get("status", {})}
        return {name: item["status"]["failure"]["reason"] for name, item in failed.items()}

    def asked_since(self, began: float, count: int) -> None:
        """Wait until ``count`` actions were requested after a moment."""

        def enough() -> bool:
            return sum(created(item) > began for item in self.actions().values()) >= count

        self.cluster.wait_for("actions asked for after the fault", enough, seconds=END_SECONDS)

    def longest_wait(self, began: float) -> int:
        """Return the longest wait of a caller for an action that was pending at that moment, in seconds."""
        ends = [(item, ended) for item in self.actions().values() if (ended := ended_at(item)) > began]
        return round(max((ended - max(created(item), began) for item, ended in ends), default=0))


def service(cluster: Any, namespace: str) -> Json:
    """Return the service of a load, with two frontends."""
    return counting.service(cluster.image, namespace, frontends=2)


def start(cluster: Any, namespace: str, pool: str, replicas: int) -> Load:
    """Begin to call a pool of :func:`service` that exists already."""
    load = Load(cluster, namespace, pool, replicas)
    target = f"simulationservice/{counting.SERVICE}"
    for what in (f"workerpool/{pool}", target):
        cluster.kubectl("wait", what, "-n", namespace, "--for=condition=Available", "--timeout=110s")
    users.account(cluster.kubectl, namespace, counting.OBSERVER, "simyard-edit")
    [endpoint] = cluster.get(target, "-n", namespace)["status"]["endpoints"]
    settings = {
        "namespace": namespace,
        "pool": pool,
        "seconds": 1,
        "pauses": {"async": 1.0, "sync": 2.0, "occi": 0.5},
        "occi": endpoint,
        "ca": cluster.authority(),
    }
    observer = script_pods.pod(
        counting.OBSERVER,
        cluster.image,
        "observer.py",
        env={"OBSERVER": json.dumps(settings)},
        account=counting.OBSERVER,
        **script_pods.ON_CONTROL_PLANE,
    )
    port = script_pods.service(counting.OBSERVER, counting.PORT, counting.PORT)
    cluster.apply(script_pods.config_map(), port, observer, namespace=namespace)
    cluster.wait_for("the observer and a first result", lambda: finished(load.actions()))
    return load


def finished(actions: dict[str, Any]) -> set[str]:
    """Return the names of the actions that have ended."""
    return {name for name, item in actions.items() if ended_at(item)}


def created(item: Any) -> float:
    """Return the creation time of an object in seconds since the epoch."""
    return datetime.fromisoformat(item["metadata"]["creationTimestamp"]).timestamp()


def ended_at(item: Any) -> float:
    """Return the time at which an action ended; 0 while it has not."""
    finished_time = item.get("status", {}).get("finishedTime")
    return datetime.fromisoformat(finished_time).timestamp() if finished_time else 0.0
