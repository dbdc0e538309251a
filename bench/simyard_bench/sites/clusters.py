# SPDX-License-Identifier: Apache-2.0
"""Measure the cases at Kubernetes.

The starts of VirtualMachineInstances are compared with a bare client, or with a ReplicaSet of KubeVirt's controllers.
The starts of pods are compared with a Deployment.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import aiohttp
import orjson
import uvloop
from prometheus_client import generate_latest

from kube_api import Api, wait_until
from simyard.api.base import Json
from simyard_bench import peer, writes
from simyard_bench.modules import command, environment
from simyard_bench.occi.load import SERVING
from simyard_bench.sites import bare_kube, virt, virt_handler
from simyard_bench.sites.asking import machine_requests
from simyard_bench.sites.bare_kube import CONCURRENCIES, BareKube, copy_manifest
from simyard_bench.sites.rows import Figures
from simyard_bench.sites.starting import Fleet, Started
from simyard_bench.workload import NAME, NAMESPACE
from simyard_dev import kubevirt
from simyard_dev.controlplane import ControlPlane
from simyard_dev.processes import Process
from simyard_dev.progress import say, step
from simyard_dev.providers import complete_kubevirt, complete_pod
from simyard_dev.virt_control_plane import VirtControlPlane
from simyard_sites.base import Site, SiteConfig
from simyard_sites.kubernetes.client import build_path
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubevirt import KubevirtSite
from simyard_sites.kubevirt.vmi import VMIS
from simyard_sites.pod import PodSite
from simyard_sites.pod.site import PODS

OURS = "ours"
"""Namespace of our machines; the machines of the yardstick are in another namespace."""
WARM_UP = 10
READY_SECONDS = 30.0
GRACE_SECONDS = 10.0
KUBEVIRT = "kube-apiserver with KubeVirt's definitions; its controllers simulated, four writes a machine, no latency"
CONTROLLERS = "in start-controllers, KubeVirt's own virt-api and virt-controller; kwok for the pods, no guest boots"
KWOK = "kube-apiserver and kube-scheduler; kwok for the kubelets, no image pulled, no container started"

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("kubevirt.io", "v1", "virtualmachineinstancereplicasets", "VirtualMachineInstanceReplicaSet")

Bare = Callable[[int], Awaitable[bare_kube.Started]]
"""A measurement of the yardstick with a number of machines; it removes the machines afterwards."""


def vmis(directory: Path, sizes: Sequence[int], rounds: int) -> Iterator[Figures]:
    """Measure pools of VirtualMachineInstances of these sizes.

    Raises:
        SetupError: the API server refused a request, or a start did not end in time.
    """
    plane, simulator = ControlPlane(directory / "controlplane"), Process(directory, "virt")
    try:
        plane.start(fresh=True)
        kubevirt.install(plane)
        _namespaces(plane, OURS, NAMESPACE)
        simulator.start([*command(virt), plane.kubeconfig], environment())
        simulator.wait_ready(lambda: SERVING in simulator.log_file.read_text(), READY_SECONDS)
        for n in sizes:
            with step(f"{n} VirtualMachineInstances"):
                yield uvloop.run(_vmis(plane, n, rounds))
    finally:
        simulator.stop(GRACE_SECONDS)
        plane.stop()


def controlled_vmis(directory: Path, sizes: Sequence[int], rounds: int) -> Iterator[Figures]:
    """Measure pools of these sizes at KubeVirt's own virt-api and virt-controller.

    Raises:
        SetupError: a program is missing, a request was refused, or a start did not end in time.
    """
    plane, handler = ControlPlane(directory / "controlplane"), Process(directory, "virt-handler")
    controllers = VirtControlPlane(directory / "virt", plane)
    try:
        plane.start(fresh=True)
        controllers.start()
        _namespaces(plane, OURS, NAMESPACE)
        script = virt_handler.Script(
            kubeconfig=controllers.handler_kubeconfig,
            certificate=controllers.handler_certificate.certificate,
            key=controllers.handler_certificate.key,
            port=controllers.handler_port,
            nodes=controllers.nodes,
        )
        file = directory / "virt-handler.json"
        file.write_text(script.model_dump_json())
        handler.start([*command(virt_handler), file], environment())
        handler.wait_ready(lambda: SERVING in handler.log_file.read_text(), READY_SECONDS)
        for n in sizes:
            with step(f"{n} VirtualMachineInstances at KubeVirt's controllers"):
                yield uvloop.run(_controlled_vmis(plane, n, rounds))
    finally:
        handler.stop(GRACE_SECONDS)
        controllers.stop()
        plane.stop()


def pods(directory: Path, sizes: Sequence[int], rounds: int) -> Iterator[Figures]:
    """Measure pools of pods of these sizes.

    Raises:
        SetupError: the API server refused a request, or a start did not end in time.
    """
    with peer.cluster(directory, max(sizes)) as (plane, _):
        _namespaces(plane, OURS, NAMESPACE)
        for n in sizes:
            with step(f"{n} pods"):
                yield uvloop.run(_pods(plane, n, rounds))


async def _vmis(plane: ControlPlane, n: int, rounds: int) -> Figures:
    load = os.getloadavg()[0]
    async with bare_kube.connect(plane.kubeconfig) as session:
        ours = Ours(session, VMIS, partial(_site, KubevirtSite, complete_kubevirt(namespace=OURS), plane.kubeconfig))
        example = copy_manifest(await ours.warm_up())
        theirs = BareKube(session, VMIS, NAMESPACE)

        async def bare(concurrency: int, n: int) -> bare_kube.Started:
            started = await theirs.create(example, n, concurrency)
            say(f"a bare client with {concurrency} requests at once: {started.seconds:.2f} s")
            await theirs.end()
            return started

        await bare(CONCURRENCIES[0], WARM_UP)
        tried = [(await bare(concurrency, n), concurrency) for concurrency in CONCURRENCIES]
        first, best = min(tried, key=lambda one: one[0].seconds)
        case = Case("kubevirt", "start", n, KUBEVIRT)
        return await _compare(case, ours, partial(bare, best), first, rounds, load, best)


async def _controlled_vmis(plane: ControlPlane, n: int, rounds: int) -> Figures:
    load = os.getloadavg()[0]
    async with bare_kube.connect(plane.kubeconfig) as session:
        ours = Ours(session, VMIS, partial(_site, KubevirtSite, complete_kubevirt(namespace=OURS), plane.kubeconfig))
        Api(plane.kubeconfig).install([_replica_set(copy_manifest(await ours.warm_up()))])
        bare = _controller(session, VMIS, REPLICA_SETS)
        await bare(WARM_UP)
        return await _compare(
            Case("kubevirt", "start-controllers", n, CONTROLLERS), ours, bare, await bare(n), rounds, load
        )


async def _pods(plane: ControlPlane, n: int, rounds: int) -> Figures:
    load = os.getloadavg()[0]
    async with bare_kube.connect(plane.kubeconfig) as session:
        ours = Ours(session, PODS, partial(_site, PodSite, complete_pod(namespace=OURS), plane.kubeconfig))
        example = copy_manifest(await ours.warm_up())
        spec = {name: value for name, value in example["spec"].items() if name != "nodeName"}
        Api(plane.kubeconfig).install([peer.deployment(spec)])
        bare = _controller(session, PODS, DEPLOYMENTS)
        await bare(WARM_UP)
        return await _compare(Case("pod", "start", n, KWOK), ours, bare, await bare(n), rounds, load)


def _replica_set(example: Json) -> Json:
    """Return a ReplicaSet without replicas whose machines are like the example.

    They do not have the labels of the example, because KubeVirt changes some of these, such as the name of the node.
    """
    labels = {"app": NAME}
    return {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": example["spec"]},
        },
    }


def _controller(session: aiohttp.ClientSession, resource: Resource, controller: Resource) -> Bare:
    """Return a function that measures how fast a controller creates objects of a resource."""
    theirs, path = BareKube(session, resource, NAMESPACE), build_path(controller, NAMESPACE, NAME)

    async def bare(n: int) -> bare_kube.Started:
        started = await theirs.scale(path, n)
        say(f"{controller.kind}: {started.seconds:.2f} s")
        await theirs.ask_to_scale(path, 0)
        await theirs.gone()
        return started

    return bare


@dataclass(frozen=True)
class Case:
    """A case with a number of machines, and the description of the simulated cloud."""

    site: str
    name: str
    n: int
    cloud: str


class Ours:
    """The measured pools. Each has a new site, whose machines are removed after the measurement."""

    def __init__(self, session: aiohttp.ClientSession, resource: Resource, make_site: Callable[[], Site]) -> None:
        self._session = session
        self._resource = resource
        self._make_site = make_site
        self._pools = 0

    async def warm_up(self) -> Json:
        """Start a small pool and return one of its stored objects."""
        _, _, stored = await self._pool(WARM_UP)
        return stored

    async def start(self, n: int) -> tuple[Started, writes.Counts]:
        """Start a pool of ``n`` machines; return its times and its writes."""
        started, made, _ = await self._pool(n)
        return started, made

    async def _pool(self, n: int) -> tuple[Started, writes.Counts, Json]:
        self._pools += 1
        requests = machine_requests(f"pool-{n}-{self._pools}", OURS, n)
        async with Fleet(self._make_site()) as fleet:
            before = _count_writes()
            started = await fleet.start(requests)
            made = _count_writes() - before
            say(f"ours: {started.seconds:.2f} s, {started.setting.calls} calls of {started.setting.batch}")
            async with self._session.get(build_path(self._resource, OURS, requests[0].name)) as answer:
                stored: Json = orjson.loads(await answer.read())
            await fleet.end()
        return started, made, stored


async def _compare(
    case: Case,
    ours: Ours,
    bare: Bare,
    first: bare_kube.Started,
    rounds: int,
    load: float,
    concurrency: int | None = None,
) -> Figures:
    """Measure our site and the yardstick in turn, and return the figures.

    ``first`` is the first round of the yardstick.
    """
    theirs, mine = [first], [await ours.start(case.n)]
    for _ in range(rounds - 1):
        theirs.append(await bare(case.n))
        mine.append(await ours.start(case.n))
    started = [one for one, _ in mine]
    made = writes.by_resource(mine[-1][1])
    middle = sorted(started, key=lambda one: one.seconds)[len(started) // 2]
    return Figures(
        site=case.site,
        case=case.name,
        n=case.n,
        cloud=case.cloud,
        ours_s=round(median(one.seconds for one in started), 3),
        yardstick_s=round(median(one.seconds for one in theirs), 3),
        cpu_s=round(median(one.cpu_seconds for one in started), 3),
        yardstick_cpu_s=round(median(one.cpu_seconds for one in theirs), 3),
        ours_rounds_s=[round(one.seconds, 3) for one in started],
        yardstick_rounds_s=[round(one.seconds, 3) for one in theirs],
        accepted_s=round(median(one.accepted_seconds for one in started), 3),
        yardstick_accepted_s=round(median(one.accepted_seconds for one in theirs), 3) if concurrency else None,
        writes_per_worker=writes.total(made) / case.n,
        writes=made,
        calls_at_once=middle.setting.calls,
        batch=middle.setting.batch,
        yardstick_concurrency=concurrency,
        load_average=round(load, 2),
    )


def _site(make: Callable[[SiteConfig], Site], provider: Json, kubeconfig: Path) -> Site:
    return make(SiteConfig(NAME, provider, installation=NAME, kubeconfig=kubeconfig))


def _count_writes() -> writes.Counts:
    """Return the writes of this process so far."""
    return writes.parse_operator_writes(generate_latest().decode())


def _namespaces(plane: ControlPlane, *names: str) -> None:
    """Create namespaces, and wait until they accept pods."""
    api = Api(plane.kubeconfig)
    api.install([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names])
    for name in names:
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(partial(_is_there, api, account))


def _is_there(api: Api, path: str) -> bool:
    return api.request("GET", path).accepted
