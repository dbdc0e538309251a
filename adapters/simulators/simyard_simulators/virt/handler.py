# SPDX-License-Identifier: Apache-2.0
"""Simulates virt-handler and the guests of all nodes, beside a real virt-api and virt-controller.

When virt-controller has set the phase ``Scheduled`` of a machine, the machine runs at once. A deleted machine shuts
down at once. virt-api calls ``pause`` and ``unpause`` of this module over HTTPS, as it calls virt-handler.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus

from aiohttp import web

from simyard_simulators.virt import lifecycle
from simyard_simulators.virt.simulator import VMIS
from simyard_sites.kubernetes.changes import follow_changes
from simyard_sites.kubernetes.client import Json, KubeClient, build_path
from simyard_sites.kubernetes.errors import ConflictError, NotFoundError
from simyard_sites.kubernetes.resource import Resource

LOOPBACK = "127.0.0.1"
SCHEDULABLE = "kubevirt.io/schedulable"
_ACTIVE = ("Scheduled", "Running")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
HEARTBEAT_SECONDS = 60.0
_MACHINE = "/v1/namespaces/{namespace}/virtualmachineinstances/{name}"

Change = Callable[[Json], Json | None]
"""A function that returns the changed fields of a stored machine's status, or None."""


class PlayedHandler:
    """The simulated virt-handlers of ``nodes``; ``client`` has the rights of their account.

    If ``starts`` is False, scheduled machines stay ``Scheduled``, as on a node without a virt-handler.
    """

    def __init__(self, client: KubeClient, nodes: Sequence[str], *, starts: bool = True) -> None:
        self.starts = starts
        self._client = client
        self._nodes = nodes
        self._started = 0

    @asynccontextmanager
    async def serving(self, port: int, certificate: ssl.SSLContext) -> AsyncIterator[PlayedHandler]:
        """Simulate, and serve virt-api on a loopback port, while the block runs."""
        application = web.Application()
        application.router.add_put(f"{_MACHINE}/{{verb:pause|unpause}}", self._act)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, port, ssl_context=certificate).start()
        task = asyncio.create_task(self.run(), name="simulated virt-handler")
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await runner.cleanup()

    async def run(self) -> None:
        """Simulate until cancelled."""
        async with asyncio.TaskGroup() as group, aclosing(follow_changes(self._client, VMIS)) as events:
            group.create_task(self._beat_on())
            async for event in events:
                if event.type != "DELETED":
                    group.create_task(self._advance(event.object))

    async def update(self, namespace: str, name: str, change: Change) -> bool:
        """Write the status of a machine, again after a conflict; return True if it was written."""
        while True:
            # The account has no right to "get".
            found, _ = await self._client.list_all(VMIS, namespace, fields=f"metadata.name={name}")
            if not found or (status := change(found[0])) is None:
                return False
            with suppress(ConflictError):
                await self._write_status(found[0], status)
                return True

    async def beat(self, node: str) -> None:
        """Report that a virt-handler works. virt-controller regards a node as lost after 5 minutes without a report."""
        said = {"annotations": {"kubevirt.io/heartbeat": lifecycle.timestamp()}, "labels": {SCHEDULABLE: "true"}}
        await self._client.patch(NODES, node, {"metadata": said})

    async def _beat_on(self) -> None:
        while True:
            for node in self._nodes:
                await self.beat(node)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _advance(self, stored: Json) -> None:
        """Move a machine to its next step. If the machine has changed meanwhile, read it again."""
        status = self._advanced(stored)
        if status is not None:
            with suppress(ConflictError, NotFoundError):
                await self._write_status(stored, status)

    def _advanced(self, stored: Json) -> Json | None:
        status = stored.get("status") or {}
        phase = status.get("phase")
        if phase not in _ACTIVE:
            return None
        if stored["metadata"].get("deletionTimestamp"):
            return lifecycle.entered(status, "Succeeded")
        if phase != "Scheduled" or not self.starts:
            return None
        self._started += 1
        address = f"10.244.{self._started >> 8 & 255}.{self._started & 255}"
        ready = lifecycle.with_condition(status, lifecycle.condition("Ready", "True"))
        network = [{"name": "default", "ipAddress": address, "infoSource": "domain"}]
        return {"conditions": ready, "interfaces": network} | lifecycle.entered(status, "Running")

    async def _write_status(self, stored: Json, status: Json) -> None:
        metadata = stored["metadata"]
        body = {**stored, "status": {**(stored.get("status") or {}), **status}}
        path = build_path(VMIS, metadata["namespace"], metadata["name"])
        await self._client.request("PUT", path, body=body, resource=VMIS)

    async def _act(self, request: web.Request) -> web.StreamResponse:
        pauses = request.match_info["verb"] == "pause"

        def change(stored: Json) -> Json:
            left = lifecycle.without_condition(stored["status"], "Paused")
            said = lifecycle.condition("Paused", "True", "PausedByUser", "VMI was paused by user")
            return {"conditions": [*left, said] if pauses else left}

        await self.update(request.match_info["namespace"], request.match_info["name"], change)
        return web.Response(status=HTTPStatus.ACCEPTED)
