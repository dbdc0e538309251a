# SPDX-License-Identifier: Apache-2.0
"""Secrets are in Secret objects alone: in no log, event, status, argument or environment, nor in another object."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import counting
import pytest
import script_pods

NOT_SECRET = re.compile(
    r"(^|/)(ca\.crt|tls\.crt|host|port|vhost|occi_vhost|username|management_url|default_user|provider|type|namespace|tls)$"
)
"""Keys of our Secrets whose values are public."""
SHORTEST = 12
PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END", re.DOTALL)
NO_SECRETS = {"secrets", "events", "componentstatuses"}


class Secrets(dict[str, str]):
    """Every secret value by its place; pytest shows only the places in the report of a failed test."""

    def __repr__(self) -> str:
        return f"Secrets({sorted(self)})"


@pytest.fixture(scope="module")
def namespace(cluster: Any) -> Iterator[str]:
    """Provide a pool that has worked, and frontends that have served: logs had the chance to reveal secrets."""
    with cluster.namespace("secrets") as name:
        objects = [counting.service(cluster.image, name, frontends=1), counting.pool("pool", 2, cluster.site)]
        script_pods.apply(cluster.kubectl, name, objects)
        cluster.kubectl("wait", "workerpool/pool", f"-n={name}", "--for=condition=Available", "--timeout=110s")
        path = f"/apis/subresources.simyard.dev/v1alpha1/namespaces/{name}/workerpools/pool"
        call = '{"parameters": {"number": 360}}'
        cluster.kubectl("create", "--raw", f"{path}/actions/factorise", "-f", "-", stdin=call)
        cluster.kubectl(
            "delete", "pod", f"-n={name}", "--all", "--timeout=110s"
        )  # a worker that fails is named in logs and events

        def replaced() -> bool:
            pool = cluster.get("workerpool", "pool", "-n", name)
            phases = [pod["status"]["phase"] for pod in cluster.get("pods", "-n", name)["items"]]
            return pool["status"].get("readyReplicas") == 2 and phases == ["Running"] * 2

        cluster.wait_for("workers in the place of those", replaced)
        yield name


@pytest.fixture(scope="module")
def secrets(cluster: Any, namespace: str) -> Secrets:
    """Return the secrets of both namespaces."""
    found: dict[str, str] = {}
    for where in (cluster.release_namespace, namespace):
        for item in json.loads(cluster.kubectl("get", "secrets", f"-n={where}", "-o", "json"))["items"]:
            if item["type"] == "helm.sh/release.v1":  # contains manifests, which are checked as other objects
                continue
            for key, value in (item.get("data") or {}).items():
                name = f"{where}/{item['metadata']['name']}/{key}"
                found |= {path: text for path, text in _values(name, value) if not NOT_SECRET.search(path)}
    kept = Secrets((name, value) for name, value in found.items() if len(value) >= SHORTEST)
    for part in ("bootstrap.json/broker/password", "simyard-broker-master-key/key", "simyard-apiserver-tls/tls.key"):
        assert any(part in name for name in kept), f"{part} is not among {sorted(kept)}"
    return kept


def _values(name: str, encoded: str) -> Iterator[tuple[str, str]]:
    """Return the secrets in a value: a password in a document, the first lines of a key, else the whole value."""
    raw = base64.b64decode(encoded)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        yield name, encoded
        return
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        document = None
    if isinstance(document, dict):
        yield f"{name}/broker/password", str(document["broker"]["password"])
    elif key := PRIVATE_KEY.search(text):
        yield name, max(key[1].split(), key=len)
    elif "=" in text and "\n" in text:  # the broker's own configuration
        for line in text.splitlines():
            left, _, right = line.partition("=")
            yield f"{name}/{left.strip().rpartition('.')[2]}".replace("default_pass", "password"), right.strip()
    else:
        yield name, text.strip()


def _forms(value: str) -> Iterator[str]:
    """Return the secret as text, and the part of its base64 that every position in a longer text contains."""
    yield value
    raw = value.encode()
    for before, spoiled in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(raw)) * 8 // 6
        yield base64.b64encode(bytes(before) + raw).decode()[spoiled:whole]


def leaks(secrets: Secrets, text: str) -> list[str]:
    """Return the secrets that a text contains, as text or in base64."""
    return [name for name, value in secrets.items() if any(form in text for form in _forms(value))]


def test_the_search_finds_what_is_there(cluster: Any, namespace: str, secrets: Secrets) -> None:
    text = cluster.kubectl("get", "secrets", f"-n={namespace}", "-o", "json")
    decoded = [
        base64.b64decode(value).decode(errors="replace")
        for item in json.loads(text)["items"]
        for value in (item.get("data") or {}).values()
    ]
    plain, encoded = leaks(secrets, "\n".join(decoded)), leaks(secrets, text)
    assert any("bootstrap.json/broker/password" in name for name in plain)
    assert any("bootstrap.json/broker/password" in name for name in encoded)


def test_no_secret_is_in_a_log(cluster: Any, namespace: str, secrets: Secrets) -> None:
    def log(place: tuple[str, str, str]) -> tuple[str, str]:
        where, pod, container = place
        said = cluster.kubectl("logs", f"-n={where}", pod, "-c", container, "--tail=-1")
        return "/".join(place), said

    places = [
        (where, pod["metadata"]["name"], container["name"])
        for where in (cluster.release_namespace, namespace)
        for pod in json.loads(cluster.kubectl("get", "pods", f"-n={where}", "-o", "json"))["items"]
        if pod["status"]["phase"] == "Running"
        for container in pod["spec"]["containers"]
    ]
    assert len(places) > 5
    with ThreadPoolExecutor(4) as pool:
        logs = dict(pool.map(log, places))
    assert sum(map(len, logs.values())) > 1000
    assert {name: found for name, said in logs.items() if (found := leaks(secrets, said))} == {}


def test_no_secret_is_in_any_other_object_or_event(cluster: Any, namespace: str, secrets: Secrets) -> None:
    """All kinds that can be listed, with arguments, environments, statuses, annotations and ConfigMaps."""
    kinds = set(cluster.kubectl("api-resources", "--verbs=list", "--namespaced", "-o", "name").split()) - NO_SECRETS
    cluster_wide = cluster.kubectl("api-resources", "--verbs=list", "--namespaced=false", "-o", "name").split()
    ours = [kind for kind in cluster_wide if "simyard.dev" in kind or kind.startswith("validating")]
    assert {"pods", "configmaps", "workers.simyard.dev", "deployments.apps"} <= kinds
    texts = {"cluster": cluster.kubectl("get", ",".join(ours), "-o", "yaml", "--ignore-not-found")}
    for where in (cluster.release_namespace, namespace):
        names = ",".join(sorted(kinds))
        texts[where] = cluster.kubectl("get", names, f"-n={where}", "-o", "yaml", "--show-managed-fields")
        texts[f"events of {where}"] = cluster.kubectl("get", "events", f"-n={where}", "-o", "yaml")
    assert min(map(len, texts.values())) > 500
    assert {name: found for name, text in texts.items() if (found := leaks(secrets, text))} == {}


def test_no_secret_is_in_the_arguments_or_the_environment_of_a_process(cluster: Any, secrets: Secrets) -> None:
    """All processes of all nodes, as the kernel reports them."""
    seen = 0
    for node in cluster.nodes():
        said = cluster.node(node, "sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; true")
        seen += "simyard" in said
        found = leaks(secrets, said)
        assert found == [], node
    assert seen
