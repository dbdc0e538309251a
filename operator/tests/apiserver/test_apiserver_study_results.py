# SPDX-License-Identifier: Apache-2.0
"""The subresource ``studies/results`` behind a real kube-apiserver, with kubectl's plugin and a real S3 server."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
from urllib.parse import quote

import pytest
from apiserver_stack import Client, Stack
from test_apiserver_files import namespace, simyard

from simyard.files.access import StoreAccess
from simyard.files.keys import StudyKeys
from simyard.files.store import ObjectStore
from simyard.files.studies import StudyStore
from simyard.guest.chunks import ChunkSummary

__all__ = ["namespace"]

pytestmark = pytest.mark.xdist_group("apiserver")

HEADER = ["index", "parameters.x", "result.y", "worker", "seconds", "attempts", "reason", "error"]
STUDY = {
    "apiVersion": "simyard.dev/v1alpha1",
    "kind": "Study",
    "metadata": {"name": "squares"},
    "spec": {
        "target": {"kind": "WorkerPool", "name": "pool"},
        "action": "square",
        "design": {"grid": {"axes": [{"name": "x", "start": 0, "stop": 5, "step": 1}]}},
    },
}


def make_part(*indexes: int) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for index in indexes:
        writer.writerow([index, index, index * index, "pool-0", 0.1, 1, "", ""])
    return gzip.compress(text.getvalue().encode())


async def store_parts(stack: Stack, namespace: str, parts: dict[int, bytes]) -> None:
    stack.apply({**STUDY, "metadata": {"name": "squares", "namespace": namespace}})
    uid = json.loads(stack.kubectl("get", "namespace", namespace, "-o", "json"))["metadata"]["uid"]
    study = json.loads(stack.kubectl("get", "study", "squares", "-n", namespace, "-o", "json"))["metadata"]["uid"]
    access = StoreAccess.from_directory(stack.files.access)
    async with ObjectStore(access) as store:
        studies = StudyStore(access, store)
        for chunk, content in parts.items():
            assert await studies.create_part(StudyKeys(uid, study), chunk, content, ChunkSummary(1))


async def test_the_rows_of_all_chunks_come_in_the_order_of_the_tasks(stack: Stack, namespace: str) -> None:
    await store_parts(stack, namespace, {2: make_part(4, 5), 0: make_part(0, 1), 1: make_part(2, 3)})
    done = simyard(stack, namespace, "study", "results", "squares")
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.reader(io.StringIO(done.stdout)))
    assert rows[0] == ["index", "x", "y", "worker", "seconds", "attempts", "reason", "error"]
    assert [row[:3] for row in rows[1:]] == [[str(i), str(i), str(i * i)] for i in range(6)]


async def test_results_come_in_pages(stack: Stack, client: Client, namespace: str) -> None:
    await store_parts(stack, namespace, {chunk: make_part(chunk) for chunk in range(3)})
    path = f"/apis/subresources.simyard.dev/v1alpha1/namespaces/{namespace}/studies/squares/results"
    first = (await client.request("GET", f"{path}?limit=2", user="admin")).json
    rest = (await client.request("GET", f"{path}?continue={first['metadata']['continue']}", user="admin")).json
    assert [item["chunk"] for item in (*first["items"], *rest["items"])] == [0, 1, 2]
    assert "continue" not in rest["metadata"]


async def test_results_need_the_right_and_a_study(stack: Stack, client: Client, namespace: str) -> None:
    await store_parts(stack, namespace, {})
    path = f"/apis/subresources.simyard.dev/v1alpha1/namespaces/{namespace}/studies"
    assert (await client.request("GET", f"{path}/squares/results", user="nobody", groups=())).status == 403
    assert (await client.request("GET", f"{path}/other/results", user="admin")).status == 404
    assert (await client.request("GET", f"{path}/squares/log", user="admin")).status == 404


async def test_a_study_without_rows_and_damaged_rows_are_told(stack: Stack, namespace: str) -> None:
    await store_parts(stack, namespace, {})
    assert "study/squares has no results yet" in simyard(stack, namespace, "study", "results", "squares").stderr
    await store_parts(stack, namespace, {0: make_part(0)[:-6]})
    damaged = simyard(stack, namespace, "study", "results", "squares")
    assert damaged.returncode == 1
    assert "the rows of chunk 0 arrived damaged" in damaged.stderr


async def test_the_rows_of_a_study_that_began_without_a_file_store_come_from_its_records(
    stack: Stack, client: Client, namespace: str
) -> None:
    await store_parts(stack, namespace, {})
    study = json.loads(stack.kubectl("get", "study", "squares", "-n", namespace, "-o", "json"))["metadata"]["uid"]
    for chunk in range(3):
        labels = {"simyard.dev/study": study, "simyard.dev/record": "parts"}
        metadata = {"name": f"{study}.parts.{chunk:05d}", "namespace": namespace, "labels": labels}
        content = base64.b64encode(make_part(chunk)).decode()
        record = {"apiVersion": STUDY["apiVersion"], "kind": "StudyRecord", "metadata": metadata}
        stack.apply({**record, "spec": {"study": "squares", "content": content}})
    done = simyard(stack, namespace, "study", "results", "squares")
    assert (done.returncode, done.stderr) == (0, "")
    assert [row[0] for row in csv.reader(io.StringIO(done.stdout))] == ["index", "0", "1", "2"]
    path = f"/apis/subresources.simyard.dev/v1alpha1/namespaces/{namespace}/studies/squares/results"
    first = (await client.request("GET", f"{path}?limit=2", user="admin")).json
    token = quote(first["metadata"]["continue"], safe="")
    rest = (await client.request("GET", f"{path}?continue={token}", user="admin")).json
    assert [item["chunk"] for item in (*first["items"], *rest["items"])] == [0, 1, 2]
