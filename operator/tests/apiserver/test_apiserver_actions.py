# SPDX-License-Identifier: Apache-2.0
"""Calls of actions, by kubectl through kube-apiserver and directly at the apiserver."""

from __future__ import annotations

import json
import re

import pytest
from apiserver_stack import Client, Running, Stack, path_of, unique

from simyard.api.names import SERVICE_ACTIONS, WORKER_POOLS, WORKERS
from simyard.apiserver.api import MAX_BODY_BYTES
from simyard.serving.calls import ResourceCall
from simyard.serving.directory import Directory
from simyard.serving.status import StatusError
from simyard_sites.kubernetes.client import KubeClient

pytestmark = pytest.mark.xdist_group("apiserver")


def requests_sent(stack: Stack) -> float:
    """Return the number of requests of the kind ``action`` that the apiserver has sent to the broker."""
    lines = re.findall(r'simyard_broker_requests_total\{kind="action".*\} (\S+)', stack.metrics_port("/metrics"))
    return sum(map(float, lines))


@pytest.mark.parametrize(
    ("resource", "name"), [("workers", "pool-0"), ("workerpools", "pool"), ("simulationservices", "program")]
)
def test_kubectl_calls_an_action_and_gets_its_result_as_an_object(
    stack: Stack, running: Running, resource: str, name: str
) -> None:
    path = path_of(running.namespace, resource, name, "actions/solve")
    body = json.dumps({"parameters": {"length": 4}})
    answer = json.loads(stack.kubectl("create", "--raw", path, "-f", "-", stdin=body))
    assert (answer["apiVersion"], answer["kind"]) == ("subresources.simyard.dev/v1alpha1", "ActionResult")
    assert (answer["metadata"]["namespace"], answer["metadata"]["name"]) == (running.namespace, name)
    assert (answer["worker"], answer["result"]) == ("pool-0", {"twice": 8})
    assert answer["seconds"] >= 0


def test_kubectl_replace_does_the_same(stack: Stack, running: Running) -> None:
    path = path_of(running.namespace, "workers", "pool-0", "actions/solve")
    assert json.loads(stack.kubectl("replace", "--raw", path, "-f", "-", stdin="{}"))["result"] == {"twice": 2}


async def test_an_empty_body_means_no_parameters(client: Client, running: Running) -> None:
    answer = await client.post(path_of(running.namespace, "workers", "pool-0", "actions/solve"))
    assert answer.json["result"] == {"twice": 2}


def test_kubectl_shows_the_programs_own_message_when_it_fails(stack: Stack, running: Running) -> None:
    path = path_of(running.namespace, "workers", "pool-0", "actions/refuse")
    failed = stack.try_kubectl("create", "--raw", path, "-f", "-", stdin="{}")
    assert failed.returncode
    assert failed.stderr == "Error from server (ActionFailed): *ERROR in e_c3d: nonpositive jacobian\n"


@pytest.mark.parametrize(
    ("action", "code", "reason", "cause"),
    [
        ("refuse", 422, "ActionFailed", {"reason": "ActionFailed"}),
        ("crash", 422, "ConnectorCrashed", {"reason": "ConnectorCrashed"}),
        ("inspect_deck", 422, "Invalid", {"reason": "FieldValueInvalid", "field": "parameters.deck"}),
        ("overrun", 504, "Timeout", {"reason": "TimedOut"}),
    ],
)
async def test_what_the_adapter_answers_becomes_a_status(
    client: Client, running: Running, action: str, code: int, reason: str, cause: dict[str, str]
) -> None:
    answer = await client.post(path_of(running.namespace, "workers", "pool-0", f"actions/{action}"))
    assert (answer.status, answer.json["code"], answer.json["reason"]) == (code, code, reason), answer.text
    assert answer.headers["Content-Type"] == "application/json"
    assert "Retry-After" not in answer.headers
    [shown] = answer.json["details"]["causes"]
    assert cause.items() <= shown.items()
    assert shown["message"] in answer.json["message"]


BAD = [
    ("workers/pool-0/actions/solve", {"parameters": {"length": "four"}}, 422, "parameters.length"),
    ("workers/pool-0/actions/solve", {"parameters": {"length": 1001}}, 422, "parameters.length"),
    ("workers/pool-0/actions/solve", {"parameters": {"lenght": 1}}, 422, "parameters.lenght"),
    ("workers/pool-0/actions/solve", {"parameters": [4]}, 422, "parameters"),
    ("workers/pool-0/actions/solve?wait=false", {"parameters": {"length": -1}}, 422, "parameters.length"),
    ("workers/pool-0/actions/solve?wait=perhaps", {}, 400, "wait=perhaps"),
    ("workers/pool-0/actions/solve", {"params": {"length": 4}}, 400, 'unknown field "params"'),
    ("workers/pool-0/actions/solve", [], 400, "not a JSON object"),
    ("workers/pool-0/actions/melt", {}, 404, "crash, inspect_deck, optimise, overrun, refuse, solve"),
    ("workers/nobody/actions/solve", {}, 404, 'workers.simyard.dev "nobody" not found'),
    ("workerpools/nobody/actions/solve", {}, 404, 'workerpools.simyard.dev "nobody" not found'),
    ("simulationservices/nobody/actions/solve", {}, 404, 'simulationservices.simyard.dev "nobody" not found'),
    ("workers/pool-0/melt", {}, 404, "no subresource melt"),
    ("workers/pool-0/actions/solve/twice", {}, 404, "nothing is served"),
    ("pods/pool-0/actions/solve", {}, 404, "nothing is served"),
    ("workers/pool-0/log", {}, 405, "POST is not supported"),
    ("workers/pool-0", {}, 405, "POST is not supported"),
]


@pytest.mark.parametrize(("path", "body", "code", "shown"), BAD)
async def test_a_bad_call_is_refused_with_a_status_and_nothing_is_sent(
    stack: Stack, client: Client, running: Running, path: str, body: object, code: int, shown: str
) -> None:
    before = requests_sent(stack)
    answer = await client.post(f"/apis/subresources.simyard.dev/v1alpha1/namespaces/{running.namespace}/{path}", body)
    assert (answer.status, answer.json["kind"], answer.json["code"]) == (code, "Status", code), answer.text
    assert shown in answer.json["message"]
    if code == 422:
        assert [cause["field"] for cause in answer.json["details"]["causes"]] == [shown]
    assert requests_sent(stack) == before
    assert not stack.kubectl("get", "serviceactions", f"--namespace={running.namespace}", "-o", "name")


@pytest.mark.parametrize(
    ("data", "content_type", "code"),
    [
        (b"{", "application/json", 400),
        (b"parameters: {}", "application/yaml", 415),
        (b"x" * (MAX_BODY_BYTES + 1), "application/json", 413),
    ],
)
async def test_a_body_that_is_no_call_is_refused(
    client: Client, running: Running, data: bytes, content_type: str, code: int
) -> None:
    path = path_of(running.namespace, "workers", "pool-0", "actions/solve")
    answer = await client.request("POST", path, user="admin", data=data, headers={"Content-Type": content_type})
    assert (answer.status, answer.json["kind"]) == (code, "Status")


def test_a_large_body_gets_through_kube_apiserver(stack: Stack, running: Running) -> None:
    path = path_of(running.namespace, "workers", "pool-0", "actions/solve")
    body = json.dumps({"parameters": {"label": "x" * 1_000_000}})
    assert json.loads(stack.kubectl("create", "--raw", path, "-f", "-", stdin=body))["result"] == {"twice": 2}


@pytest.mark.parametrize("action", ["optimise", "solve?wait=false"])
def test_a_call_that_is_not_waited_for_becomes_a_service_action(stack: Stack, running: Running, action: str) -> None:
    for resource, name, kind in (("workerpools", "pool", "WorkerPool"), ("workers", "pool-0", "Worker")):
        path = path_of(running.namespace, resource, name, f"actions/{action}")
        created = json.loads(stack.kubectl("create", "--raw", path, "-f", "-", "--as=ada", "--as-group=system:masters"))
        assert created["kind"] == "ServiceAction"
        assert created["metadata"]["name"].startswith(f"{name}-{action.partition('?')[0]}-")
        assert created["metadata"]["annotations"]["simyard.dev/requested-by"] == "ada"
        assert created["metadata"]["labels"] == {"simyard.dev/service": "program", "simyard.dev/pool": "pool"}
        assert created["spec"]["target"] == {"kind": kind, "name": name}
        stored = stack.kubectl(
            "delete", SERVICE_ACTIONS.plural, created["metadata"]["name"], f"--namespace={running.namespace}"
        )
        assert "deleted" in stored


async def test_without_a_ready_worker_the_reason_comes_at_once_and_nothing_is_sent(
    stack: Stack, client: Client, running: Running
) -> None:
    namespace = unique("idle")
    stack.make_service(namespace)
    service = path_of(namespace, "simulationservices", "program", "actions/solve")
    answer = await client.post(service)
    assert (answer.status, answer.json["reason"]) == (503, "ServiceUnavailable")
    assert answer.json["message"].endswith("is ready: it has no WorkerPool")

    stack.make_pool(namespace, "pool")
    stack.set_condition(WORKER_POOLS, namespace, "pool", "Available", False, "CapacityExhausted", "site a is full")
    before = requests_sent(stack)
    answer = await client.post(path_of(namespace, "workerpools", "pool", "actions/solve"))
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert "CapacityExhausted: site a is full" in answer.json["message"]
    assert answer.json["details"]["causes"][0]["reason"] == "CapacityExhausted"
    assert requests_sent(stack) == before


async def test_a_worker_that_is_not_ready_gets_no_calls(stack: Stack, client: Client, running: Running) -> None:
    stack.make_pool(running.namespace, "draining")
    worker = stack.make_worker(running.namespace, "draining-0", "draining", ready=False)
    path = path_of(running.namespace, "workers", worker.name, "actions/solve")
    try:
        stack.set_ready(worker, False, "Draining", "it finishes what it runs")
        answer = await client.post(path)
        assert answer.status == 503
        assert "Draining: it finishes what it runs" in answer.json["message"]
        stack.set_ready(worker, True)
        assert (await client.post(path)).json["worker"] == worker.name
    finally:
        worker.process.kill()


async def test_a_worker_that_stands_alone_answers_for_its_service(stack: Stack, client: Client) -> None:
    namespace = unique("alone")
    stack.make_service(namespace)
    worker = stack.make_worker(namespace, "single")
    try:
        answer = await client.post(path_of(namespace, "simulationservices", "program", "actions/solve"))
        assert answer.json["worker"] == "single", answer.text
    finally:
        worker.process.kill()


async def test_a_target_that_the_local_copy_lacks_is_asked_for_once(stack: Stack, running: Running) -> None:
    async with await KubeClient.connect(stack.control_plane.kubeconfig) as kube:
        directory = Directory(kube)  # it does not run, so its copies stay empty
        found = await directory.find_target(ResourceCall("create", running.namespace, WORKERS, "pool-0"))
        assert found.metadata.uid == running.worker.uid
        with pytest.raises(StatusError, match="not found"):
            await directory.find_target(ResourceCall("create", running.namespace, WORKERS, "nobody"))
