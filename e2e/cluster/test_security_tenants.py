# SPDX-License-Identifier: Apache-2.0
"""A user of another namespace can neither see nor call anything: kinds, actions, attributes, logs, OCCI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import counting
import pytest
import script_pods
import users
from users import User

GROUP = "/apis/subresources.simyard.dev/v1alpha1"


@dataclass(frozen=True)
class Tenants:
    """Two namespaces: one with the protected objects, one in which the stranger has all rights."""

    own: str
    other: str
    owner: User
    stranger: User
    worker: str
    endpoint: str


@pytest.fixture(scope="module")
def tenants(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    folder: Path = tmp_path_factory.mktemp("tenants")
    with cluster.namespace("tenant") as own, cluster.namespace("stranger") as other:
        kubectl = cluster.kubectl
        owner = users.make(kubectl, own, "owner", "admin", folder)
        stranger = users.make(kubectl, other, "stranger", "admin", folder)
        manifest = counting.service(cluster.image, own, frontends=1)
        objects = [manifest, counting.pool("pool", 1, cluster.site), *_things_of_a_user()]
        owner.does("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        kubectl("wait", "workerpool/pool", f"-n={own}", "--for=condition=Available", "--timeout=110s")
        kubectl(
            "wait", f"simulationservice/{counting.SERVICE}", f"-n={own}", "--for=condition=Available", "--timeout=110s"
        )
        [worker] = json.loads(kubectl("get", "workers", f"-n={own}", "-o", "json"))["items"]
        found = json.loads(kubectl("get", "simulationservice", counting.SERVICE, f"-n={own}", "-o", "json"))
        [endpoint] = found["status"]["endpoints"]
        yield Tenants(own, other, owner, stranger, worker["metadata"]["name"], endpoint)


def _things_of_a_user() -> list[script_pods.Json]:
    return [
        {
            "apiVersion": "simyard.dev/v1alpha1",
            "kind": "ServiceAction",
            "metadata": {"name": "secret-study"},
            "spec": {
                "target": {"kind": "WorkerPool", "name": "pool"},
                "action": "factorise",
                "parameters": {"number": 360},
            },
        },
    ]


def kinds(cluster: Any) -> list[str]:
    """Return the namespaced resources of our group."""
    named = cluster.kubectl("api-resources", "--api-group=simyard.dev", "--namespaced", "-o", "name").split()
    found = [name.partition(".")[0] for name in named]
    assert len(found) >= 6, found
    return found


def test_a_stranger_sees_no_object_of_any_kind(cluster: Any, tenants: Tenants) -> None:
    for kind in kinds(cluster):
        resource = f"{kind}.simyard.dev"
        tenants.owner.does("get", resource)
        tenants.stranger.does("get", resource)
        tenants.stranger.is_refused("get", resource, f"-n={tenants.own}")
        tenants.stranger.is_refused("get", resource, "--all-namespaces")
        tenants.stranger.is_refused("get", resource, f"-n={tenants.own}", "--watch")
        tenants.stranger.is_refused("get", resource, "anything", f"-n={tenants.own}")
        tenants.stranger.is_refused("delete", resource, "--all", f"-n={tenants.own}")


def test_a_stranger_changes_nothing(tenants: Tenants) -> None:
    own = f"-n={tenants.own}"
    patch = ["--type=merge", "-p", '{"spec":{"replicas":5}}']
    tenants.stranger.is_refused("patch", "workerpool", "pool", own, *patch)
    tenants.stranger.is_refused("scale", "workerpool", "pool", "--replicas=0", own)
    cancel = ["--type=merge", "-p", '{"spec":{"cancel":true}}']
    tenants.stranger.is_refused("patch", "serviceaction", "secret-study", own, *cancel)
    action = _things_of_a_user()[0]
    tenants.stranger.is_refused("create", own, "-f", "-", stdin=json.dumps(action))


@pytest.mark.parametrize("target", ["workers", "workerpools", "simulationservices"])
def test_a_stranger_calls_no_action_and_reads_no_attribute(tenants: Tenants, target: str) -> None:
    name = {"workers": tenants.worker, "workerpools": "pool", "simulationservices": counting.SERVICE}[target]
    path = f"{GROUP}/namespaces/{tenants.own}/{target}/{name}"
    call = json.dumps({"parameters": {"number": 360}})
    done = json.loads(tenants.owner.does("create", "--raw", f"{path}/actions/factorise", "-f", "-", stdin=call))
    assert done["result"] == {"factors": "2 2 2 3 3 5"}
    tenants.owner.does("get", "--raw", f"{path}/attributes")

    tenants.stranger.is_refused("create", "--raw", f"{path}/actions/factorise", "-f", "-", stdin=call)
    tenants.stranger.is_refused("create", "--raw", f"{path}/actions/factorise?wait=false", "-f", "-", stdin=call)
    for part in ("", "/attributes", "/attributes/release", "/attributes?fresh=true"):
        tenants.stranger.is_refused("get", "--raw", f"{path}{part}")
    value = json.dumps({"value": "x"})
    tenants.stranger.is_refused("replace", "--raw", f"{path}/attributes/release", "-f", "-", stdin=value)


def test_a_stranger_reads_no_log(tenants: Tenants) -> None:
    path = f"{GROUP}/namespaces/{tenants.own}/workers/{tenants.worker}/log"
    tenants.owner.does("get", "--raw", path)
    tenants.stranger.is_refused("get", "--raw", path)


def test_an_action_in_ones_own_namespace_reaches_no_pool_of_another_one(cluster: Any, tenants: Tenants) -> None:
    before = cluster.kubectl("get", "serviceactions", f"-n={tenants.own}", "-o", "name")
    tenants.stranger.does("apply", "-f", "-", stdin=json.dumps(_things_of_a_user()[0]))

    def status() -> Any:
        found = json.loads(tenants.stranger.does("get", "serviceaction", "secret-study", "-o", "json"))
        return found.get("status", {}) if found.get("status", {}).get("conditions") else {}

    told = cluster.wait_for("the operator to have looked at it", status)
    assert not told.get("worker"), told
    assert cluster.kubectl("get", "serviceactions", f"-n={tenants.own}", "-o", "name") == before


def test_over_occi_a_stranger_is_nobody(cluster: Any, tenants: Tenants) -> None:
    authority = cluster.authority()
    compute = f"{tenants.endpoint}/compute/"
    paths = ["/-/", "/compute/", "/application/", "/component/", "/amqplink/"]
    mine, theirs = (_headers(user.token) for user in (tenants.owner, tenants.stranger))
    plain = {"Content-Type": "text/plain"}
    make = {
        "method": "POST",
        "body": 'Category: compute; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"',
    }
    requests: list[dict[str, Any]] = []
    for path in paths:
        url = f"{tenants.endpoint}{path}"
        requests += [
            {"name": f"owner {path}", "url": url, "headers": mine},
            {"name": f"stranger {path}", "url": url, "headers": theirs},
            {"name": f"nobody {path}", "url": url},
            {"name": f"liar {path}", "url": url, "headers": _headers("e30.e30.e30")},
        ]
    requests += [
        {"name": "stranger makes", "url": compute, "headers": {**theirs, **plain}, **make},
        {"name": "stranger deletes", "url": compute, "headers": theirs, "method": "DELETE"},
        {"name": "stranger acts", "url": f"{compute}?action=stop", "headers": {**theirs, **plain}, "method": "POST"},
    ]
    env = {"REQUESTS": json.dumps([{**request, "ca": authority} for request in requests])}
    manifest = script_pods.pod("asker", cluster.image, "asker.py", env=env)
    answers = {line["name"]: line for line in script_pods.run(cluster.kubectl, tenants.own, manifest)}
    assert len(answers) == len(requests)
    expected = {"owner": 200, "stranger": 403, "nobody": 401, "liar": 401}
    wrong = {name: line for name, line in answers.items() if line["status"] != expected[name.split()[0]]}
    assert not wrong
    assert tenants.worker not in "".join(line["text"] for name, line in answers.items() if not name.startswith("owner"))


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
