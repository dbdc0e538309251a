# SPDX-License-Identifier: Apache-2.0
"""The local copy of objects: the newest state, the indexes, and outages of the API server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from simyard.api import names
from simyard.api.base import Json, Metadata
from simyard.api.worker import Worker
from simyard.kube.cache import Cache
from simyard_dev.controlplane import ControlPlane
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.resource import Resource

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
WAIT_SECONDS = 240


def raw(name: str, version: int, uid: str = "u", site: str = "local") -> Json:
    return {
        "metadata": {"namespace": "default", "name": name, "uid": uid, "resourceVersion": str(version)},
        "spec": {"serviceRef": {"name": "beam"}, "site": site},
    }


class Named:
    """The smallest object that can be cached."""

    def __init__(self, item: Json) -> None:
        metadata = item["metadata"]
        self.metadata = Metadata(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.02)


@pytest.fixture
async def workers(control_plane: ControlPlane) -> Cache[Worker]:
    client = await KubeClient.connect(control_plane.kubeconfig)
    await client.aclose()
    return Cache(client, names.WORKERS, Worker.model_validate, indexes={"site": lambda it: [it.spec.site]})


async def test_an_older_state_never_replaces_a_newer_one(workers: Cache[Worker]) -> None:
    workers.learn(raw("w", 5, site="new"))
    workers.learn(raw("w", 4, site="old"))
    found = workers.get("default", "w")
    assert found is not None
    assert found.spec.site == "new"
    assert (len(workers.list_by("site", "new")), workers.count("site", "old")) == (1, 0)


async def test_what_was_deleted_does_not_come_back_by_a_late_answer(workers: Cache[Worker]) -> None:
    learnt = workers.learn(raw("w", 5))
    assert learnt is not None
    workers.forget(learnt)
    workers.learn(raw("w", 6))
    assert workers.get("default", "w") is None
    workers.learn(raw("w", 7, uid="another"))
    assert workers.count("site", "local") == 1


async def test_an_object_that_cannot_be_read_hides_no_other(workers: Cache[Worker]) -> None:
    broken = raw("broken", 1)
    del broken["spec"]["site"]
    assert workers.learn(broken) is None
    assert workers.learn(raw("w", 2)) is not None
    assert len(workers) == 1


async def test_listeners_hear_each_change_with_what_was_before(workers: Cache[Worker]) -> None:
    heard: list[tuple[str, str]] = []
    workers.subscribe(lambda old, new: heard.append((old.spec.site if old else "-", new.spec.site if new else "-")))
    workers.learn(raw("w", 1, site="a"))
    learnt = workers.learn(raw("w", 2, site="b"))
    assert learnt is not None
    workers.forget(learnt)
    assert heard == [("-", "a"), ("a", "b"), ("b", "-")]


async def test_it_survives_the_api_server_and_its_age_tells(tmp_path: Path, simyard_directory: Path) -> None:
    control_plane = ControlPlane(simyard_directory / tmp_path.name / "controlplane")
    control_plane.start()
    try:
        async with await KubeClient.connect(control_plane.kubeconfig) as client:
            maps = Cache(client, CONFIG_MAPS, Named)
            running = asyncio.create_task(maps.run())
            await asyncio.wait_for(maps.synced.wait(), WAIT_SECONDS)
            await asyncio.to_thread(control_plane.stop, 0)
            await until(lambda: maps.measure_age_seconds() > 2)
            await asyncio.to_thread(control_plane.start)
            await asyncio.to_thread(control_plane.kubectl, "create", "configmap", "late")
            await until(lambda: maps.get("default", "late") is not None)
            assert maps.measure_age_seconds() < 2
            running.cancel()
    finally:
        control_plane.stop(0)


async def test_a_list_of_several_pages_is_learnt_whole_and_forgets_what_is_not_in_it(
    control_plane: ControlPlane,
) -> None:
    wanted = [f"page-{uuid.uuid4().hex}" for _ in range(5)]
    async with await KubeClient.connect(control_plane.kubeconfig) as client:
        client.page_items = 2
        for name in wanted:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            await client.create(CONFIG_MAPS, body, "default")
        every = Cache(client, CONFIG_MAPS, Named, namespaces=("default",))
        every.learn(raw("gone", 1, uid="gone"))
        one = Cache(client, CONFIG_MAPS, Named, namespaces=("default",), fields=f"metadata.name={wanted[3]}")
        running = [asyncio.create_task(cache.run()) for cache in (every, one)]
        await until(lambda: every.synced.is_set() and one.synced.is_set())
        for task in running:
            task.cancel()
    assert set(wanted) <= {item.metadata.name for item in every}
    assert every.get("default", "gone") is None
    assert [item.metadata.name for item in one] == [wanted[3]]


async def test_it_has_the_objects_of_the_watched_namespaces_and_of_no_other(control_plane: ControlPlane) -> None:
    watched, other = (f"{part}-{uuid.uuid4().hex[:8]}" for part in ("watched", "other"))
    name = f"map-{uuid.uuid4().hex}"
    async with await KubeClient.connect(control_plane.kubeconfig) as client:
        for namespace in (watched, other):
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        every = Cache(client, CONFIG_MAPS, Named, namespaces=("default", watched))
        # A listing of one namespace must not remove objects of the other one.
        stale = {"metadata": {"namespace": watched, "name": "gone", "uid": "gone", "resourceVersion": "1"}}
        every.learn(stale)
        running = asyncio.create_task(every.run())
        await asyncio.wait_for(every.synced.wait(), WAIT_SECONDS)
        assert every.get(watched, "gone") is None
        for namespace in (other, "default", watched):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            await client.create(CONFIG_MAPS, body, namespace)
        await until(lambda: every.get(watched, name) is not None and every.get("default", name) is not None)
        assert {item.metadata.namespace for item in every} == {"default", watched}
        all_namespaces = Cache(client, NAMESPACES, Named, namespaces=(watched,))
        running_all = asyncio.create_task(all_namespaces.run())
        await asyncio.wait_for(all_namespaces.synced.wait(), WAIT_SECONDS)  # a Namespace has no namespace
        for task in (running, running_all):
            task.cancel()
