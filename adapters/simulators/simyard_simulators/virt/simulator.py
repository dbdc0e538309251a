# SPDX-License-Identifier: Apache-2.0
"""Simulates KubeVirt's controllers for VirtualMachineInstances, without nodes and guests.

It makes the same writes as these controllers, in the same order, to a real API server with KubeVirt's real definitions.
It does not simulate their other effects (pods, domains, storage).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from simyard_simulators.virt import lifecycle
from simyard_simulators.virt.lifecycle import Latencies
from simyard_sites.kubernetes.changes import follow_changes
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.errors import ApiError, NotFoundError
from simyard_sites.kubernetes.resource import Resource

VMIS = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")
PODS = Resource("", "v1", "pods", "Pod")
WRITERS = 32
INSTANT = Latencies()
_Key = tuple[str, str]


@dataclass(slots=True)
class _Life:
    """The state of one VirtualMachineInstance: its last written status, and a flag for its end."""

    uid: str
    status: Json
    ends: asyncio.Event = field(default_factory=asyncio.Event)
    writes: asyncio.Lock = field(default_factory=asyncio.Lock)


class SimulatedKubeVirt:
    """The simulated controllers; only one instance may run at a time.

    With ``thorough``, the simulator makes all writes of the controllers and creates the pod of each machine, in which
    no program runs. A machine then costs the API server as much as a real one: about ten writes until it runs.
    ``namespace`` limits the simulation to one namespace.
    """

    def __init__(
        self,
        client: KubeClient,
        latencies: Latencies = INSTANT,
        *,
        namespace: str = "",
        nodes: int = 3,
        thorough: bool = False,
    ) -> None:
        self.latencies = latencies
        self._client = client
        self._namespace = namespace
        self._nodes = nodes
        self._thorough = thorough
        self._lives: dict[_Key, _Life] = {}
        self._count = 0
        self._writers = asyncio.Semaphore(WRITERS)
        self._group: asyncio.TaskGroup | None = None
        self._requests: set[asyncio.Task[Json]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[SimulatedKubeVirt, None]:
        """Simulate while the block runs."""
        task = asyncio.create_task(self.run(), name="simulated KubeVirt")
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await asyncio.gather(*self._requests, return_exceptions=True)

    async def run(self) -> None:
        """Simulate until cancelled."""
        changes = follow_changes(self._client, VMIS, self._namespace)
        async with asyncio.TaskGroup() as self._group, aclosing(changes) as events:
            async for event in events:
                self._seen(event.type, event.object)

    async def fail(self, namespace: str, name: str, reason: str, message: str) -> None:
        """Make a machine fail, in any state."""
        life = self._lives[namespace, name]
        said = lifecycle.condition("Synchronized", "False", reason, message)
        async with life.writes:
            conditions = {"conditions": lifecycle.with_condition(life.status, said)}
            await self._write((namespace, name), life, conditions, "Failed")

    async def evacuate(self, namespace: str, name: str) -> None:
        """Simulate the drain of the machine's node: mark the machine as to be evacuated, as KubeVirt does."""
        life = self._lives[namespace, name]
        said = lifecycle.condition("EvictionRequested", "True", "EvictionRequested", "VMI is marked for eviction")
        async with life.writes:
            conditions = lifecycle.with_condition(life.status, said)
            leaves = {"evacuationNodeName": life.status["nodeName"], "conditions": conditions}
            await self._write((namespace, name), life, leaves)

    def has(self, namespace: str, name: str) -> bool:
        """Return True if the machine exists."""
        return (namespace, name) in self._lives

    async def pause(self, namespace: str, name: str) -> bool:
        """Pause a machine like the subresource ``pause``; return False if it is not possible."""
        said = lifecycle.condition("Paused", "True", "PausedByUser", "VMI was paused by user")
        return await self._pause((namespace, name), said)

    async def unpause(self, namespace: str, name: str) -> bool:
        """Continue a machine like the subresource ``unpause``; return False if it is not possible."""
        return await self._pause((namespace, name), None)

    async def _pause(self, key: _Key, said: Json | None) -> bool:
        life = self._lives.get(key)
        if life is None:
            return False
        async with life.writes:
            status = life.status
            paused = any(item["type"] == "Paused" for item in status.get("conditions") or ())
            if status.get("phase") != "Running" or paused == (said is not None):
                return False
            left = lifecycle.without_condition(status, "Paused")
            await self._write(key, life, {"conditions": [*left, said] if said else left})
        return True

    def _seen(self, kind: str, raw: Json) -> None:
        metadata = raw["metadata"]
        key = metadata["namespace"], metadata["name"]
        life = self._lives.get(key)
        if kind == "DELETED":
            if life is not None and life.uid == metadata["uid"]:
                life.ends.set()
                del self._lives[key]
            return
        if self._group is None:
            raise AssertionError("run() has begun")
        if life is None or life.uid != metadata["uid"]:
            life = self._lives[key] = _Life(metadata["uid"], raw.get("status") or {})
            self._count += 1
            self._group.create_task(self._live(key, life, raw, self._count), name=f"machine {key[1]}")
        if metadata.get("deletionTimestamp"):
            life.ends.set()

    async def _live(self, key: _Key, life: _Life, raw: Json, number: int) -> None:
        with suppress(NotFoundError):
            try:
                await self._start(key, life, raw, number)
                await life.ends.wait()
                await self._end(key, life)
            except ApiError as error:
                if not error.retryable:
                    raise

    async def _start(self, key: _Key, life: _Life, raw: Json, number: int) -> None:
        trouble = lifecycle.TROUBLES.get(_last_part(raw))
        address = f"10.244.{number >> 8 & 255}.{number & 255}"
        node = f"node-{number % self._nodes + 1}"
        phase = life.status.get("phase") or ""
        for step in lifecycle.steps(phase, self.latencies, node=node, address=address, thorough=self._thorough):
            if await self._sleep(life, step.after):
                return
            if trouble is not None and not trouble.ends and step.enters == "Scheduled":
                break
            async with life.writes:
                if not life.ends.is_set():
                    await self._write(key, life, step.status, step.enters, finalizers=step.finalizers)
            if step.enters == "Scheduling" and self._thorough:
                await self._launch(key, life, node)
        if trouble is not None:
            said = lifecycle.condition(trouble.kind, "False", trouble.reason, trouble.message)
            async with life.writes:
                conditions = {"conditions": lifecycle.with_condition(life.status, said)}
                await self._write(key, life, conditions, trouble.ends)

    async def _launch(self, key: _Key, life: _Life, node: str) -> None:
        """Create the launcher's pod for the node, then report it as running."""
        namespace, name = key
        owner = {"apiVersion": "kubevirt.io/v1", "kind": VMIS.kind, "name": name, "uid": life.uid, "controller": True}
        body: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"virt-launcher-{name}", "namespace": namespace, "ownerReferences": [owner]},
            "spec": {"nodeName": node, "containers": [{"name": "compute", "image": "simulated"}]},
        }
        await self._request(self._client.create(PODS, body, namespace))
        change = {"status": {"phase": "Running"}}
        patch = self._client.patch(PODS, body["metadata"]["name"], change, namespace, subresource="status")
        await self._request(patch)

    async def _end(self, key: _Key, life: _Life) -> None:
        await asyncio.sleep(self.latencies.shutdown)
        async with life.writes:
            if self._thorough and life.status.get("phase") not in lifecycle.FINAL:
                await self._write(key, life, {}, "Succeeded")
            await self._request(self._client.patch(VMIS, key[1], {"metadata": {"finalizers": None}}, key[0]))
        if self._thorough:
            with suppress(NotFoundError):
                grace = {"gracePeriodSeconds": 0}
                path = f"/api/v1/namespaces/{key[0]}/pods/virt-launcher-{key[1]}"
                await self._request(self._client.request("DELETE", path, body=grace, resource=PODS))

    async def _sleep(self, life: _Life, seconds: float) -> bool:
        """Wait for a time; return True at once if the machine is to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await life.ends.wait()
        return life.ends.is_set()

    async def _write(self, key: _Key, life: _Life, status: Json, enters: str = "", *, finalizers: bool = False) -> None:
        """Patch the status; the caller holds ``life.writes``, because lists are written as a whole."""
        change: Json = {"status": status | (lifecycle.entered(life.status, enters) if enters else {})}
        metadata: Json = {"uid": life.uid}
        if finalizers:
            metadata["finalizers"] = [lifecycle.FINALIZER]
        stored = await self._request(self._client.patch(VMIS, key[1], {**change, "metadata": metadata}, key[0]))
        life.status = stored["status"]

    async def _request(self, call: Coroutine[Any, Any, Json]) -> Json:
        """Make a request, with limited concurrency. After a cancellation, first complete a request that has begun."""
        async with self._writers:
            task = asyncio.create_task(call)
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
            return await asyncio.shield(task)


def _last_part(raw: Json) -> str:
    """Return the last part of the image's name, without its tag; such a name can ask for a fault."""
    volumes: list[Json] = raw["spec"].get("volumes") or []
    image = next((str(volume["containerDisk"]["image"]) for volume in volumes if "containerDisk" in volume), "")
    return image.rpartition("/")[2].partition(":")[0]
