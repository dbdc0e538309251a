# SPDX-License-Identifier: Apache-2.0
"""Give each test its own namespace at a real KubeVirt control plane, with actions and observations."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.declarations import Interface
from simyard_dev.controlplane import ControlPlane
from simyard_dev.providers import complete_kubevirt
from simyard_dev.virt_control_plane import NAMESPACE, VirtControlPlane, build_handler_pod
from simyard_simulators.virt.handler import PlayedHandler
from simyard_sites.base import Changed, Gone, Machine, MachineRequest, MachineState, Owner, Site, SiteConfig, Snapshot
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubevirt import KubevirtSite
from simyard_sites.kubevirt.vmi import VMIS

IMAGE = "registry.example.com/solver:3"
DEADLINE_SECONDS = 60.0
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")


@dataclass
class Stage:
    """A namespace, a client with all rights, and a site; ``machines`` follows the events of the site."""

    control_plane: ControlPlane
    virt: VirtControlPlane
    client: KubeClient
    handler: PlayedHandler
    namespace: str
    site: Site
    machines: dict[str, Machine] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def site_of(self, kubeconfig: Path | None = None, **provider: Any) -> Site:
        """Return a site in the namespace with these further settings."""
        config = SiteConfig(
            "there",
            complete_kubevirt(namespace=self.namespace, **provider),
            kubeconfig=kubeconfig or self.kubeconfig,
        )
        return KubevirtSite(config)

    @property
    def kubeconfig(self) -> Path:
        return self.control_plane.kubeconfig

    def request(self, worker: str = "pool-0", **asked: Any) -> MachineRequest:
        uid = str(uuid.uuid4())
        broker = BrokerAddress("127.0.0.1", 5671, "/", "pool", "password")
        document = Bootstrap(self.namespace, worker, uid, "service", "pool", broker, Interface(), {}).to_bytes()
        owner = Owner(self.namespace, worker, uid, "pool")
        return MachineRequest(f"{worker}-{uid[:8]}", owner, document, **{"image": IMAGE, **asked})

    async def create(self, *requests: MachineRequest, site: Site | None = None) -> list[str]:
        """Have machines created and return their ids."""
        outcomes = [outcome async for outcome in (site or self.site).create(requests)]
        assert [outcome.error for outcome in outcomes] == [None] * len(requests)
        return [outcome.machine.id for outcome in outcomes if outcome.machine is not None]

    async def running(self, **asked: Any) -> Machine:
        """Create a machine and return it once it runs."""
        [machine_id] = await self.create(self.request(**asked))
        return await self.until(machine_id, lambda machine: machine.state is MachineState.RUNNING)

    async def until(self, machine_id: str, wanted: Callable[[Machine], bool]) -> Machine:
        """Return the machine as soon as the site's events show the wanted state."""
        await self._until(lambda: machine_id in self.machines and wanted(self.machines[machine_id]), machine_id)
        return self.machines[machine_id]

    async def until_gone(self, machine_id: str) -> None:
        await self._until(lambda: machine_id not in self.machines, machine_id)

    async def stored(self, machine_id: str) -> Json:
        return await self.client.get(VMIS, machine_id.partition("/")[2], self.namespace)

    async def launcher(self, machine_id: str) -> Json:
        """Return the pod of a machine."""
        created_by = (await self.stored(machine_id))["metadata"]["uid"]
        pods, _ = await self.client.list_all(PODS, self.namespace, labels=f"kubevirt.io/created-by={created_by}")
        [pod] = pods
        return pod

    @asynccontextmanager
    async def without_handler(self, node: str) -> AsyncIterator[None]:
        """Remove the virt-handler of a node within the context."""
        pod = build_handler_pod(node)
        await self.client.delete(PODS, pod["metadata"]["name"], NAMESPACE)
        try:
            yield
        finally:
            await self.client.create(PODS, pod, NAMESPACE)

    async def follow(self) -> None:
        """Apply the events of the site until cancelled."""
        async with aclosing(self.site.events()) as events:
            async for event in events:
                if isinstance(event, Snapshot):
                    self.machines = {machine.id: machine for machine in event.machines}
                elif isinstance(event, Changed):
                    self.machines[event.machine.id] = event.machine
                elif isinstance(event, Gone):
                    self.machines.pop(event.id, None)
                self._news.set()

    async def _until(self, wanted: Callable[[], bool], machine_id: str) -> None:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not wanted():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{machine_id} is {self.machines.get(machine_id)}") from None


@asynccontextmanager
async def stage(
    control_plane: ControlPlane, virt: VirtControlPlane, certificate: ssl.SSLContext
) -> AsyncIterator[Stage]:
    namespace = f"machines-{uuid.uuid4().hex[:8]}"
    async with (
        await KubeClient.connect(control_plane.kubeconfig) as client,
        await KubeClient.connect(virt.handler_kubeconfig) as account,
        PlayedHandler(account, virt.nodes).serving(virt.handler_port, certificate) as handler,
    ):
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        site = KubevirtSite(
            SiteConfig("there", complete_kubevirt(namespace=namespace), kubeconfig=control_plane.kubeconfig)
        )
        made = Stage(control_plane, virt, client, handler, namespace, site)
        following = asyncio.create_task(made.follow())
        try:
            yield made
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await site.aclose()
            await client.request("DELETE", f"/apis/kubevirt.io/v1/namespaces/{namespace}/{VMIS.plural}")
            await client.request("DELETE", f"/api/v1/namespaces/{namespace}")
