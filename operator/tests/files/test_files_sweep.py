# SPDX-License-Identifier: Apache-2.0
"""The sweep at a real S3 server: what it deletes, and what it never deletes."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from files_cluster import RETENTION, Swept
from prometheus_client import REGISTRY

from simyard.api.base import Json
from simyard.api.names import SERVICE_ACTIONS, SIMULATION_SERVICES, STUDIES, WORKER_POOLS, WORKERS
from simyard.files.access import StoreAccess
from simyard.files.catalog import FileCatalog
from simyard.files.keys import (
    FileKey,
    FileOrigin,
    StudyKeys,
    UseKey,
    make_deleting_key,
    make_orphaned_key,
    make_usage_key,
)
from simyard.files.quotas import NamespaceUsage, QuotaError
from simyard.files.references import References, find_addresses
from simyard.files.store import ObjectStore, StoreError
from simyard.files.study_files import StudyRows
from simyard.files.sweep import BATCH, INSTALLATION_KEY, FileSweep, SweepError, SweepSettings
from simyard.files.uploads import Upload
from simyard_adapter.digests import PART_BYTES
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.resource import Resource


class FailingStore(ObjectStore):
    """A store that fails after some changes, like an operator that is killed there."""

    def __init__(self, access: StoreAccess, changes: int) -> None:
        super().__init__(access)
        self._left = changes

    async def put_object(self, key: str, content: bytes = b"") -> datetime:
        self._count()
        return await super().put_object(key, content)

    async def delete_object(self, key: str) -> None:
        self._count()
        await super().delete_object(key)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise StoreError("the test stops here")


class CountingStore(ObjectStore):
    """A store that counts how many deletions are under way at once."""

    def __init__(self, access: StoreAccess) -> None:
        super().__init__(access)
        self.most = self._now = 0

    async def delete_object(self, key: str) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        await super().delete_object(key)
        self._now -= 1


async def test_what_nobody_names_or_used_for_the_retention_is_deleted(swept: Swept) -> None:
    forgotten = await swept.upload("forgotten")
    result = await swept.upload("an old result", FileOrigin.WORKER, "worker")
    named = await swept.upload("named")
    downloaded = await swept.upload("downloaded")
    offered = await swept.upload("offered again")
    swept.cluster.named = {named}
    swept.pass_time(RETENTION + timedelta(days=1))
    new = await swept.upload("new")
    assert await swept.world.catalog.sign_download(swept.uid, downloaded) is not None
    await swept.world.catalog.offer_upload(swept.uid, FileOrigin.USER, Upload(offered, 13, owner="ann"))

    await swept.sweep.sweep()
    there = {name: await swept.is_there(name) for name in (forgotten, result, named, downloaded, offered, new)}
    assert there == {forgotten: False, result: False, named: True, downloaded: True, offered: True, new: True}
    assert len(await swept.list_keys("used/")) == 4
    assert await swept.list_keys("deleting/") == []


async def test_the_results_of_a_study_are_kept_as_long_as_the_study_exists(swept: Swept) -> None:
    kept, gone = str(uuid.uuid4()), str(uuid.uuid4())
    for study in (kept, gone):
        for chunk in range(3):
            await swept.world.store.put_object(StudyKeys(swept.uid, study).make_part(chunk), b"rows")
    swept.cluster.studies = {kept: StudyRows(12)}
    swept.pass_time(RETENTION + timedelta(days=1))
    await swept.sweep.sweep()
    assert await swept.list_keys("studies/") == [StudyKeys(swept.uid, kept).make_part(chunk) for chunk in range(3)]
    usage = NamespaceUsage.from_bytes(await swept.world.store.get_object(make_usage_key(swept.uid)))
    assert usage is not None and usage.total_bytes == 12


async def test_without_a_retention_all_files_are_kept(swept: Swept) -> None:
    address = await swept.upload("kept")
    swept.pass_time(timedelta(days=10_000))
    await FileSweep(swept.world.store, swept.cluster, SweepSettings(retention=None)).sweep()
    assert await swept.is_there(address)


async def test_the_sums_are_written_shown_and_admit_uploads(swept: Swept) -> None:
    await swept.upload("1234567890")
    await swept.upload("result", FileOrigin.WORKER)
    await swept.sweep.sweep()
    usage = NamespaceUsage.from_bytes(await swept.world.store.get_object(make_usage_key(swept.uid)))
    assert usage is not None
    assert (usage.namespace, usage.files, usage.total_bytes) == ("team", 2, 16)
    assert REGISTRY.get_sample_value("simyard_files_stored_bytes", {"namespace": "team"}) == 16
    assert REGISTRY.get_sample_value("simyard_files_stored", {"namespace": "team"}) == 2
    catalog = FileCatalog(swept.world.access, swept.world.store)
    with pytest.raises(QuotaError) as refused:
        await catalog.offer_upload(swept.uid, FileOrigin.USER, Upload(f"sha256:{'0' * 64}", 5), quota=20)
    assert refused.value.used == 16
    await catalog.offer_upload(swept.uid, FileOrigin.USER, Upload(f"sha256:{'0' * 64}", 4), quota=20)


async def test_use_records_without_a_file_are_deleted_after_a_day(swept: Swept) -> None:
    await swept.world.catalog.offer_upload(swept.uid, FileOrigin.USER, Upload(f"sha256:{'0' * 64}", 5, owner="ann"))
    await swept.sweep.sweep()
    assert len(await swept.list_keys("used/")) == 1
    swept.pass_time(timedelta(days=2))
    await swept.sweep.sweep()
    assert await swept.list_keys("used/") == []


async def test_a_file_that_is_used_while_the_sweep_deletes_is_kept_or_its_user_is_told(swept: Swept) -> None:
    """Use the file after each change of the sweep: whoever was told that it is there finds it there."""
    for changes in range(20):
        address = await swept.upload(f"content {changes}")
        swept.pass_time(RETENTION * 2)
        async with FailingStore(swept.world.access, changes) as store:
            sweep = FileSweep(store, swept.cluster, SweepSettings(RETENTION))
            with contextlib.suppress(StoreError, SweepError):
                await sweep.sweep()
        try:
            told = await swept.world.catalog.sign_download(swept.uid, address) is not None
        except StoreError as error:
            assert "try again" in str(error)
            told = False
        await swept.sweep.sweep()
        assert not told or await swept.is_there(address), f"after {changes} changes"


async def test_a_pass_that_ends_anywhere_is_repaired_by_the_next(swept: Swept) -> None:
    for changes in range(30):
        gone = [await swept.upload(f"old {number} {changes}") for number in range(3)]
        swept.pass_time(RETENTION * 2)
        kept = await swept.upload(f"new {changes}")
        async with FailingStore(swept.world.access, changes) as store:
            with contextlib.suppress(StoreError, SweepError):
                await FileSweep(store, swept.cluster, SweepSettings(RETENTION)).sweep()
        await swept.sweep.sweep()
        assert [await swept.is_there(address) for address in (*gone, kept)] == [False, False, False, True], changes
        await swept.world.catalog.delete_file(swept.uid, kept)
        swept.pass_time(timedelta(hours=1))
        await swept.sweep.sweep()
        assert await swept.list_keys("deleting/") == []


async def test_two_sweeps_at_once_do_no_harm(swept: Swept) -> None:
    old = [await swept.upload(f"old {number}") for number in range(30)]
    swept.pass_time(RETENTION * 2)
    new = [await swept.upload(f"new {number}") for number in range(10)]
    other = FileSweep(swept.world.store, swept.cluster, SweepSettings(RETENTION))
    await asyncio.gather(swept.sweep.sweep(), other.sweep())
    assert not any([await swept.is_there(address) for address in old])
    assert all([await swept.is_there(address) for address in new])


async def test_more_files_than_one_page_are_deleted_and_counted(swept: Swept) -> None:
    number = 1300
    for place in range(number):
        address = f"sha256:{place:064x}"
        await swept.world.store.put_object(str(FileKey(swept.uid, FileOrigin.WORKER, address)), b"12")
    await swept.sweep.sweep()
    usage = NamespaceUsage.from_bytes(await swept.world.store.get_object(make_usage_key(swept.uid)))
    assert usage is not None
    assert (usage.files, usage.total_bytes) == (number, 2 * number)
    swept.pass_time(RETENTION * 2)
    await swept.sweep.sweep()
    assert await swept.list_keys("out/") == []


async def test_the_files_of_a_namespace_that_is_gone_are_deleted_after_an_hour(swept: Swept) -> None:
    await swept.upload("content")
    await swept.sweep.sweep()
    swept.cluster.namespaces = {str(uuid.uuid4()): "team"}  # created again under the same name
    await swept.sweep.sweep()
    swept.pass_time(timedelta(minutes=50))
    await swept.sweep.sweep()
    assert len(await swept.list_keys("in/")) == 1
    swept.pass_time(timedelta(minutes=20))
    await swept.sweep.sweep()
    assert await swept.list_keys() == []


@pytest.mark.parametrize("counted", [True, False])
async def test_a_stale_list_of_namespaces_deletes_nothing(swept: Swept, counted: bool) -> None:
    address = await swept.upload("content")
    if counted:
        await swept.sweep.sweep()
    for _ in range(2):
        swept.cluster.stale = {}
        await swept.sweep.sweep()
        swept.pass_time(timedelta(hours=2))
    assert await swept.is_there(address)
    assert await swept.world.store.find_object(make_orphaned_key(swept.uid)) is None


async def test_the_bucket_of_another_cluster_and_foreign_objects_are_not_touched(swept: Swept) -> None:
    address = await swept.upload("content")
    await swept.world.store.put_object(f"backup/{swept.uid}/in/{address}", b"mine")
    await swept.sweep.sweep()
    swept.cluster.uid, swept.cluster.namespaces = "another", {}
    swept.pass_time(RETENTION * 2)
    with pytest.raises(SweepError, match=INSTALLATION_KEY):
        await swept.sweep.sweep()
    assert await swept.is_there(address)
    assert await swept.world.store.get_object(f"backup/{swept.uid}/in/{address}") == b"mine"


async def test_a_namespace_that_is_not_watched_keeps_its_files(swept: Swept) -> None:
    address = await swept.upload("content")
    swept.cluster.namespaces = {swept.uid: "unwatched"}
    swept.pass_time(RETENTION * 2)
    await swept.sweep.sweep()
    assert await swept.is_there(address)


async def test_uploads_in_parts_that_nobody_continues_are_aborted(swept: Swept) -> None:
    parts = (b"0" * 32, b"1" * 32)

    async def begin(number: int, upload_id: str = "") -> str:
        upload = Upload(f"sha256-64m:{number:064x}", PART_BYTES + 1, parts, owner="ann")
        offer = await swept.world.catalog.offer_upload(swept.uid, FileOrigin.USER, upload, upload_id=upload_id)
        return offer.upload_id

    await begin(1)
    continued = await begin(2)
    swept.pass_time(timedelta(days=2))
    await begin(2, continued)
    new = await begin(3)
    await swept.sweep.sweep()
    left = [item.upload_id async for item in swept.world.store.list_uploads(f"{swept.uid}/")]
    assert left == [continued, new]
    assert len(await swept.list_keys("open/")) == 2


@pytest.mark.parametrize("error", [ApiError(500, "InternalError", "etcd is away"), RuntimeError("etcd is away")])
async def test_a_failure_in_one_namespace_holds_up_no_other(
    swept: Swept, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    other = Swept(swept.world, swept.cluster, str(uuid.uuid4()), swept.sweep, swept.folder)
    swept.cluster.namespaces |= {other.uid: "other"}
    addresses = [(item, await item.upload("old content")) for item in (swept, other)]
    await swept.sweep.sweep()
    for item in (swept, other):
        bucket = item.world.server.objects / item.world.access.bucket / item.uid
        for path in bucket.rglob("*"):
            os.utime(path, (0, 0))
    find_named_files = swept.cluster.find_named_files
    first = min(swept.uid, other.uid)

    async def fail(namespace: str) -> set[str]:
        if namespace == swept.cluster.namespaces[first]:
            raise error
        return await find_named_files(namespace)

    swept.cluster.find_named_files = fail  # type: ignore[method-assign]
    with pytest.raises(SweepError, match=f"1 namespaces were not swept: {swept.cluster.namespaces[first]}"):
        await swept.sweep.sweep()
    assert "etcd is away" in caplog.text
    shown = {name: REGISTRY.get_sample_value("simyard_files_stored", {"namespace": name}) for name in ("team", "other")}
    assert shown == {name: 1 if uid == first else 0 for uid, name in swept.cluster.namespaces.items()}
    assert {item.uid: await item.is_there(address) for item, address in addresses} == {
        item.uid: item.uid == first for item, _ in addresses
    }
    swept.cluster.find_named_files = find_named_files  # type: ignore[method-assign]
    await swept.sweep.sweep()
    assert await other.list_keys("in/") == []


async def test_an_error_leaves_no_file_that_seems_to_be_deleted(swept: Swept) -> None:
    address = await swept.upload("content")
    swept.pass_time(RETENTION * 2)
    answers = iter([set[str]()])

    async def fail(_: str) -> set[str]:
        if (answer := next(answers, None)) is None:
            raise ApiError(500, "InternalError", "etcd is away")
        return answer

    swept.cluster.find_named_files = fail  # type: ignore[method-assign]
    with pytest.raises(SweepError):
        await swept.sweep.sweep()
    assert await swept.world.catalog.sign_download(swept.uid, address) is not None


async def test_a_record_that_a_killed_sweep_left_holds_up_nobody_for_long(swept: Swept) -> None:
    address = await swept.upload("content")
    await swept.world.store.put_object(make_deleting_key(swept.uid, address))
    swept.pass_time(timedelta(minutes=11))
    assert await swept.world.catalog.sign_download(swept.uid, address) is not None


async def test_a_pass_sends_its_requests_in_batches(swept: Swept) -> None:
    for number in range(BATCH + 100):
        await swept.world.store.put_object(str(UseKey(FileKey(swept.uid, FileOrigin.USER, f"sha256:{number:064x}"))))
    swept.pass_time(timedelta(days=2))
    async with CountingStore(swept.world.access) as store:
        await FileSweep(store, swept.cluster, SweepSettings(RETENTION)).sweep()
        assert 1 < store.most <= BATCH
    assert await swept.list_keys("used/") == []


async def test_objects_are_read_only_if_a_file_is_old(swept: Swept) -> None:
    await swept.upload("content")

    async def fail(_: str) -> set[str]:
        raise AssertionError("not needed")

    swept.cluster.find_named_files = fail  # type: ignore[method-assign]
    await swept.sweep.sweep()


async def test_a_client_is_asked_to_try_again_while_a_file_is_about_to_be_deleted(swept: Swept) -> None:
    address = await swept.upload("content")
    await swept.world.store.put_object(make_deleting_key(swept.uid, address))
    with pytest.raises(StoreError, match="try again"):
        await swept.world.catalog.sign_download(swept.uid, address)
    with pytest.raises(StoreError, match="try again"):
        await swept.world.catalog.offer_upload(swept.uid, FileOrigin.USER, Upload(address, 7))
    swept.pass_time(timedelta(hours=1))
    await swept.sweep.sweep()
    assert await swept.world.catalog.sign_download(swept.uid, address) is not None


def test_files_are_found_at_any_depth() -> None:
    one, two, three = (f"sha256:{number:064x}" for number in range(3))
    value = {
        "spec": {"parameters": {"deck": {"file": one}, "meshes": [{"file": two}, [{"deep": {"file": three}}]]}},
        "status": {"result": {"file": "sha256:short", "other": one + "x", "text": two, "n": 1, "none": None}},
    }
    assert set(find_addresses(value)) == {one, two, three}


async def test_objects_of_each_kind_keep_the_files_that_they_name() -> None:
    """The attributes of a Worker can be files that no other object names."""
    kinds = (SERVICE_ACTIONS, STUDIES, WORKER_POOLS, SIMULATION_SERVICES, WORKERS)
    addresses = {resource: f"sha256:{number:064x}" for number, resource in enumerate(kinds)}

    class Client:
        async def list_all(self, resource: Resource, _: str, on_page: Callable[[list[Json]], None]) -> None:
            on_page([{"status": {"attributes": {"mesh": {"file": addresses[resource]}}}}])

    assert await References(cast(Any, Client()), [""]).find_named_files("team") == set(addresses.values())
