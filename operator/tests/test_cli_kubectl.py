# SPDX-License-Identifier: Apache-2.0
"""Requests through kubectl: the events of a watch, and the choice of cluster and namespace."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from simyard.cli.app import cli
from simyard.cli.kubectl import Kubectl, KubectlError
from simyard_dev.controlplane import ControlPlane
from simyard_dev.tools import ensure
from simyard_sites.kubernetes.resource import Resource

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
"""A resource in a separate API group that every API server has."""


class Cluster:
    """A real API server with one object to watch, and the real kubectl."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.run = control_plane.kubectl
        self.kubectl = Kubectl([f"--kubeconfig={control_plane.kubeconfig}"])
        self.name = f"watched-{secrets.token_hex(4)}"

    def change(self, holder: str) -> None:
        self.run("patch", "lease", self.name, "--type=merge", "-p", json.dumps({"spec": {"holderIdentity": holder}}))


@pytest.fixture
def cluster(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("PATH", f"{ensure(['kubectl'])['kubectl'].parent}:{os.environ['PATH']}")
    cluster = Cluster(control_plane)
    metadata = {"name": cluster.name, "namespace": "default"}
    cluster.run(
        "create",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}),
    )
    yield cluster
    cluster.run("delete", "lease", cluster.name, "--ignore-not-found")


def test_a_change_between_reading_and_watching_is_seen(cluster: Cluster) -> None:
    watch = cluster.kubectl.watch(LEASES, cluster.name)
    assert "holderIdentity" not in next(watch)["spec"]
    for holder in ("first", "second"):
        cluster.change(holder)
    assert [next(watch)["spec"]["holderIdentity"] for _ in range(2)] == ["first", "second"]
    cluster.run("delete", "lease", cluster.name)
    assert list(watch) == []


def test_what_does_not_exist_is_not_watched(cluster: Cluster) -> None:
    with pytest.raises(KubectlError, match="NotFound"):
        next(cluster.kubectl.watch(LEASES, "absent"))


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return the arguments of the last call of kubectl, a script that finds a pool ``beams``."""
    script = tmp_path / "kubectl"
    script.write_text(
        f'#!/bin/sh\necho "$*" >{tmp_path}/words\necho \'{{"items": [{{"metadata": {{"name": "beams"}}}}]}}\'\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return lambda: (tmp_path / "words").read_text().split()


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.mark.parametrize(
    "words",
    [
        ["-n", "lab", "--context=blue", "--kubeconfig=file", "services"],
        ["services", "-n", "lab", "--context=blue", "--kubeconfig=file"],
        ["-n", "shop", "--context=blue", "services", "--kubeconfig=file", "--namespace=lab"],
    ],
)
def test_cluster_and_namespace_are_chosen_before_or_after_the_subcommand(
    told: Callable[[], list[str]], words: list[str]
) -> None:
    run(*words, "-o", "json")
    assert told()[:2] == ["--context=blue", "--kubeconfig=file"]
    assert told()[-2:] == ["-n", "lab"]


@pytest.mark.parametrize("words", [["-n", "lab", "timeline"], ["timeline", "-n", "lab"]])
def test_names_are_completed_in_the_namespace_that_was_chosen(told: Callable[[], list[str]], words: list[str]) -> None:
    items = ShellComplete(cli, {}, "kubectl simyard", "_X").get_completions(words, "pool/")
    assert [item.value for item in items] == ["pool/beams"]
    assert told()[-2:] == ["-n", "lab"]
