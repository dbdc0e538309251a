# SPDX-License-Identifier: Apache-2.0
"""The aggregated API rejects forged identities, roles grant what they state, and privileged pods are refused."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import certificates
import counting
import pytest
import script_pods
import users
from users import User

GROUP = "/apis/subresources.simyard.dev/v1alpha1"
FORGED = {"X-Remote-User": "kubernetes-admin", "X-Remote-Group": "system:masters"}
ROLES = {"viewer": "simyard-view", "editor": "simyard-edit", "vendor": "simyard-vendor", "worker": ""}
CAN = {
    # operation: roles that may
    "get workerpools.simyard.dev": "viewer editor vendor",
    "watch workers.simyard.dev": "viewer editor vendor",
    "list serviceactions.simyard.dev": "viewer editor vendor",
    "get usages.simyard.dev": "viewer editor vendor",
    "get workers.subresources.simyard.dev/attributes": "viewer editor vendor",
    "get workers.subresources.simyard.dev/log": "viewer editor vendor",
    "create workerpools.simyard.dev": "editor",
    "delete workerpools.simyard.dev": "editor",
    "update workerpools.simyard.dev/scale": "editor",
    "create serviceactions.simyard.dev": "editor",
    "create occimixins.simyard.dev": "editor",
    "create occilinks.simyard.dev": "editor",
    "delete workers.simyard.dev": "editor",
    "create workerpools.subresources.simyard.dev/actions": "editor",
    "create workers.subresources.simyard.dev/actions": "editor",
    "update workers.subresources.simyard.dev/attributes": "editor",
    "create simulationservices.simyard.dev": "vendor",
    "update simulationservices.simyard.dev": "vendor",
    "delete simulationservices.simyard.dev": "vendor",
    "create workers.simyard.dev": "",
    "update workers.simyard.dev/status": "",
    "update workerpools.simyard.dev/status": "",
    "update serviceactions.simyard.dev/status": "",
    "update usages.simyard.dev": "",
    "create cloudsites.simyard.dev": "",
    "update cloudsites.simyard.dev": "",
    "get secrets": "",
    "create pods": "",
    "create pods/exec": "",
    "get pods": "",
}


@pytest.fixture(scope="module")
def namespace(cluster: Any) -> Iterator[str]:
    with cluster.namespace("api") as name:
        objects = [counting.service(cluster.image, name), counting.pool("pool", 1, cluster.site)]
        script_pods.apply(cluster.kubectl, name, objects)
        cluster.kubectl("wait", "workerpool/pool", f"-n={name}", "--for=condition=Available", "--timeout=110s")
        yield name


@pytest.fixture(scope="module")
def people(cluster: Any, namespace: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, User]:
    folder: Path = tmp_path_factory.mktemp("people")
    made = {name: users.make(cluster.kubectl, namespace, name, role, folder) for name, role in ROLES.items() if role}
    return made | {"worker": users.of_account(cluster.kubectl, namespace, "default", folder)}


def test_roles_give_what_they_say(people: dict[str, User], report: Any) -> None:
    def may(question: tuple[str, str]) -> bool:
        who, (verb, _, resource) = question[0], question[1].partition(" ")
        resource, _, subresource = resource.partition("/")
        only = [f"--subresource={subresource}"] if subresource else []
        answer = people[who].ask("auth", "can-i", verb, resource, *only).stdout.partition(" ")[0].strip()
        assert answer in ("yes", "no"), f"{question}: {answer}"
        return answer == "yes"

    questions = [(who, what) for what in CAN for who in ROLES]
    with ThreadPoolExecutor(4) as pool:
        answers = dict(zip(questions, pool.map(may, questions), strict=True))
    expected = {(who, what): who in CAN[what].split() for who, what in questions}
    assert answers == expected
    report.add("Security", "questions of `kubectl auth can-i`, all answered as the roles state", len(questions), "")


def test_a_right_to_one_action_is_a_right_to_that_one(cluster: Any, namespace: str, tmp_path: Path) -> None:
    rule = {
        "apiGroups": ["subresources.simyard.dev"],
        "resources": ["workerpools/actions", "workerpools/actions/factorise"],
        "verbs": ["create"],
    }
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "one"}, "rules": [rule]}
    script_pods.apply(cluster.kubectl, namespace, [role])
    user = users.make(cluster.kubectl, namespace, "one", "one", tmp_path, kind="Role")
    path = f"{GROUP}/namespaces/{namespace}/workerpools/pool/actions"
    user.does("create", "--raw", f"{path}/factorise", "-f", "-", stdin='{"parameters": {"number": 6}}')
    call = '{"parameters": {"key": "x", "seconds": 0}}'
    assert "workerpools/actions/tally" in user.is_refused("create", "--raw", f"{path}/tally", "-f", "-", stdin=call)


def test_worker_pods_have_no_token(cluster: Any, namespace: str) -> None:
    found = json.loads(cluster.kubectl("get", "pods", f"-n={namespace}", "-o", "json"))["items"]
    assert found
    for pod in found:
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not [volume for volume in pod["spec"]["volumes"] if "projected" in volume]


def test_forged_identities_are_refused_by_the_pods_of_the_aggregated_api(cluster: Any, namespace: str) -> None:
    """Requests go past kube-apiserver: without a certificate, with a foreign one, and with one of a cluster user."""
    where = ["-n", cluster.release_namespace, "-l", "app.kubernetes.io/component=apiserver", "-o", "json"]
    pods = json.loads(cluster.kubectl("get", "pods", *where))["items"]
    addresses = [pod["status"]["podIP"] for pod in pods if pod["status"].get("podIP")]
    assert addresses
    certificates = {
        "without a certificate": "",
        "with a certificate of its own": _self_signed("front-proxy-client"),
        "with a user's certificate": _of_the_cluster(cluster, "front-proxy-client"),
    }
    paths = {
        "discovery": GROUP,
        "worker": f"{GROUP}/namespaces/{namespace}/workerpools/pool",
        "attributes": f"{GROUP}/namespaces/{namespace}/workerpools/pool/attributes",
    }
    requests = [
        {
            "name": f"{which} {what} {address}",
            "url": f"https://{address}:8443{path}",
            "headers": FORGED,
            "certificate": certificate,
        }
        for which, certificate in certificates.items()
        for what, path in paths.items()
        for address in addresses
    ]
    env = {"REQUESTS": json.dumps(requests)}
    manifest = script_pods.pod("forger", cluster.image, "asker.py", env=env)
    answers = script_pods.run(cluster.kubectl, namespace, manifest)
    assert len(answers) == len(requests)
    for line in answers:
        if line["name"].startswith("without a certificate discovery"):
            assert line["status"] == 200  # discovery is open to everybody: the pods are reachable
        else:
            assert line["status"] in (0, 401), line
    assert any(line["status"] == 401 for line in answers)
    assert "release" not in "".join(line["text"] for line in answers)


def test_forged_identities_are_taken_off_by_kube_apiserver(
    cluster: Any, namespace: str, people: dict[str, User]
) -> None:
    viewer = people["viewer"]
    path = f"{GROUP}/namespaces/{namespace}/workerpools/pool/actions/factorise"
    call = '{"parameters": {"number": 6}}'
    identities = {"viewer": {"Authorization": f"Bearer {viewer.token}"}, "nobody": {}}
    requests = [
        {
            "name": who,
            "url": f"https://kubernetes.default.svc{path}",
            "headers": {**FORGED, **headers, "Content-Type": "application/json"},
            "method": "POST",
            "body": call,
        }
        for who, headers in identities.items()
    ]
    requests.append({"name": "impersonates", **{key: value for key, value in requests[0].items() if key != "name"}})
    requests[-1]["headers"] = {**identities["viewer"], "Impersonate-User": "kubernetes-admin"}
    env = {"REQUESTS": json.dumps(requests)}
    manifest = script_pods.pod("forger", cluster.image, "asker.py", env=env)
    answers = script_pods.run(cluster.kubectl, namespace, manifest)
    assert {line["name"]: line["status"] for line in answers} == {"viewer": 403, "nobody": 403, "impersonates": 403}
    [refusal] = [line["text"] for line in answers if line["name"] == "viewer"]
    assert viewer.name in refusal and "kubernetes-admin" not in refusal


def test_privileged_pods_get_in_nowhere(cluster: Any, namespace: str) -> None:
    privileged = script_pods.pod("privileged", cluster.image, "asker.py")
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    as_root = script_pods.pod("as-root", cluster.image, "asker.py", securityContext={"runAsUser": 0})
    of_the_host = script_pods.pod("of-the-host", cluster.image, "asker.py", hostNetwork=True)
    good = script_pods.pod("good", cluster.image, "asker.py")
    for where in (cluster.release_namespace, namespace):
        found = json.loads(cluster.kubectl("get", "namespace", where, "-o", "json"))
        assert found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        create = ["create", "--dry-run=server", f"-n={where}", "-f", "-"]
        cluster.kubectl(*create, stdin=json.dumps(good))
        for manifest in (privileged, as_root, of_the_host):
            with pytest.raises(AssertionError, match=r'violates PodSecurity "restricted'):
                cluster.kubectl(*create, stdin=json.dumps(manifest))


def _self_signed(name: str) -> str:
    authority = certificates.Authority.new(name)
    return authority.pem + certificates.pem(authority.key)


def _of_the_cluster(cluster: Any, name: str) -> str:
    """Return a client certificate that the cluster's own CA has signed."""
    request, key = certificates.signing_request(name)
    return users.signed(cluster.kubectl, f"{name}-{uuid.uuid4().hex[:8]}", request) + key
