# SPDX-License-Identifier: Apache-2.0
"""Large results of actions at a real S3 server: the operator moves them there, and the CLI reads them."""

import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from files_world import FilesWorld

from simyard.api.base import Json
from simyard.api.names import ANNOTATION_INLINE_RESULT
from simyard.api.service_action import ServiceAction, ServiceActionStatus
from simyard.cli.kubectl import Kubectl
from simyard.cli.results import read_result
from simyard.files.catalog import FileCatalog
from simyard.files.references import find_addresses
from simyard.files.store import ObjectStore
from simyard.fleet.actions.large_results import MAX_INLINE_BYTES, LargeResults
from simyard_adapter.file_values import FileReference

MESH = FileReference(f"sha256:{'0' * 64}", "mesh", 10).to_json()
SMALL: Json = {"stress": 1.5}
LARGE: Json = {"mesh": MESH, "stresses": [1.5] * MAX_INLINE_BYTES, "unit": "Pa"}


@dataclass
class Client:
    """An API server with one namespace."""

    uid: str
    requests: int = 0

    async def get(self, *_: object) -> Json:
        self.requests += 1
        return {"metadata": {"name": "team", "uid": self.uid}}


@dataclass
class Results:
    """The mover of results, and the namespace at a real store."""

    world: FilesWorld
    client: Client
    make: Callable[..., LargeResults]

    async def list_files(self) -> list[str]:
        return [item.key async for item in self.world.store.list_objects(f"{self.client.uid}/out/")]

    def make_kubectl(self, addresses: dict[str, Json]) -> Kubectl:
        """Return a kubectl that has the answers of the aggregated API for these files."""
        return cast(Kubectl, SimpleNamespace(raw=lambda _verb, _resource, address: addresses[address]))


@pytest.fixture
async def results(world: FilesWorld) -> AsyncIterator[Results]:
    client = Client(str(uuid.uuid4()))

    def make(catalog: FileCatalog | None = world.catalog, quota: int | None = None) -> LargeResults:
        return LargeResults(cast(Any, SimpleNamespace(client=client)), lambda: catalog, quota)

    yield Results(world, client, make)


def action(**annotations: str) -> ServiceAction:
    metadata = {"name": "solve-1", "namespace": "team", "uid": "uid", "annotations": annotations}
    spec = {"target": {"kind": "WorkerPool", "name": "pool"}, "action": "solve"}
    return ServiceAction.model_validate({"metadata": metadata, "spec": spec, "status": {"worker": "pool-0"}})


def done(result: Json) -> ServiceActionStatus:
    return ServiceActionStatus(result=result)


async def test_a_large_result_is_moved_and_read_as_before(results: Results) -> None:
    large = results.make()
    moved = await large.move(action(), done(LARGE))
    assert moved.result == {"mesh": MESH}
    assert moved.result_file is not None
    assert await large.move(action(), done(LARGE)) == moved, "a repeated pass finds the file"
    assert len(await results.list_files()) == 1
    assert moved.result_file.file in find_addresses(moved.to_json()), "the sweep keeps the file"

    signed = await results.world.catalog.sign_download(results.client.uid, moved.result_file.file)
    assert signed is not None
    record, request = signed
    assert (record.media_type, record.owner, record.name) == ("application/json", "worker:pool-0", "result.json")
    answer = {"spec": {"bytes": record.size}, "status": {"download": request.to_json()}}
    assert read_result(results.make_kubectl({record.address: answer}), moved) == LARGE


async def test_a_small_result_stays_in_its_object(results: Results) -> None:
    assert await results.make().move(action(), done(SMALL)) == done(SMALL)
    assert read_result(results.make_kubectl({}), done(SMALL)) == SMALL
    assert results.client.requests == 0


async def test_without_a_store_and_for_other_readers_a_large_result_stays_in_its_object(results: Results) -> None:
    assert await results.make(catalog=None).move(action(), done(LARGE)) == done(LARGE)
    assert await results.make().move(action(**{ANNOTATION_INLINE_RESULT: "true"}), done(LARGE)) == done(LARGE)
    assert await results.list_files() == []


async def test_a_store_without_room_or_without_an_answer_holds_up_no_result(results: Results) -> None:
    assert await results.make(quota=1000).move(action(), done(LARGE)) == done(LARGE)
    assert await results.list_files() == []
    away = replace(results.world.access, endpoint="http://127.0.0.1:1")
    async with ObjectStore(away) as store:
        large = results.make(catalog=FileCatalog(away, store))
        before = results.client.requests
        for _ in range(3):
            assert await large.move(action(), done(LARGE)) == done(LARGE)
        assert results.client.requests == before + 1, "the store is asked again only after a pause"
