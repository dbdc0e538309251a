# SPDX-License-Identifier: Apache-2.0
"""A service's namespace and a platform's namespace at the real API server, and an operator of frontends in the test.

The controller manager makes pods of Deployments; there is no kubelet, so the stage says itself that pods are ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from fleet_world import NAMESPACES

from simyard.api import names
from simyard.api.base import Condition, Json, find_condition
from simyard.api.simulation_service import SimulationServiceStatus
from simyard.fleet.frontends.load import PODS, FrontendLoads
from simyard.fleet.frontends.occi_broker import OcciBroker
from simyard.fleet.frontends.reconciler import Frontends
from simyard.fleet.pools.licences import Licences
from simyard.fleet.recorder import EVENTS, Recorder
from simyard.fleet.registry import Registry
from simyard.fleet.services import Services
from simyard.fleet.timing import Timing
from simyard.fleet.wiring import connect
from simyard.manifests.frontend import (
    BUDGETS,
    DEPLOYMENTS,
    KINDS,
    SERVICES,
    FrontendTemplate,
    get_endpoint,
    make_object_name,
)
from simyard_sites.kubernetes.client import KubeClient, PatchType, WatchEvent
from simyard_sites.kubernetes.errors import NotFoundError
from simyard_sites.kubernetes.resource import Resource

PATIENCE_SECONDS = 240.0
SERVICE = "beam"
TIMING = Timing(status_spacing_seconds=0.1, frontend_look_seconds=0.3, frontend_spacing_seconds=0.1)


class StageClient(KubeClient):
    """Sees one namespace where all would be seen, so that many stages have room at one API server.

    Attributes:
        writes: what was written with it.
    """

    namespace = ""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.writes: list[str] = []

    async def request(self, method: str, path: str, **arguments: Any) -> Json:  # type: ignore[override]
        if method != "GET":
            self.writes.append(f"{method} {path}")
        return await super().request(method, path, **arguments)

    async def list_all(self, resource: Resource, namespace: str = "", **more: Any) -> tuple[list[Json], str]:
        return await super().list_all(resource, namespace or self.namespace, **more)

    def watch(self, resource: Resource, namespace: str = "", **more: Any) -> AsyncIterator[WatchEvent]:
        return super().watch(resource, namespace or self.namespace, **more)


@dataclass
class FrontendOperator:
    """The part of an operator that has to do with frontends."""

    client: StageClient
    registry: Registry
    frontends: Frontends

    def applied(self) -> list[str]:
        """What was written of the frontends' own objects."""
        plurals = tuple(f"/{kind.plural}/" for kind in KINDS)
        return [write for write in self.client.writes if any(plural in write for plural in plurals)]


class Figures:
    """Shows figures as frontends do, at an address of its own; each look finds more of them.

    ``latency_seconds``: what each read took since the last look; ``silent``: it does not answer.
    """

    def __init__(self, latency_seconds: float) -> None:
        self.latency_seconds = latency_seconds
        self.silent = False
        self.looks = 0
        self._seconds = 0.0

    async def show(self, _: web.Request) -> web.Response:
        if self.silent:
            raise web.HTTPServiceUnavailable
        self.looks += 1
        self._seconds += 1000 * self.latency_seconds
        request, late = names.METRIC_OCCI_REQUEST_SECONDS, names.METRIC_LOOP_LATE_SECONDS
        lines = [
            f"# TYPE {request} histogram",
            f'{request}_bucket{{transport="http",method="GET",code="200",le="+Inf"}} 7',
            f'{request}_count{{transport="http",method="GET",code="200"}} {1000.0 * self.looks}',
            f'{request}_sum{{transport="http",method="GET",code="200"}} {self._seconds}',
            f'{request}_count{{transport="http",method="POST",code="200"}} {self.looks}',
            f'{request}_sum{{transport="http",method="POST",code="200"}} {30.0 * self.looks}',
            f"{late}_count {30.0 * self.looks}",
            f"{late}_sum 0.0",
            "",
        ]
        return web.Response(text="\n".join(lines))


class FrontendStage:
    """See the module.

    ``platform``: an existing namespace of the platform; else one is made. ``operator``: the kubeconfig of the
    operator's account; else it is an administrator.
    """

    def __init__(self, kubeconfig: Path, client: StageClient, platform: str = "") -> None:
        self._kubeconfig = kubeconfig
        self.client = client
        self.namespace = client.namespace
        self.platform = platform or f"{self.namespace}-platform"
        self.template = FrontendTemplate("simyard:test", self.platform, "frontend-tls", f"{self.platform}.svc")
        self.name = make_object_name(self.namespace, SERVICE)
        self.endpoint = get_endpoint(self.namespace, SERVICE, self.template)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, kubeconfig: Path, *, platform: str = "", operator: Path | None = None
    ) -> AsyncIterator[FrontendStage]:
        async with await StageClient.connect(kubeconfig) as client:
            client.namespace = f"stage-{uuid.uuid4().hex[:8]}"
            stage = cls(operator or kubeconfig, client, platform)
            made = (stage.namespace,) if platform else (stage.namespace, stage.platform)
            for name in made:
                await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            try:
                yield stage
            finally:
                for name in made:
                    await client.delete(NAMESPACES, name)

    @asynccontextmanager
    async def operator(
        self, broker: OcciBroker, *, template: FrontendTemplate | None = None, offers: bool = True, port: int = 1
    ) -> AsyncIterator[FrontendOperator]:
        """An operator, until the end of the context."""
        async with await StageClient.connect(self._kubeconfig) as client:
            client.namespace = self.namespace
            registry = Registry(client, (self.namespace,))
            recorder = Recorder(client, "test")
            loads = FrontendLoads(client, self.platform, broker, port=port)
            used = (template or self.template) if offers else None
            frontends = Frontends(registry, recorder, broker, loads, self.platform, used, TIMING)
            licences = Licences(registry)
            services = Services(registry, licences, frontends, TIMING)
            connect(registry, licences, frontends, services)
            running = [asyncio.create_task(registry.run())]
            try:
                await registry.wait_until_synced()
                running += [asyncio.create_task(part.run()) for part in (frontends, services, licences, recorder)]
                yield FrontendOperator(client, registry, frontends)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.wait(running)
            for task in running:
                if not task.cancelled() and (error := task.exception()) is not None:
                    raise error

    # Objects

    async def publish(self, **frontend: Any) -> None:
        """The service, with this ``spec.frontend``."""
        spec = {
            "interface": {},
            "connector": {"python": {"class": "m:C"}},
            **({"frontend": frontend} if frontend else {}),
        }
        kind = names.SIMULATION_SERVICES
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": SERVICE}, "spec": spec}
        await self.client.create(kind, body, self.namespace)

    async def change(self, frontend: Json | None) -> None:
        await self.client.patch(names.SIMULATION_SERVICES, SERVICE, {"spec": {"frontend": frontend}}, self.namespace)

    async def withdraw(self) -> None:
        await self.client.delete(names.SIMULATION_SERVICES, SERVICE, self.namespace)

    async def part(self, kind: Resource) -> Json | None:
        try:
            return await self.client.get(kind, self.name, self.platform)
        except NotFoundError:
            return None

    async def replicas(self) -> int | None:
        found = await self.part(DEPLOYMENTS)
        return int(found["spec"]["replicas"]) if found is not None else None

    async def kinds(self) -> set[str]:
        """The kinds of the objects that are there."""
        return {kind.kind for kind in KINDS if await self.part(kind) is not None}

    async def status(self) -> SimulationServiceStatus:
        raw = await self.client.get(names.SIMULATION_SERVICES, SERVICE, self.namespace)
        return SimulationServiceStatus.model_validate(raw.get("status") or {})

    async def condition(self, kind: str) -> Condition | None:
        return find_condition((await self.status()).conditions, kind)

    async def events(self, reason: str) -> list[str]:
        found, _ = await self.client.list_all(EVENTS, self.namespace)
        return [str(item["note"]) for item in found if item["reason"] == reason]

    async def make_ready(self, addresses: Iterable[str] = ()) -> int:
        """Say of each pod that it is ready, as a kubelet does; how many there are."""
        pods, _ = await self.client.list_all(PODS, self.platform)
        alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        free = set(addresses) - {(pod.get("status") or {}).get("podIP") for pod in alive}
        for pod in alive:
            status: Json = pod.get("status") or {}
            if any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions") or ()):
                continue
            address = free.pop() if free else "127.0.0.1"
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": pod["metadata"]["creationTimestamp"]}
            change = {
                "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]}
            }
            with contextlib.suppress(NotFoundError):
                await self.client.patch(
                    PODS, pod["metadata"]["name"], change, self.platform, subresource="status", kind=PatchType.MERGE
                )
        return len(alive)

    async def until(self, check: Callable[[], Any], what: str) -> None:
        """Wait until an async check is true."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await check():  # noqa: ASYNC110 - what is waited for has no event
                    await asyncio.sleep(0.05)
        except TimeoutError:
            parts = {kind.kind: await self.part(kind) for kind in (DEPLOYMENTS, SERVICES, BUDGETS)}
            raise AssertionError(f"{what}: it did not become so: {await self.status()} {parts}") from None


@asynccontextmanager
async def shown(figures: Figures, addresses: Iterable[str]) -> AsyncIterator[int]:
    """Serve figures at addresses of the loopback, all at one port, which is given."""
    app = web.Application()
    app.add_routes([web.get("/metrics", figures.show)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        port = 0
        for address in addresses:
            site = web.TCPSite(runner, address, port)
            await site.start()
            port = port or int(runner.addresses[0][1])
        yield port
    finally:
        await runner.cleanup()
