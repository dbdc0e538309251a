# SPDX-License-Identifier: Apache-2.0
"""Measure Studies on a pool of workers of an emulated cloud."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from simyard.api import names
from simyard.api.base import Json
from simyard_bench.studies.rows import Figures, System, Table
from simyard_bench.studies.watching import watch
from simyard_bench.waiting import Waiting
from simyard_bench.workload import NAME, NAMESPACE, Load
from simyard_bench.world import World
from simyard_dev.errors import SetupError
from simyard_dev.progress import say, step

PROGRAM = Path(__file__).with_name("program.py")
STORE = "versitygw"
MAX_SECONDS = 7200.0
GROW_SECONDS = 600.0
REST_SECONDS = 5.0


def measure(directory: Path, workers: int, numbers: Sequence[int]) -> Generator[Figures, None, None]:
    """Run Studies with these numbers of tasks one after the other on one pool, and yield the figures of each.

    Raises:
        SetupError: a server did not start, or a Study did not succeed.
    """
    world = World(directory / f"study-{workers}")
    try:
        world.up()
        world.prepare(Load(workers, "instant", 1, "shared"), PROGRAM)
        ready = f"jsonpath={{.status.readyReplicas}}={workers}"
        with step(f"{workers} workers"), world.waiting(names.WORKER_POOLS, ready, GROW_SECONDS) as waiting:
            world.scale(workers)
            waiting.until(world.check)
        _run(world, 1000)  # all programs have loaded their code
        time.sleep(REST_SECONDS)
        for tasks in numbers:
            with step(f"Study: {tasks} tasks, {workers} workers"):
                figures = _run(world, tasks)
            say(f"{figures.rate:.0f} tasks/s, {figures.cpu_us:.0f} us of CPU each: {figures.cpu_s}")
            yield figures.model_copy(update={"workers": workers})
    finally:
        world.down()


def _run(world: World, tasks: int) -> Figures:
    name = f"tasks-{tasks}"
    manifest = _make_manifest(name, tasks)
    world.api.install([manifest])
    plane = world.environment.control_plane
    with (
        watch(lambda: _list_processes(world), plane) as costs,
        Waiting(plane.kubeconfig, f"study/{name}", "condition=Complete", MAX_SECONDS, NAMESPACE) as waiting,
    ):
        asked = time.monotonic()
        answer = world.api.patch(manifest, {"spec": {"suspend": False}})
        if not answer.accepted:
            raise SetupError(f"the study cannot be started: {answer.message}")
        seconds = waiting.until(world.check) - asked
    study = world.api.get(manifest).body
    if study["status"]["succeeded"] != tasks:
        raise SetupError(f"the study did not succeed: {study['status']}")
    return Figures(
        system=System.STUDY,
        tasks=tasks,
        workers=0,
        seconds=round(seconds, 3),
        cpu_s=costs.cpu_s,
        rss_mib=costs.rss_mib,
        writes=costs.writes,
        etcd_bytes=costs.etcd_bytes,
        object_bytes=len(plane.kubectl("get", "--raw", _make_path(name))),
        table=_download(world, name),
        load_average=costs.load_average,
    )


def _make_manifest(name: str, tasks: int) -> Json:
    axes = [{"name": "x", "start": 0, "stop": 1}]
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.STUDIES.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "target": {"kind": names.WORKER_POOLS.kind, "name": NAME},
            "action": "run",
            "design": {"random": {"axes": axes, "count": tasks, "seed": 1}},
            "suspend": True,
        },
    }


def _make_path(name: str) -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.STUDIES.plural}/{name}"


def _list_processes(world: World) -> dict[str, int]:
    store = world.environment.files.process.identity
    return world.processes() | ({STORE: store.pid} if store is not None else {})


def _download(world: World, name: str) -> Table:
    """Download the table of a Study with the command of a user."""
    directory = world.environment.directory
    file = directory / f"{name}.csv"
    command = ["kubectl", "simyard", "study", "results", name, "--file", str(file)]
    environment = {
        **os.environ,
        "PATH": f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "KUBECONFIG": str(world.environment.kubeconfig),
    }
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [*command, f"--namespace={NAMESPACE}"], env=environment, capture_output=True, text=True, check=False
    )
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SetupError(f"{' '.join(command)}: {done.stderr}")
    size = file.stat().st_size
    file.unlink()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Table(seconds=round(seconds, 2), cpu_s=round(cpu, 2), bytes=size)
