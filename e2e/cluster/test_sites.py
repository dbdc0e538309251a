# SPDX-License-Identifier: Apache-2.0
"""A pool on two clouds: KubeVirt with its real definitions, and OpenNebula. Pods simulate both.

The simulators are those of ``simyard_simulators``, which the pods import from a ConfigMap; the guests of their machines
are real adapters. An outage is a cloud whose processes, guests included, are all stopped.
"""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import counting
import faults
import pytest
import script_pods
from certificates import Authority
from script_pods import Json

from simyard_dev import kubevirt

VIRT, ONE = "e2e-virt", "e2e-one"
POOL = "pool"
REPLICAS = 6
ADMIN = {"username": "simyard", "password": "secret"}
API_SERVICE = "v1.subresources.kubevirt.io"
DEFAULT_ROLE = "kubevirt.io:default"
SECONDS = 300.0


@pytest.fixture(scope="module")
def namespace(cluster: Any) -> Iterator[str]:
    """Provide both clouds, a site for each, and a pool that is spread over them."""
    with cluster.namespace("sites") as name:
        try:
            _play_kubevirt(cluster, name)
            _play_opennebula(cluster, name)
            cluster.apply(*_sites(name))
            for site in (VIRT, ONE):
                cluster.kubectl("wait", f"cloudsite/{site}", "--for=condition=Ready", "--timeout=110s")
            service = counting.service(cluster.image, name, kubevirt="debian:13", openNebula="debian")
            placement = {"strategy": "Spread", "siteFailure": "Replace", "rebalance": "WhenIdle"}
            rollout = {"maxUnavailable": "50%"}
            pool = counting.pool(POOL, REPLICAS, VIRT, ONE, placement=placement, rollout=rollout)
            cluster.apply(service, pool, namespace=name)
            yield name
        finally:
            _remove(cluster, name)


def _play_kubevirt(cluster: Any, namespace: str) -> None:
    """Install KubeVirt's definitions, the pod that plays its programs, and the rights to create machines here."""
    definitions = kubevirt.release().definitions
    cluster.apply(*definitions)
    for definition in definitions:
        crd = f"crd/{definition['metadata']['name']}"
        cluster.kubectl("wait", crd, "--for=condition=Established", "--timeout=60s")
    authority = Authority.new("virt")
    certificate, key = authority.issue(f"virt-api.{namespace}.svc")
    tls = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "virt-tls"},
        "stringData": {"tls.crt": certificate, "tls.key": key},
    }
    player = script_pods.pod(
        "virt-api",
        cluster.image,
        "virt.py",
        namespace,
        env=script_pods.WITH_SIMULATORS,
        account="virt",
        tls_secret="virt-tls",
    )
    port = script_pods.service("virt-api", 443, 8443)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "virt"}}
    machines = {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachineinstances"], "verbs": ["*"]}
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "virt"}, "rules": [machines, secrets]}
    bindings = [
        _binding("virt", "Role", "virt", namespace),
        _binding("simyard-site-kubevirt", "ClusterRole", "simyard-operator", cluster.release_namespace),
    ]
    objects = [script_pods.config_map(), tls, account, role, *bindings, player, port]
    cluster.apply(*objects, *_everybodys_rights(), namespace=namespace)
    spec = {
        "group": "subresources.kubevirt.io",
        "version": "v1",
        "groupPriorityMinimum": 100,
        "versionPriority": 15,
        "caBundle": base64.b64encode(authority.pem.encode()).decode(),
        "service": {"name": "virt-api", "namespace": namespace, "port": 443},
    }
    meta = {"name": API_SERVICE}
    cluster.apply({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": meta, "spec": spec})
    cluster.kubectl("wait", f"apiservice/{API_SERVICE}", "--for=condition=Available", "--timeout=110s")


def _everybodys_rights() -> list[Json]:
    """Return the right to read the version, which KubeVirt's installation grants to everybody."""
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": ["subresources.kubevirt.io"], "resources": ["version"], "verbs": ["get", "list"]}
    meta = {"name": DEFAULT_ROLE}
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": meta, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": DEFAULT_ROLE},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:authenticated"}],
        },
    ]


def _binding(role: str, kind: str, account: str, namespace: str) -> Json:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def _play_opennebula(cluster: Any, namespace: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": ONE}, "stringData": ADMIN}
    cluster.apply(secret, namespace=cluster.release_namespace)
    oned = script_pods.pod("oned", cluster.image, "one.py", env=script_pods.WITH_SIMULATORS)
    cluster.apply(script_pods.service("oned", 2633, 2633), oned, namespace=namespace)
    cluster.kubectl("wait", "pod/oned", "-n", namespace, "--for=condition=Ready", "--timeout=110s")


def _sites(namespace: str) -> list[Json]:
    one = {
        "endpoint": f"http://oned.{namespace}.svc:2633/RPC2",
        "credentialsSecretRef": {"name": ONE},
        "template": "worker",
        "imageOwner": "oneadmin",
        "quietPollSeconds": 2,
    }
    providers: dict[str, Json] = {VIRT: {"kubevirt": {"namespace": namespace}}, ONE: {"openNebula": one}}
    return [
        {
            "apiVersion": "simyard.dev/v1alpha1",
            "kind": "CloudSite",
            "metadata": {"name": name},
            "spec": {"provider": provider, "orphanGraceSeconds": 5},
        }
        for name, provider in providers.items()
    ]


def _remove(cluster: Any, namespace: str) -> None:
    """Delete the objects in an order in which each finds what it needs to clean up."""
    absent = ["--ignore-not-found", "--timeout=110s"]
    cluster.kubectl("delete", "workerpools", "--all", "-n", namespace, *absent)
    cluster.kubectl("delete", "cloudsite", VIRT, ONE, *absent)
    cluster.kubectl("delete", "secret", ONE, "-n", cluster.release_namespace, *absent)
    cluster.kubectl("delete", "apiservice", API_SERVICE, *absent)
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", DEFAULT_ROLE, *absent)
    names = [f"crd/{definition['metadata']['name']}" for definition in kubevirt.release().definitions]
    cluster.kubectl("delete", *names, *absent)


def _share(cluster: Any, namespace: str) -> Counter[str]:
    """Return the number of ready workers at each site."""
    return Counter(
        worker["spec"]["site"]
        for worker in cluster.get("workers", "-n", namespace)["items"]
        for condition in worker.get("status", {}).get("conditions", [])
        if condition["type"] == "Ready" and condition["status"] == "True"
    )


def _factors(cluster: Any, namespace: str, target: str) -> str:
    path = f"/apis/subresources.simyard.dev/v1alpha1/namespaces/{namespace}/{target}/actions/factorise"
    answer = cluster.kubectl("create", "--raw", path, "-f", "-", stdin='{"parameters": {"number": 360}}')
    return str(json.loads(answer)["result"]["factors"])


def test_both_say_that_they_are_simulated(cluster: Any, namespace: str) -> None:
    versions = {site: cluster.get("cloudsite", site)["status"]["version"] for site in (VIRT, ONE)}
    assert versions[VIRT].startswith("KubeVirt") and versions[ONE].startswith("OpenNebula")
    assert all("simulated" in version for version in versions.values())


def test_a_pool_is_spread_over_both_and_works_on_both(cluster: Any, namespace: str) -> None:
    half = {VIRT: REPLICAS // 2, ONE: REPLICAS // 2}
    cluster.wait_for("workers at both sites", lambda: _share(cluster, namespace) == half, seconds=SECONDS)
    workers = cluster.get("workers", "-n", namespace)["items"]
    of_site = {worker["spec"]["site"]: worker["metadata"]["name"] for worker in workers}
    assert of_site.keys() == half.keys()
    for name in of_site.values():
        assert _factors(cluster, namespace, f"workers/{name}") == "2 2 2 3 3 5"
    assert len(cluster.get("virtualmachineinstances", "-n", namespace)["items"]) == REPLICAS // 2


def test_an_outage_hands_the_share_over_and_back(cluster: Any, namespace: str, report: Any) -> None:
    half = {VIRT: REPLICAS // 2, ONE: REPLICAS // 2}
    cluster.wait_for("workers at both sites", lambda: _share(cluster, namespace) == half, seconds=SECONDS)
    began = time.monotonic()
    with faults.stopped(cluster, namespace, "oned"):
        all_there = {VIRT: REPLICAS}
        cluster.wait_for(
            "all workers at the other site", lambda: _share(cluster, namespace) == all_there, seconds=SECONDS
        )
        report.add(
            "Recovery",
            "a site stops: all its workers ready at the other site after",
            round(time.monotonic() - began),
            "s",
        )
        conditions = cluster.get("cloudsite", ONE)["status"]["conditions"]
        assert [c["status"] for c in conditions if c["type"] == "Ready"] == ["False"]
        assert _factors(cluster, namespace, f"workerpools/{POOL}") == "2 2 2 3 3 5"
    began = time.monotonic()
    cluster.wait_for("the share to return", lambda: _share(cluster, namespace) == half, seconds=SECONDS)
    report.add(
        "Recovery", "the site continues: its workers ready there again after", round(time.monotonic() - began), "s"
    )
    assert _factors(cluster, namespace, f"workerpools/{POOL}") == "2 2 2 3 3 5"
    cluster.wait_for(
        "machines without a worker to be gone",
        lambda: cluster.get("cloudsite", ONE)["status"]["workers"]["total"] == REPLICAS // 2,
        seconds=SECONDS,
    )
