# SPDX-License-Identifier: Apache-2.0
"""Events reach a real API server, in the namespace in which `kubectl describe` looks for them."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from simyard.api.base import Json, Metadata
from simyard.api.names import CLOUD_SITES, WORKER_POOLS, Reason
from simyard.fleet.recorder import EVENTS, Recorder
from simyard_dev.controlplane import ControlPlane
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.resource import Resource


@pytest.mark.parametrize(
    ("resource", "namespace", "found_in"),
    [(CLOUD_SITES, "", "default"), (WORKER_POOLS, "kube-public", "kube-public")],
    ids=["of the cluster", "of a namespace"],
)
async def test_an_event_is_where_kubernetes_has_those_of_its_object(
    control_plane: ControlPlane, resource: Resource, namespace: str, found_in: str
) -> None:
    uid = f"uid-{secrets.token_hex(8)}"
    regarding = Metadata(name="recorded", namespace=namespace, uid=uid)
    async with await KubeClient.connect(control_plane.kubeconfig) as client:
        recorder = Recorder(client, "test")
        running = asyncio.create_task(recorder.run())
        recorder.emit(resource, regarding, Reason.SITE_READY, "it is ready")
        try:
            async with asyncio.timeout(240):
                while not (events := await about(client, found_in, uid)):  # noqa: ASYNC110 - it is not watched
                    await asyncio.sleep(0.1)
        finally:
            running.cancel()
            await asyncio.wait([running])
    assert [(event["reason"], event["note"]) for event in events] == [("SiteReady", "it is ready")]


async def about(client: KubeClient, namespace: str, uid: str) -> list[Json]:
    path = f"/apis/{EVENTS.api_version}/namespaces/{namespace}/events?fieldSelector=regarding.uid%3D{uid}"
    found = await client.request("GET", path)
    items: list[Json] = found["items"]
    return items
