# SPDX-License-Identifier: Apache-2.0
"""Writes of a whole status: other clients' changes stay, and no new object gets the status of an old one."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from kube_api import Api
from simyard.api import names
from simyard.api.base import Json
from simyard.api.worker import Worker, WorkerStatus
from simyard.fleet.status_writes import replace_status
from simyard.kube.cache import Cache
from simyard.manifests import install
from simyard_dev.controlplane import ControlPlane
from simyard_sites.kubernetes.client import KubeClient

LABELS = {names.LABEL_SERVICE: "beam"}


@dataclass
class Stored:
    """A stored Worker, and the copy of it that was read before other clients changed it."""

    client: KubeClient
    cache: Cache[Worker]
    copy: Worker

    async def create(self) -> None:
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.WORKERS.kind,
            "metadata": {"name": self.copy.metadata.name, "labels": LABELS},
            "spec": {"serviceRef": {"name": "beam"}, "site": "local"},
        }
        await self.client.create(names.WORKERS, body, self.copy.metadata.namespace)

    async def read(self) -> Json:
        return await self.client.get(names.WORKERS, self.copy.metadata.name, self.copy.metadata.namespace)

    async def replace_status(self, status: WorkerStatus) -> bool:
        return await replace_status(self.client, self.cache, self.copy.metadata, self.copy.status, status)


@pytest.fixture
async def stored(control_plane: ControlPlane) -> AsyncIterator[Stored]:
    api = Api(control_plane.kubeconfig)
    api.install(install.build_objects())
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    api.install([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
    async with await KubeClient.connect(control_plane.kubeconfig) as client:
        cache = Cache(client, names.WORKERS, Worker.model_validate)
        named = Worker.model_validate(
            {"metadata": {"name": "w-0", "namespace": namespace}, "spec": {"serviceRef": {"name": "beam"}, "site": "a"}}
        )
        stored = Stored(client, cache, named)
        await stored.create()
        stored.copy = Worker.model_validate(await stored.read())
        yield stored
    api.request("DELETE", f"/api/v1/namespaces/{namespace}")


async def test_a_status_is_written_and_learnt_and_all_else_stays(stored: Stored) -> None:
    assert await stored.replace_status(WorkerStatus(machine_id="7"))
    found = await stored.read()
    assert (found["status"]["machineId"], found["spec"]["site"]) == ("7", "local")
    assert found["metadata"]["labels"] == LABELS
    learnt = stored.cache.get(stored.copy.metadata.namespace, "w-0")
    assert learnt is not None
    assert learnt.status.machine_id == "7"


async def test_a_change_of_another_client_in_between_stays(stored: Stored) -> None:
    change = {"spec": {"title": "mine"}, "metadata": {"annotations": {"example.com/note": "kept"}}}
    await stored.client.patch(names.WORKERS, "w-0", change, stored.copy.metadata.namespace)
    assert await stored.replace_status(WorkerStatus(machine_id="7"))
    found = await stored.read()
    assert (found["status"]["machineId"], found["spec"]["title"]) == ("7", "mine")
    assert found["metadata"]["annotations"] == {"example.com/note": "kept"}


async def test_a_new_object_with_the_name_does_not_get_the_status(stored: Stored) -> None:
    await stored.client.delete(names.WORKERS, "w-0", stored.copy.metadata.namespace)
    assert not await stored.replace_status(WorkerStatus(machine_id="7"))
    await stored.create()
    assert not await stored.replace_status(WorkerStatus(machine_id="7"))
    assert "machineId" not in (await stored.read()).get("status", {})


async def test_the_api_server_keeps_no_record_of_each_leaf_of_a_status(stored: Stored) -> None:
    assert await stored.replace_status(WorkerStatus(machine_id="7"))
    fields = [entry["fieldsV1"] for entry in (await stored.read())["metadata"]["managedFields"]]
    assert {"f:status": {}} in fields
