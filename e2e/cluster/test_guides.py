# SPDX-License-Identifier: Apache-2.0
"""The commands of the guides work on the present cluster as readers type them.

The objects of the guides are in the namespace ``default``; the objects of other tests are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import environment
import pytest
from cluster import Cluster
from reader import Reader

import guides

RUNNER = "e2e/cluster/test_guides.py"


@pytest.fixture
def reader(cluster: Cluster, tmp_path: Path) -> Reader:
    """Provide the reader who types the commands."""
    return Reader.at(cluster, tmp_path)


@pytest.fixture
def nothing_left(cluster: Cluster) -> Iterator[None]:
    """Delete the objects of the quickstart, also if it fails half-way."""
    yield
    for kind, name in (
        ("workerpool", "beams"),
        ("simulationservice", "calculix-beam"),
        ("cloudsite", "here"),
        ("rolebinding", "simyard-site-pod"),
    ):
        cluster.kubectl("delete", kind, name, "--namespace=default", "--ignore-not-found", "--timeout=110s")


@pytest.mark.usefixtures("nothing_left")
def test_the_quickstart_on_kind(cluster: Cluster, reader: Reader) -> None:
    printed = reader.does(guides.collect_commands("docs/kind.md", RUNNER))
    assert '"max_displacement"' in printed
    assert cluster.get("workers", "--namespace=default")["items"] == []


def test_an_upgrade_and_the_way_back(cluster: Cluster, beams: Any, reader: Reader) -> None:
    before = {worker["metadata"]["uid"] for worker in beams.workers()}
    reader.does(guides.collect_commands("docs/upgrade.md", RUNNER))
    cluster.wait(f"workerpool/{beams.pool}", "condition=Available", beams.namespace)
    assert {worker["metadata"]["uid"] for worker in beams.workers()} == before


@pytest.mark.usefixtures("beams")
def test_saving_a_backup(reader: Reader) -> None:
    reader.does(guides.collect_commands("docs/backup.md", RUNNER))
    pools = reader.does("kubectl create --dry-run=client -o name -f backup/objects.yaml | grep workerpool")
    assert "workerpool.simyard.dev/beams" in pools
    secrets = reader.does("kubectl create --dry-run=client -o name -f backup/secrets.yaml")
    assert "secret/simyard-broker-master-key" in secrets
    assert "sh.helm.release" not in secrets


def test_the_rights_of_a_site_of_pods(cluster: Cluster, reader: Reader) -> None:
    """The rights of docs/sites/pod.md, with other names and another account: the operator has these rights already."""
    commands = guides.collect_commands("docs/sites/pod.md", RUNNER).replace(
        "binding simyard-site-pod", "binding of-a-guide"
    )
    operator = f"{cluster.release_namespace}:simyard-operator"
    assert commands.count(operator) == 2
    account = f"system:serviceaccount:{cluster.release_namespace}:of-a-guide"
    question = ("kubectl", "auth", "can-i", "create", "pods", f"--as={account}", "-n", "default")
    try:
        with pytest.raises(AssertionError, match=r"exit code 1\nno"):
            environment.run(*question)
        reader.does(commands.replace(operator, f"{cluster.release_namespace}:of-a-guide"))
        assert environment.run(*question).strip() == "yes"
    finally:
        cluster.kubectl("delete", "clusterrolebinding", "of-a-guide", "--ignore-not-found")
        cluster.kubectl("delete", "rolebinding", "of-a-guide", "--namespace=default", "--ignore-not-found")
