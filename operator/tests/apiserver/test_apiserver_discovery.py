# SPDX-License-Identifier: Apache-2.0
"""Discovery and OpenAPI, through kube-apiserver and directly at the apiserver."""

from __future__ import annotations

import json
import re

import pytest
from apiserver_stack import API, Client, Running, Stack, unique

from kube_api import wait_until

pytestmark = pytest.mark.xdist_group("apiserver")


def test_kubectl_lists_the_resources_of_the_group(stack: Stack) -> None:
    def listed() -> str:
        return stack.kubectl("api-resources", "--api-group=subresources.simyard.dev", "--no-headers", "-o", "name")

    wait_until(lambda: "workers.subresources.simyard.dev" in listed())
    assert sorted(listed().split()) == [
        f"{name}.subresources.simyard.dev"
        for name in ("files", "simulationservices", "studies", "workerpools", "workers")
    ]


def test_plain_names_still_mean_the_custom_resources(stack: Stack, running: Running) -> None:
    worker = json.loads(stack.kubectl("get", "workers", "pool-0", f"--namespace={running.namespace}", "-o", "json"))
    assert worker["apiVersion"] == "simyard.dev/v1alpha1"


def test_kubectl_gets_the_interface_of_a_target(stack: Stack, running: Running) -> None:
    for resource, name in (("workers", "pool-0"), ("workerpools", "pool"), ("simulationservices", "program")):
        offered = json.loads(
            stack.kubectl(
                "get", f"{resource}.subresources.simyard.dev", name, f"--namespace={running.namespace}", "-o", "json"
            )
        )
        assert "solve" in [action["name"] for action in offered["interface"]["actions"]]
        assert (offered["kind"].lower() + "s", offered["service"]) == (resource, "program")


def test_every_resource_has_a_kind_and_verbs(stack: Stack) -> None:
    found = {item["name"]: item for item in json.loads(stack.kubectl("get", "--raw", API))["resources"]}
    assert all(item["kind"] and item["verbs"] and item["namespaced"] for item in found.values())
    assert found["workers/actions"]["verbs"] == ["create", "update"]
    assert {name.split("/")[0] for name in found} <= found.keys()
    aggregated = json.loads(stack.kubectl("get", "--raw", "/apis"))
    assert "subresources.simyard.dev" in [group["name"] for group in aggregated["groups"]]


def test_kube_apiserver_publishes_the_openapi_document(stack: Stack) -> None:
    wait_until(lambda: API.removeprefix("/") in json.loads(stack.kubectl("get", "--raw", "/openapi/v3"))["paths"])
    document = json.loads(stack.kubectl("get", "--raw", f"/openapi/v3{API}"))
    operation = document["paths"][f"{API}/namespaces/{{namespace}}/workers/{{name}}/actions/{{action}}"]["post"]
    reference = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


async def test_what_a_client_has_already_is_not_sent_again(client: Client) -> None:
    for path in ("/apis", "/openapi/v2", "/openapi/v3", f"/openapi/v3{API}"):
        first = await client.request("GET", path)
        again = await client.request("GET", path, headers={"If-None-Match": first.headers["ETag"]})
        assert (first.status, again.status, again.text) == (200, 304, "")
        changed = await client.request("GET", path, headers={"If-None-Match": '"other"'})
        assert changed.text == first.text


async def test_json_is_all_that_is_offered(client: Client) -> None:
    protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    assert (await client.request("GET", "/openapi/v2", headers={"Accept": protobuf})).status == 406
    both = f"{protobuf}, application/json"
    assert (await client.request("GET", "/openapi/v2", headers={"Accept": both})).status == 200


def test_a_namespace_with_workers_can_be_deleted(stack: Stack) -> None:
    namespace = unique("deleted")
    stack.make_service(namespace)
    stack.kubectl("delete", "namespace", namespace, "--wait", "--timeout=240s")


def test_requests_are_counted_by_what_they_ask_for(stack: Stack, running: Running) -> None:
    path = f"{API}/namespaces/{running.namespace}/workers/pool-0/log"
    stack.kubectl("get", "--raw", path)
    line = 'simyard_apiserver_requests_total{code="200",resource="workers",subresource="log",verb="get"}'
    assert line in stack.metrics_port("/metrics")
    assert re.search(r"objects: heard of \d+ s ago", stack.metrics_port("/readyz"))
