# SPDX-License-Identifier: Apache-2.0
"""Output for users: the columns of ``kubectl get`` and the text of ``kubectl explain``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

from kube_api import Api, build_path
from simyard.api import names
from simyard.api.base import Json
from simyard.manifests.crds import DEFINITIONS
from simyard_dev.controlplane import ControlPlane

Kubectl = Callable[..., str]

ROWS = {
    "wpool": """\
NAME SERVICE DESIRED READY UPDATED AVAILABLE REASON          STARTING FAILED BOOT-MS REGISTERED-MS PUBLISHED-MS AGE
full beam    4       2     3       False     WorkersStarting 1        1      1200    1500          1520""",
    "wkr": """\
NAME     SERVICE   SITE      MACHINE   READY   REASON       POOL   MACHINE-ID   ADDRESS     AGE
full-0   beam      nowhere   Running   True    Registered   full   0            192.0.2.1""",
    "sact": """\
NAME   ACTION   KIND         TARGET   PERCENT   COMPLETE   FAILED   WORKER   ATTEMPTS   FAILURE        AGE
full   solve    WorkerPool   full     100       True                full-0   1          ActionFailed""",
    "simsvc": """\
NAME  AVAILABLE  REASON  VERSION  POOLS  WORKERS  READY  FRONTENDS  SEATS  TAKEN  NAME  VENDOR  AGE
full-commands  True  Published  2.20  1  4  3  1  10  4  Beam  Example""",
    "csite": """\
NAME            READY   REASON           TRUST      WORKERS   VERSION    MAX   BREAKER   BOOT-MS   CORDONED   AGE
full-emulated   True    ProbeSucceeded   External   4         emulated   40    Closed    600       true""",
    "simuse": """\
NAME   WORKERS   ACCOUNTED-UNTIL        AGE
full   4         2026-01-02T03:04:05Z""",
}


@pytest.fixture
def kubectl(control_plane: ControlPlane, tmp_path: Path) -> Kubectl:
    """Return kubectl with a cache of its own: it remembers no kinds of another control plane at the same port."""
    return partial(control_plane.kubectl, f"--cache-dir={tmp_path}")


@pytest.mark.parametrize("short_name", ROWS)
def test_get_shows_how_it_goes(api: Api, kubectl: Kubectl, namespace: str, short_name: str) -> None:
    kind = next(item.resource for item in DEFINITIONS if item.short_name == short_name)
    manifests = [
        manifest
        for file in (Path(__file__).parent / "examples").glob("*.yaml")
        for manifest in yaml.safe_load_all(file.read_text())
        if manifest["kind"] == kind.kind and "status" in manifest
    ]
    for manifest in manifests:
        if kind.namespaced:
            manifest["metadata"]["namespace"] = namespace
        created = api.create(manifest)
        assert created.accepted, created.message
        assert api.replace_status({**created.body, "status": manifest["status"]}).accepted
    name = manifests[0]["metadata"]["name"]
    try:
        shown = kubectl("get", short_name, name, "-n", namespace, "-o", "wide")
    finally:
        api.request("DELETE", build_path(manifests[0]))
    header, row = ROWS[short_name].splitlines()
    assert shown.splitlines()[0].split() == header.split()
    assert shown.splitlines()[1].split()[:-1] == row.split()


def test_all_kinds_are_in_the_category(kubectl: Kubectl, api: Api) -> None:
    listed = kubectl("api-resources", "--categories=simyard", "-o", "name").split()
    assert set(listed) == {f"{item.resource.plural}.{item.resource.group}" for item in DEFINITIONS}


def test_explain_gives_values_and_defaults(kubectl: Kubectl, api: Api) -> None:
    text = " ".join(kubectl("explain", "wpool.spec.scaleIn").split())
    assert (
        "drainSeconds <integer> Time that a worker gets to finish its actions before it is deleted; by default" in text
    )
    assert "Default: IdleFirst." in text
    assert "enum: IdleFirst, Newest, Oldest" in text


def test_a_pool_can_be_scaled_but_not_below_zero(api: Api, kubectl: Kubectl, namespace: str) -> None:
    pool: Json = {
        "apiVersion": names.API_VERSION,
        "kind": "WorkerPool",
        "metadata": {"name": "p", "namespace": namespace},
        "spec": {"serviceRef": {"name": "s"}},
    }
    created = api.create(pool)
    assert api.replace_status({**created.body, "status": {"replicas": 1, "selector": "simyard.dev/pool=p"}}).accepted
    kubectl("scale", "wpool", "p", "-n", namespace, "--replicas=7")
    scale = api.request("GET", f"{build_path(pool)}/scale").body
    assert (scale["spec"]["replicas"], scale["status"]["selector"]) == (7, "simyard.dev/pool=p")
    answer = api.request("PUT", f"{build_path(pool)}/scale", {**scale, "spec": {"replicas": -1}})
    assert answer.status == 422
    assert "spec.replicas" in answer.message


def test_workers_can_be_selected_by_site(api: Api, kubectl: Kubectl, namespace: str) -> None:
    for name, site in (("a", "here"), ("b", "there")):
        worker: Json = {
            "apiVersion": names.API_VERSION,
            "kind": "Worker",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"serviceRef": {"name": "s"}, "site": site},
        }
        assert api.create(worker).accepted
    selected = kubectl("get", "wkr", "-n", namespace, "--field-selector=spec.site=there", "-o", "name")
    assert selected.split() == ["worker.simyard.dev/b"]
