# SPDX-License-Identifier: Apache-2.0
"""Answers of a real API server to changes that do not fit the object, as opposed to changes that it refuses."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from kube_api import Api
from simyard.api import names
from simyard.api.occi import OcciMixin
from simyard.frontend.changes.storing import ObjectStore
from simyard.kube.cache import Cache
from simyard.manifests import install
from simyard.occi.errors import OcciError
from simyard_dev.controlplane import ControlPlane
from simyard_sites.kubernetes.client import KubeClient, PatchType

Stored = tuple[ObjectStore, Cache[OcciMixin], OcciMixin]


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    api = Api(control_plane.kubeconfig)
    api.install(install.build_objects())
    name = f"storing-{uuid.uuid4().hex[:8]}"
    assert api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).accepted
    yield name
    api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
async def stored(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Stored]:
    """Create a mixin with one member."""
    async with await KubeClient.connect(control_plane.kubeconfig) as client:
        storing = ObjectStore(client)
        cache: Cache[OcciMixin] = Cache(client, names.OCCI_MIXINS, OcciMixin.model_validate, namespaces=(namespace,))
        body = {
            "apiVersion": names.OCCI_MIXINS.api_version,
            "kind": names.OCCI_MIXINS.kind,
            "metadata": {"name": "tag", "namespace": namespace},
            "spec": {"scheme": "http://example.org/tags#", "term": "tag", "location": "/tag/", "members": ["/a/1"]},
        }
        yield storing, cache, await storing.create(cache, body)


def add(path: str) -> list[dict[str, str]]:
    return [{"op": "add", "path": "/spec/members/-", "value": path}]


async def test_a_test_that_fails_and_a_member_that_is_there_are_others_changes(stored: Stored) -> None:
    storing, cache, mixin = stored
    assert await storing.patch(cache, mixin, add("/a/1")) is None
    unlike = [{"op": "test", "path": "/spec/location", "value": "/other/"}, *add("/a/2")]
    assert await storing.patch(cache, mixin, unlike) is None
    changed = await storing.patch(cache, mixin, add("/a/2"))
    assert changed is not None and changed.spec.members == ["/a/1", "/a/2"]


async def test_what_the_schema_refuses_is_refused_at_once(stored: Stored) -> None:
    storing, cache, mixin = stored
    with pytest.raises(OcciError, match="should match") as refused:
        await storing.patch(cache, mixin, add("no path"))
    assert refused.value.status == 400


async def test_changes_at_the_same_moment_all_happen_and_under_one_key_once(stored: Stored) -> None:
    storing, cache, mixin = stored

    def longer(now: OcciMixin) -> dict[str, dict[str, str]]:
        return {"spec": {"title": now.spec.title + "x"}}

    await asyncio.gather(*(storing.change(cache, mixin, longer, key) for key in ("", "", "one", "one", "two", "two")))
    found = await storing.get(cache, "tag", mixin.metadata.namespace)
    assert found is not None and found.spec.title == "xxxx"


async def test_an_object_is_deleted_as_it_was_checked(control_plane: ControlPlane, stored: Stored) -> None:
    storing, cache, mixin = stored
    namespace, seen = mixin.metadata.namespace, list[str]()

    def rename(title: str) -> None:
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.OCCI_MIXINS.plural}/tag"
        change = {"spec": {"title": title}}
        assert Api(control_plane.kubeconfig).request("PATCH", path, change, media=PatchType.MERGE).accepted

    def check() -> None:
        found = cache.get(namespace, "tag")
        seen.append(found.spec.title if found is not None else "gone")
        if seen[-1] == "refused":
            raise OcciError(412, "it has changed")

    rename("refused")
    with pytest.raises(OcciError, match="it has changed"):
        await storing.delete(cache, mixin, check)
    rename("fine")
    await storing.delete(cache, mixin, lambda: None)
    assert seen == ["", "refused"]
    assert await storing.get(cache, "tag", namespace) is None
