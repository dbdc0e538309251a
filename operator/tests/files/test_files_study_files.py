# SPDX-License-Identifier: Apache-2.0
"""Files that only rows of studies name, at a real S3 server, and the rows themselves in the quota."""

import csv
import gzip
import io
import json
import os
import uuid
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from files_cluster import RETENTION, Swept

from simyard.files.generations import Generation, GenerationStore
from simyard.files.keys import FileOrigin, StudyKeys, make_usage_key
from simyard.files.quotas import NamespaceUsage, QuotaError
from simyard.files.store import MAX_TABLE_BYTES
from simyard.files.study_files import StudyRows, find_files_of_studies

ADDRESS = f"sha256:{'0' * 64}"


def pack(addresses: Iterable[str]) -> bytes:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["index", "result.field", "worker"])
    for index, address in enumerate(addresses):
        table.writerow([index, json.dumps({"file": address, "name": "field.vtu", "bytes": 3}), "w-0"])
    return gzip.compress(text.getvalue().encode())


async def put_rows(swept: Swept, study: str, chunk: int, content: bytes) -> None:
    await swept.world.store.put_object(StudyKeys(swept.uid, study).make_part(chunk), content)


async def test_a_file_that_only_a_row_names_is_kept_as_long_as_the_study(swept: Swept) -> None:
    study, other = str(uuid.uuid4()), str(uuid.uuid4())
    files = [await swept.upload(f"field {number}", FileOrigin.WORKER, "worker") for number in range(3)]
    forgotten = await swept.upload("forgotten")
    await put_rows(swept, study, 0, pack(files[:1]))
    await put_rows(swept, study, 1, pack(files[1:2]))
    await put_rows(swept, other, 0, pack(files[2:]))  # its rows cannot name files, so they are not read
    swept.cluster.studies = {study: StudyRows(10, name_files=True), other: StudyRows(10)}
    swept.pass_time(RETENTION + timedelta(days=1))
    await swept.sweep.sweep()
    assert [await swept.is_there(address) for address in (*files, forgotten)] == [True, True, False, False]

    await put_rows(swept, study, 0, b"damaged")  # the files count as used now, so no row is read again
    await swept.sweep.sweep()
    assert [await swept.is_there(address) for address in files[:2]] == [True, True]

    swept.cluster.studies = {}
    swept.pass_time(RETENTION + timedelta(days=1))
    await swept.sweep.sweep()
    assert [await swept.is_there(address) for address in files[:2]] == [False, False]


@pytest.mark.parametrize("size", [0, 2**20 - 40, 3 * 2**20])
async def test_an_address_is_found_at_any_place(swept: Swept, size: int) -> None:
    study, address = str(uuid.uuid4()), f"sha256-64m:{os.urandom(32).hex()}"
    await put_rows(swept, study, 0, gzip.compress(b" " * size + address.encode()))
    keys = [StudyKeys(swept.uid, study)]
    assert await find_files_of_studies(swept.world.store, keys, {address, "other"}) == {address}


async def test_rows_that_are_too_large_keep_all_files(swept: Swept) -> None:
    study, wanted = str(uuid.uuid4()), {"a", "b"}
    keys = [StudyKeys(swept.uid, study)]
    await put_rows(swept, study, 0, gzip.compress(bytes(2 * 2**20)))
    assert await find_files_of_studies(swept.world.store, keys, wanted, 2**20) == wanted
    assert await find_files_of_studies(swept.world.store, keys, wanted, 2**22) == set()


async def test_an_address_in_three_blocks_is_found(swept: Swept) -> None:
    study, address = str(uuid.uuid4()), f"sha256:{os.urandom(32).hex()}"
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    content = packer.compress(b" " * (2**20 - 20) + address[:40].encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
    content += b"\x00\x00\x00\xff\xff" * 2**14  # empty blocks: the rest is in another block of the input
    content += packer.compress(address[40:].encode()) + packer.flush()
    await put_rows(swept, study, 0, content)
    keys = [StudyKeys(swept.uid, study)]
    assert await find_files_of_studies(swept.world.store, keys, {address, "other"}) == {address}


async def test_large_rows_are_read(swept: Swept) -> None:
    study, address = str(uuid.uuid4()), f"sha256:{os.urandom(32).hex()}"
    await put_rows(swept, study, 0, gzip.compress(os.urandom(5 * 2**20) + address.encode()))
    keys = [StudyKeys(swept.uid, study)]
    assert await find_files_of_studies(swept.world.store, keys, {address, "other"}) == {address}


async def test_a_large_generation_is_read(swept: Swept) -> None:
    keys, generations = StudyKeys(swept.uid, str(uuid.uuid4())), GenerationStore(swept.world.store)
    points = [[0.123456789] * 1000] * 500
    await generations.create(keys, 0, Generation(points))
    assert await generations.read(keys, 0) == Generation(points)


async def test_rows_that_cannot_be_read_keep_all_files(swept: Swept) -> None:
    study = str(uuid.uuid4())
    await put_rows(swept, study, 0, bytes(MAX_TABLE_BYTES + 1))
    wanted = {"a", "b"}
    assert await find_files_of_studies(swept.world.store, [StudyKeys(swept.uid, study)], wanted) == wanted


@pytest.mark.parametrize(
    "content", [b"", b"damaged", gzip.compress(ADDRESS.encode())[:20]], ids=["empty", "damaged", "cut"]
)
async def test_damaged_rows_name_no_file(swept: Swept, content: bytes) -> None:
    study = str(uuid.uuid4())
    await put_rows(swept, study, 0, content)
    assert await find_files_of_studies(swept.world.store, [StudyKeys(swept.uid, study)], {ADDRESS}) == set()


async def test_rows_count_in_the_quota_until_the_sweep_counts_them(swept: Swept) -> None:
    catalog, study = swept.world.catalog, str(uuid.uuid4())
    for _ in range(2):  # a repeated question counts once
        await catalog.admit_part(swept.uid, "study.0.1", 60, 100)
    with pytest.raises(QuotaError, match="requested 50 bytes, used 60 bytes, quota 100 bytes"):
        await catalog.admit_part(swept.uid, "study.1.1", 50, 100)
    await put_rows(swept, study, 0, b"rows")
    swept.cluster.studies = {study: StudyRows(30)}
    counted = datetime.now(UTC) + timedelta(minutes=10)
    usage = NamespaceUsage(namespace="lab", files=0, total_bytes=30, counted=counted)
    await swept.world.store.put_object(make_usage_key(swept.uid), usage.to_bytes())
    await catalog.admit_part(swept.uid, "study.1.1", 50, 100)
    with pytest.raises(QuotaError, match="used 80 bytes"):
        await catalog.admit_part(swept.uid, "study.2.1", 50, 100)
