# SPDX-License-Identifier: Apache-2.0
"""``kubectl simyard licences``, asked of a real API server by the real kubectl."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from kube_api import Api, wait_until
from simyard.api import names
from simyard.api.base import Json
from simyard.cli.app import cli
from simyard.manifests import install
from simyard_dev.controlplane import ControlPlane
from simyard_dev.tools import ensure

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Api:
    api = Api(control_plane.kubeconfig)
    api.install(install.build_objects())
    return api


@pytest.fixture
def run(control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command as the administrator, or as a ``user``."""
    monkeypatch.setenv("PATH", f"{ensure(['kubectl'])['kubectl'].parent}", prepend=os.pathsep)

    def run(*words: str, user: str = "") -> Result:
        config = yaml.safe_load(control_plane.kubeconfig.read_text())
        if user:
            config["users"][0]["user"]["as"] = user
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        return CliRunner().invoke(cli, ["licences", f"--kubeconfig={kubeconfig}", *words])

    return run


@pytest.fixture
def licence(api: Api) -> Iterator[str]:
    """A Licence of 40 seats, of which 5 namespaces hold 22."""
    manifest: Json = {
        "apiVersion": names.API_VERSION,
        "kind": names.LICENCES.kind,
        "metadata": {"name": f"fem-{secrets.token_hex(4)}"},
        "spec": {"seats": 40, "allowedNamespaces": {"from": "Selected", "names": ["a", "b"]}},
    }
    stored = api.create(manifest)
    assert stored.accepted, stored.message
    held = (("a", 10), ("b", 5), ("c", 4), ("d", 2), ("e", 1))
    holders = [{"name": name, "used": used} for name, used in held]
    status = {"observedGeneration": 1, "services": 6, "used": 22, "waiting": 3, "namespaces": holders}
    answer = api.replace_status({**stored.body, "status": status})
    assert answer.accepted, answer.message
    name: str = stored.body["metadata"]["name"]
    yield name
    api.request("DELETE", f"/apis/{names.API_VERSION}/licences/{name}")


def row(result: Result, name: str) -> dict[str, str]:
    assert result.exit_code == 0, result.output
    header, *rows = [line.split() for line in result.stdout.splitlines()]
    return dict(zip(header, next(found for found in rows if found[0] == name), strict=True))


def test_a_row_says_what_is_taken_and_free_and_who_holds_it(run: Run, licence: str) -> None:
    shown = row(run(), licence)
    shown.pop("AGE")
    assert shown == {
        "NAME": licence, "SEATS": "40", "TAKEN": "22", "FREE": "18", "WAITING": "3", "HELD-BY": "a=10,b=5,c=4,others=3",
    }  # fmt: skip


def test_wide_names_every_namespace_and_what_is_permitted(run: Run, licence: str) -> None:
    shown = row(run("-o", "wide"), licence)
    assert shown["HELD-BY"] == "a=10,b=5,c=4,d=2,e=1"
    assert (shown["SERVICES"], shown["OPEN-TO"], shown["MAX-PER-NAMESPACE"]) == ("6", "a,b", "<none>")


def test_json_is_a_list_of_the_objects(run: Run, licence: str) -> None:
    listed = json.loads(run("-o", "json").stdout)
    assert licence in {item["metadata"]["name"] for item in listed["items"]}


def test_more_seats_taken_than_there_are_leave_none_free(api: Api, run: Run, licence: str) -> None:
    path = f"/apis/{names.API_VERSION}/licences/{licence}"
    assert api.request("PATCH", path, {"spec": {"seats": 20}}, media="application/merge-patch+json").accepted
    shown = row(run(), licence)
    assert (shown["SEATS"], shown["TAKEN"], shown["FREE"]) == ("20", "22", "0")


def test_a_user_without_the_right_is_told_what_to_do(api: Api, run: Run, licence: str) -> None:
    user = f"user-{secrets.token_hex(4)}"
    api.bind(user, "default", "ClusterRole", "simyard-view")
    refused = run(user=user)
    assert refused.exit_code == 1
    assert f'User "{user}" cannot list resource "licences"' in refused.stderr
    assert "ask the platform team for a ClusterRoleBinding to simyard-view" in refused.stderr
    assert licence not in refused.output

    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "simyard-view"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
    }
    api.install([binding])
    wait_until(lambda: run(user=user).exit_code == 0)
    assert row(run(user=user), licence)["TAKEN"] == "22"
    api.request("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{user}")
