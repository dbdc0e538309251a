# SPDX-License-Identifier: Apache-2.0
"""A site with KubeVirt in another cluster, through a whole operator.

Real: kube-apiserver with KubeVirt's definitions, RBAC, RabbitMQ, adapters. Simulated: KubeVirt's controllers. Played:
the guests (``virt_stage``).
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from operator_stack import SERVICE, Operator, Scene, Stack, condition, scene, unique, wait_until
from virt_stage import VirtStage, document_of

from simyard.api import names
from simyard.api.base import Json
from simyard_dev import kubevirt
from simyard_sites.kubernetes.resource import Resource

pytestmark = pytest.mark.xdist_group("operator")

BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
IMAGE = "registry.example.com/program:1"


@dataclass
class Virt:
    """A scene whose site makes machines in the scene's namespace; the operator has no right to do so yet."""

    scene: Scene
    stage: VirtStage

    @property
    def stack(self) -> Stack:
        return self.scene.stack

    def ready(self) -> Json:
        return condition(self.stack.get(names.CLOUD_SITES, "", self.scene.site) or {}, "Ready")

    def secrets(self) -> list[Json]:
        path = f"/api/v1/namespaces/{self.scene.namespace}/secrets"
        return list(self.stack.api.request("GET", path).body["items"])

    def events(self) -> list[Json]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.scene.namespace}/events"
        return list(self.stack.api.request("GET", path).body["items"])

    def machine_names(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.stage.machines()}

    def permit(self) -> None:
        role = {"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": names.SITE_KUBEVIRT}
        account = {"kind": "ServiceAccount", "name": names.OPERATOR, "namespace": names.SYSTEM_NAMESPACE}
        manifest = self.stack.manifest(BINDINGS, self.scene.namespace, "simyard-site-kubevirt")
        answer = self.stack.api.create({**manifest, "roleRef": role, "subjects": [account]})
        assert answer.accepted, answer.message


@pytest.fixture
def virt(stack: Stack, operator: Operator, tmp_path: Path) -> Iterator[Virt]:
    kubevirt.install(stack.control_plane)
    with scene(stack) as made, VirtStage(stack.control_plane, made.namespace, tmp_path) as stage:
        stack.patch(names.SIMULATION_SERVICES, made.namespace, SERVICE, {"spec": {"images": {"kubevirt": IMAGE}}})
        made.site = unique("virt")
        token = stack.control_plane.kubectl("create", "token", names.OPERATOR, f"--namespace={names.SYSTEM_NAMESPACE}")
        kubeconfig = base64.b64encode(stage.front.kubeconfig(token.strip()).encode()).decode()
        secret = {"apiVersion": "v1", "kind": "Secret", "data": {"kubeconfig": kubeconfig}}
        metadata = {"name": made.site, "namespace": names.SYSTEM_NAMESPACE}
        assert stack.api.create({**secret, "metadata": metadata}).accepted
        provider = {"namespace": made.namespace, "kubeconfigSecretRef": {"name": made.site}}
        stack.make(names.CLOUD_SITES, "", made.site, {"provider": {"kubevirt": provider}})
        yield Virt(made, stage)


def test_a_pool_of_machines_from_the_missing_right_to_the_last_worker(virt: Virt) -> None:
    wait_until(lambda: "create, delete virtualmachineinstances.kubevirt.io" in virt.ready().get("message", ""))
    assert virt.ready()["reason"] == "PermissionDenied"
    virt.permit()
    wait_until(lambda: virt.ready()["status"] == "True", "the site is ready")
    site = virt.stack.get(names.CLOUD_SITES, "", virt.scene.site) or {}
    assert site["status"]["version"] == "KubeVirt v1.9.0-simulated"

    virt.scene.make_pool(2)
    virt.scene.available(2)
    machines = virt.stage.machines()
    assert {item["spec"]["domain"]["firmware"]["serial"] for item in machines} == {"pool-0", "pool-1"}
    [secret] = [item for item in virt.secrets() if item["metadata"]["name"].startswith("simyard-pool-")]
    password = json.loads(document_of(secret))["broker"]["password"]
    assert password
    assert password not in json.dumps([machines, virt.events(), virt.scene.workers(), virt.scene.pool(), site])

    _leaves_its_node(virt)
    _cannot_have_its_image(virt)
    virt.stack.patch(names.WORKER_POOLS, virt.scene.namespace, "pool", {"spec": {"replicas": 0}})
    wait_until(lambda: not virt.stage.machines(), "no machine is left")


def _leaves_its_node(virt: Virt) -> None:
    """A worker whose node is drained makes way for another one."""
    before = virt.machine_names()
    leaving = sorted(before)[0]
    virt.stage.evacuate(leaving)
    wait_until(lambda: leaving not in virt.machine_names(), "the machine is gone, so that its node can be drained")
    virt.scene.available(2)
    assert len(virt.machine_names() & before) == 1, "the other one has stayed"
    wait_until(lambda: any(item["reason"] == "WorkerEvacuated" for item in virt.events()), "the pool tells why")


def _cannot_have_its_image(virt: Virt) -> None:
    """The pool says what is wrong with an image; the other worker goes on."""
    image = {"kubevirt": "registry.example.com/pull-fails:2"}
    virt.stack.patch(names.SIMULATION_SERVICES, virt.scene.namespace, SERVICE, {"spec": {"images": image}})
    wait_until(lambda: virt.scene.pool()["status"].get("failures"), "the pool tells of it")
    failure = virt.scene.pool()["status"]["failures"][-1]
    assert failure["message"].startswith("ImagePullBackOff: the image cannot be pulled: check spec.images.kubevirt")
    assert virt.scene.pool()["status"]["readyReplicas"] == 1
