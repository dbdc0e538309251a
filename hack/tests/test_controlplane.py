# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube_api import wait_until
from simyard_dev import tools
from simyard_dev.controlplane import ControlPlane
from simyard_dev.errors import SetupError

API_SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: aggregated, namespace: default}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.aggregation.test}
spec:
  group: aggregation.test
  version: v1
  service: {name: aggregated, namespace: default, port: 1}
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 15
"""


@pytest.fixture
def own_control_plane(simyard_directory: Path, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Provide a control plane that a test may stop and kill."""
    control_plane = ControlPlane(simyard_directory / request.node.name)
    yield control_plane
    control_plane.stop(grace_seconds=0)


def run_kubectl(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kubectl = str(tools.ensure(["kubectl"])["kubectl"])
    command = [kubectl, f"--kubeconfig={kubeconfig}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_administrators_kubeconfig_stands_alone(control_plane: ControlPlane, tmp_path: Path) -> None:
    copy = tmp_path / "kubeconfig"
    copy.write_bytes(control_plane.kubeconfig.read_bytes())
    result = run_kubectl(copy, "auth", "can-i", "*", "*", "--all-namespaces")
    assert result.stdout == "yes\n"
    assert control_plane.kubeconfig.stat().st_mode & 0o777 == 0o600


def test_rbac_refuses_a_fresh_service_account(control_plane: ControlPlane, tmp_path: Path) -> None:
    control_plane.kubectl("create", "namespace", "rbac")
    control_plane.kubectl("create", "serviceaccount", "newcomer", "--namespace=rbac")
    kubeconfig = tmp_path / "kubeconfig"
    control_plane.write_service_account_kubeconfig(kubeconfig, "rbac", "newcomer")
    who = run_kubectl(kubeconfig, "auth", "whoami", "--output=jsonpath={.status.userInfo.username}")
    assert who.stdout == "system:serviceaccount:rbac:newcomer"
    refused = run_kubectl(kubeconfig, "get", "configmaps")
    assert 'cannot list resource "configmaps" in API group "" in the namespace "rbac"' in refused.stderr

    control_plane.kubectl("create", "rolebinding", "newcomer", "--namespace=rbac", "--clusterrole=view",
                          "--serviceaccount=rbac:newcomer")  # fmt: skip
    wait_until(lambda: run_kubectl(kubeconfig, "get", "configmaps").returncode == 0)


def test_an_unknown_service_account_is_named(control_plane: ControlPlane, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match='"nobody" not found'):
        control_plane.write_service_account_kubeconfig(tmp_path / "kubeconfig", "default", "nobody")


def test_what_an_owner_leaves_is_collected(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "configmap", "owner")
    uid = control_plane.kubectl("get", "configmap", "owner", "--output=jsonpath={.metadata.uid}")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    owned = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [owner]}}
    control_plane.kubectl("create", "--filename=-", stdin=json.dumps(owned))
    control_plane.kubectl("delete", "configmap", "owner")
    control_plane.kubectl("wait", "--for=delete", "configmap/owned", "--timeout=240s")


def test_a_namespace_goes_with_all_it_holds(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "namespace", "passing")
    control_plane.kubectl("create", "configmap", "content", "--namespace=passing")
    control_plane.kubectl("delete", "namespace", "passing", "--timeout=240s")


def test_an_aggregated_api_is_reached_by_an_external_name(control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "--filename=-", stdin=API_SERVICE)
    message = "--output=jsonpath={.status.conditions[?(@.type=='Available')].message}"
    wait_until(
        lambda: (
            "localhost:1" in (said := control_plane.kubectl("get", "apiservice", "v1.aggregation.test", message))
            and "connection refused" in said
        )
    )
    control_plane.kubectl("delete", "--filename=-", stdin=API_SERVICE)


def test_validating_admission_policies_are_served(control_plane: ControlPlane) -> None:
    served = control_plane.kubectl("api-resources", "--api-group=admissionregistration.k8s.io")
    assert "ValidatingAdmissionPolicy" in served


@pytest.mark.soak
def test_state_and_tokens_survive_a_restart_and_crashes(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    own_control_plane.start()
    own_control_plane.kubectl("create", "configmap", "kept")
    own_control_plane.write_service_account_kubeconfig(tmp_path / "kubeconfig", "default", "default")
    own_control_plane.stop()
    assert not own_control_plane.is_running()
    own_control_plane.start()
    assert own_control_plane.kubectl("get", "configmap", "kept", "--output=name") == "configmap/kept\n"
    assert run_kubectl(tmp_path / "kubeconfig", "auth", "whoami").returncode == 0

    for process in own_control_plane.processes:
        process.kill()
        assert not own_control_plane.is_running()
        own_control_plane.start()
        assert own_control_plane.kubectl("get", "configmap", "kept", "--output=name") == "configmap/kept\n"

    own_control_plane.start(fresh=True)
    assert "kept" not in own_control_plane.kubectl("get", "configmaps")


def test_a_second_start_adopts_what_runs(control_plane: ControlPlane) -> None:
    before = [process.identity for process in control_plane.processes]
    other = ControlPlane(control_plane.directory)
    other.start()
    assert [process.identity for process in other.processes] == before
