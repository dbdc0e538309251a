# SPDX-License-Identifier: Apache-2.0
"""After an uninstallation by the guide, no APIService, finalizer, definition or namespace hangs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import counting
import pytest
from cluster import restricted_namespace
from reader import Reader

import guides

SITE = "e2e-uninstall"
RUNNER = "e2e/cluster/test_uninstall.py"


@pytest.fixture
def reader(cluster: Any, tmp_path: Path) -> Reader:
    """Provide the reader who types the commands of docs/uninstall.md and docs/install.md."""
    return Reader.at(cluster, tmp_path)


def test_pools_and_sites_end_and_the_release_goes(cluster: Any, reader: Reader) -> None:
    things, release, _ = _uninstalling()
    with cluster.namespace("uninstall") as namespace:
        _have_a_pool(cluster, namespace)
        reader.does(things)
        assert cluster.get("pods", "-n", namespace)["items"] == []
        reader.does(release)
        assert _served(cluster) == []
        assert definitions(cluster), "crds.keep is true by default"
        for kind in definitions(cluster):
            items = cluster.get(kind, "--all-namespaces")["items"]
            assert [item for item in items if item["metadata"].get("finalizers")] == []
        assert _ours(cluster) == ["secret/simyard-ca"]
    cluster.kubectl(
        "api-resources", "--verbs=list", "-o", "name"
    )  # fails while an API is registered whose server is gone


def test_what_comes_back_finds_its_objects_and_its_authority(cluster: Any, reader: Reader) -> None:
    before = cluster.authority()
    reader.does(guides.collect_commands("docs/install.md", RUNNER))
    assert cluster.authority() == before
    with cluster.namespace("again") as namespace:
        _have_a_pool(cluster, namespace)
        reader.does(_uninstalling()[0])


def test_what_was_kept_goes_too(cluster: Any, reader: Reader) -> None:
    _, release, rest = _uninstalling()
    reader.does(release + rest)
    assert definitions(cluster) == []
    assert _served(cluster) == []
    found = [item["metadata"]["name"] for item in cluster.get("namespaces")["items"]]
    assert cluster.release_namespace not in found


def test_definitions_that_are_not_to_be_kept_go_with_the_release(cluster: Any) -> None:
    cluster.apply(restricted_namespace(cluster.release_namespace))
    cluster.helm("install", cluster.release, str(cluster.chart), "-f", str(cluster.values), "--set=crds.keep=false")
    assert definitions(cluster)
    cluster.helm("uninstall", cluster.release, "--wait", "--timeout=5m")
    cluster.wait_for("the end of the definitions", lambda: not definitions(cluster))
    cluster.kubectl("delete", "namespace", cluster.release_namespace, "--timeout=110s")


def definitions(cluster: Any) -> list[str]:
    """Return the definitions of our kinds."""
    found = [item["metadata"]["name"] for item in cluster.get("customresourcedefinitions")["items"]]
    return [name for name in found if name.endswith(".simyard.dev")]


def _uninstalling() -> list[str]:
    """Return the steps of docs/uninstall.md: pools and sites, the release, the kept objects."""
    found = [block.commands for block in guides.read_blocks("docs/uninstall.md") if RUNNER in block.runners]
    assert len(found) == 3
    return found


def _have_a_pool(cluster: Any, namespace: str) -> None:
    site = {
        "apiVersion": "simyard.dev/v1alpha1",
        "kind": "CloudSite",
        "metadata": {"name": SITE},
        "spec": {"provider": {"pod": {"userId": 65532}}},
    }
    service = counting.service(cluster.image, namespace, frontends=1)
    cluster.apply(site, service, counting.pool("pool", 2, SITE), namespace=namespace)
    cluster.wait("workerpool/pool", "condition=Available", namespace)


def _served(cluster: Any) -> list[str]:
    names = [item["metadata"]["name"] for item in cluster.get("apiservices")["items"]]
    return [name for name in names if name.endswith("subresources.simyard.dev")]


def _ours(cluster: Any) -> list[str]:
    """Return our objects that are still in the release's namespace."""
    kinds = "deployments,services,secrets,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets"
    labels = f"app.kubernetes.io/instance={cluster.release},app.kubernetes.io/managed-by=Helm"
    found = cluster.kubectl("get", kinds, "-n", cluster.release_namespace, "-l", labels, "-o", "name")
    return sorted(found.split())
