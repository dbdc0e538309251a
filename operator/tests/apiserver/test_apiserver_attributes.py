# SPDX-License-Identifier: Apache-2.0
"""Attributes and logs of workers."""

from __future__ import annotations

import json
import os
import signal

import pytest
from apiserver_stack import Client, Running, Stack, path_of

from simyard.api.names import WORKERS

pytestmark = pytest.mark.xdist_group("apiserver")


def put(value: object) -> bytes:
    return json.dumps({"value": value}).encode()


async def test_a_worker_shows_what_it_last_said(client: Client, running: Running) -> None:
    answer = (await client.get(path_of(running.namespace, "workers", "pool-0", "attributes"))).json
    assert (answer["kind"], answer["metadata"]["name"]) == ("AttributeValues", "pool-0")
    assert answer["values"]["state"] | {"observedTime": "", "ageMilliseconds": 0} == {
        "value": "idle", "type": "string", "observedTime": "", "ageMilliseconds": 0, "fresh": False,
    }  # fmt: skip
    assert answer["values"]["load"]["unit"] == "N"
    one = (await client.get(path_of(running.namespace, "workers", "pool-0", "attributes/load"))).json
    assert one["values"].keys() == {"load"}


@pytest.mark.parametrize(("resource", "name"), [("workerpools", "pool"), ("simulationservices", "program")])
async def test_a_pool_and_a_service_show_each_worker(
    client: Client, running: Running, resource: str, name: str
) -> None:
    answer = (await client.get(path_of(running.namespace, resource, name, "attributes/state"))).json
    assert answer["metadata"]["name"] == name
    items = {item["metadata"]["name"]: item for item in answer["items"]}
    assert items["pool-0"]["values"]["state"]["value"] == "idle"
    assert items["pool-0"]["ready"]


async def test_a_mutable_attribute_is_set_in_the_worker(stack: Stack, client: Client, running: Running) -> None:
    path = path_of(running.namespace, "workers", "pool-0", "attributes/load")
    try:
        answer = json.loads(stack.kubectl("replace", "--raw", path, "-f", "-", stdin=put(25).decode()))
        assert (answer["values"]["load"]["value"], answer["values"]["load"]["fresh"]) == (25, True)
        assert (await client.get(f"{path}?fresh=true")).json["values"]["load"]["value"] == 25
    finally:
        assert (await client.request("PUT", path, user="admin", data=put(10))).status == 200


@pytest.mark.parametrize(
    ("path", "data", "code", "shown"),
    [
        ("workers/pool-0/attributes/state", put("busy"), 403, "does not declare it mutable"),
        ("workers/pool-0/attributes/load", put("heavy"), 422, "attributes.load"),
        ("workers/pool-0/attributes/load", put(-1), 422, "attributes.load"),
        ("workers/pool-0/attributes/load", b"{}", 422, "value: is required"),
        ("workers/pool-0/attributes/mass", put(1), 404, "declared are: load, state"),
        ("workerpools/pool/attributes/load", put(1), 405, "spec.attributes"),
        ("workers/pool-0/attributes", put(1), 405, "PUT is not supported"),
    ],
)
async def test_an_attribute_that_cannot_be_set_says_why(
    client: Client, running: Running, path: str, data: bytes, code: int, shown: str
) -> None:
    base = f"/apis/subresources.simyard.dev/v1alpha1/namespaces/{running.namespace}"
    answer = await client.request("PUT", f"{base}/{path}", user="admin", data=data)
    assert (answer.status, answer.json["kind"]) == (code, "Status"), answer.text
    assert shown in answer.json["message"]


async def test_a_fresh_reading_does_not_wait_for_a_worker_that_hangs(
    stack: Stack, client: Client, running: Running
) -> None:
    stack.make_pool(running.namespace, "half")
    workers = [stack.make_worker(running.namespace, f"half-{number}", "half") for number in range(2)]
    hanging = workers[1].process.identity
    assert hanging is not None
    os.kill(hanging.pid, signal.SIGSTOP)
    try:
        path = path_of(running.namespace, "workerpools", "half", "attributes?fresh=true")
        items = {item["metadata"]["name"]: item["values"]["state"] for item in (await client.get(path)).json["items"]}
        assert {name: value["fresh"] for name, value in items.items()} == {"half-0": True, "half-1": False}
        assert items["half-1"]["value"] == "idle"
        assert items["half-1"]["ageMilliseconds"] > items["half-0"]["ageMilliseconds"]
    finally:
        for worker in workers:
            worker.process.kill()


async def test_what_no_message_told_is_read_from_the_workers_status(
    stack: Stack, client: Client, running: Running
) -> None:
    worker = {
        "apiVersion": WORKERS.api_version,
        "kind": WORKERS.kind,
        "metadata": {"name": "silent", "namespace": running.namespace},
        "spec": {"serviceRef": {"name": "program"}, "site": "test"},
    }
    stack.apply(worker)
    observed = "2026-01-01T00:00:00Z"
    status = {"attributes": {"state": "solving", "unknown": 1}, "attributesTime": observed}
    stack.status(WORKERS, running.namespace, "silent", status)
    values = (await client.get(path_of(running.namespace, "workers", "silent", "attributes"))).json["values"]
    assert values.keys() == {"state"}
    assert values["state"]["value"] == "solving"
    assert values["state"]["observedTime"].startswith("2026-01-01T00:00:00")
    log = await client.get(path_of(running.namespace, "workers", "silent", "log"))
    assert (log.status, "Retry-After" in log.headers) == (503, False), "kubectl would repeat it ten times"


async def test_kubectl_reads_a_workers_log(stack: Stack, client: Client, running: Running) -> None:
    await client.post(path_of(running.namespace, "workers", "pool-0", "actions/solve"), {"parameters": {"length": 777}})
    path = path_of(running.namespace, "workers", "pool-0", "log")
    assert "solving 777" in stack.kubectl("get", "--raw", path)
    last = await client.get(f"{path}?tailLines=1")
    assert last.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert len(last.text.splitlines()) == 1
    assert (await client.get(f"{path}?tailLines=-1")).status == 400
    assert (await client.get(path_of(running.namespace, "workerpools", "pool", "log"))).status == 404
