# SPDX-License-Identifier: Apache-2.0
"""Measure an Indexed Job of Kubernetes on kwok: one pod for each task, and no container is started.

The control plane is the same as for the yardstick ``peer`` (:mod:`simyard_bench.peer`).
"""

from __future__ import annotations

import time
from pathlib import Path

from kube_api import Api
from simyard.api.base import Json
from simyard_bench.peer import cluster
from simyard_bench.studies.rows import Figures, System
from simyard_bench.studies.watching import watch
from simyard_bench.waiting import Waiting
from simyard_bench.workload import NAME, NAMESPACE
from simyard_dev.errors import SetupError
from simyard_dev.progress import say, step

MAX_SECONDS = 7200.0


def measure(directory: Path, workers: int, tasks: int) -> Figures:
    """Run a Job with this number of completions and this parallelism.

    Raises:
        SetupError: a server did not become ready, or the Job did not complete.
    """
    with cluster(directory / f"job-{workers}", workers) as (plane, processes):
        running = {process.name: process for process in (*plane.processes, *processes)}

        def find_pids() -> dict[str, int]:
            return {name: identity.pid for name, process in running.items() if (identity := process.identity)}

        def check() -> None:
            for process in running.values():
                if not process.is_alive():
                    raise SetupError(f"{process.name} has ended.\n{process.log_tail()}")

        api, job = Api(plane.kubeconfig), _make_job(workers, tasks)
        api.install([job])
        with (
            step(f"Job: {tasks} tasks, {workers} workers"),
            watch(find_pids, plane) as costs,
            Waiting(plane.kubeconfig, f"job/{NAME}", "condition=Complete", MAX_SECONDS, NAMESPACE) as waiting,
        ):
            asked = time.monotonic()
            answer = api.patch(job, {"spec": {"suspend": False}})
            if not answer.accepted:
                raise SetupError(f"the Job cannot be started: {answer.message}")
            seconds = waiting.until(check) - asked
    figures = Figures(
        system=System.JOB,
        tasks=tasks,
        workers=workers,
        seconds=round(seconds, 3),
        cpu_s=costs.cpu_s,
        rss_mib=costs.rss_mib,
        writes=costs.writes,
        etcd_bytes=costs.etcd_bytes,
        load_average=costs.load_average,
    )
    say(f"Job: {figures.rate:.0f} tasks/s, {figures.cpu_us:.0f} us of CPU each")
    return figures


def _make_job(workers: int, tasks: int) -> Json:
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [{"name": "task", "image": "task"}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "completionMode": "Indexed",
            "completions": tasks,
            "parallelism": workers,
            "suspend": True,
            "template": {"spec": pod},
        },
    }
