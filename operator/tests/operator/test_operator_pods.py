# SPDX-License-Identifier: Apache-2.0
"""A site of pods, through a whole operator with the rights of docs/sites/pod.md.

A real kube-apiserver that enforces the Pod Security Standard ``restricted``, RabbitMQ, adapter processes. Played: the
kubelet (``pod_kubelet``).
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from operator_stack import SERVICE, Operator, Scene, Stack, condition, scene, unique, wait_until
from pod_kubelet import Kubelet

import adapter_tree
from simyard.api import names
from simyard.api.base import Json
from simyard_sites.kubernetes.resource import Resource

pytestmark = pytest.mark.xdist_group("operator")

PODS = Resource("", "v1", "pods", "Pod")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
IMAGE = "registry.example.com/program:1"


@pytest.fixture
def world(stack: Stack, operator: Operator, tmp_path: Path) -> Iterator[Scene]:
    """A scene whose site makes pods in the scene's namespace; the operator has no right to do so yet."""
    with scene(stack) as made:
        label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
        stack.patch(NAMESPACES, "", made.namespace, label)
        stack.patch(names.SIMULATION_SERVICES, made.namespace, SERVICE, {"spec": {"images": {"pod": IMAGE}}})
        made.site = unique("pods")
        spec = {"provider": {"pod": {"namespace": made.namespace, "terminationGracePeriodSeconds": 5}}}
        stack.make(names.CLOUD_SITES, "", made.site, spec)
        adapter_tree.write_tree(tmp_path / "image")
        with Kubelet(stack.control_plane.kubeconfig, made.namespace, tmp_path / "pods", tmp_path / "image"):
            yield made


def site_ready(world: Scene) -> Json:
    return condition(world.stack.get(names.CLOUD_SITES, "", world.site) or {}, "Ready")


def permit(world: Scene) -> None:
    role = {"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": names.SITE_PODS}
    account = {"kind": "ServiceAccount", "name": names.OPERATOR, "namespace": names.SYSTEM_NAMESPACE}
    manifest = world.stack.manifest(BINDINGS, world.namespace, "simyard-site-pod")
    answer = world.stack.api.create({**manifest, "roleRef": role, "subjects": [account]})
    assert answer.accepted, answer.message


def list_pods(world: Scene) -> list[Json]:
    return list(world.stack.api.request("GET", f"/api/v1/namespaces/{world.namespace}/pods").body["items"])


def worker(world: Scene, name: str) -> Json:
    return world.stack.get(names.WORKERS, world.namespace, name) or {}


def test_a_pool_of_pods_from_the_missing_right_to_the_last_worker(world: Scene) -> None:
    missing = re.compile(r"lacks the rights: .*\bcreate\b.* pods in namespace")
    wait_until(lambda: missing.search(site_ready(world).get("message", "")), "the missing right is named")
    assert site_ready(world)["reason"] == "PermissionDenied"
    permit(world)
    wait_until(lambda: site_ready(world)["status"] == "True", "the site is ready")

    world.make_pool(2)
    world.available(2)
    pods = {item["metadata"]["labels"]["simyard.dev/worker"]: item for item in list_pods(world)}
    assert pods.keys() == {"pool-0", "pool-1"}
    secrets = {item["spec"]["volumes"][0]["secret"]["secretName"] for item in pods.values()}
    assert len(secrets) == 1, "the workers of a pool share one Secret"
    for name, item in pods.items():
        found = worker(world, name)
        assert item["metadata"]["name"] == f"{name}-{found['metadata']['uid'][:8]}"
        assert found["status"]["machineId"] == f"{world.namespace}/{item['metadata']['name']}"
        assert found["status"]["addresses"] == [{"address": "10.0.0.7", "interface": "eth0"}]
        assert item["spec"]["containers"][0]["image"] == IMAGE
    _stops_and_starts(world)
    _restarts(world)
    _is_replaced_when_evicted(world)
    world.stack.patch(names.WORKER_POOLS, world.namespace, "pool", {"spec": {"replicas": 0}})
    wait_until(lambda: not list_pods(world), "no pod is left")


def test_an_init_container_brings_the_adapter_into_an_image_that_has_none(world: Scene) -> None:
    permit(world)
    change = {"spec": {"provider": {"pod": {"adapterImage": "registry.example.com/simyard:1"}}}}
    world.stack.patch(names.CLOUD_SITES, "", world.site, change)
    world.make_pool(1)
    world.available(1)
    [pod] = list_pods(world)
    assert pod["spec"]["containers"][0]["command"][:2] == ["python3", "/opt/simyard-adapter"]
    assert pod["spec"]["initContainers"][0]["image"] == "registry.example.com/simyard:1"


def _stops_and_starts(world: Scene) -> None:
    uid = worker(world, "pool-0")["metadata"]["uid"]
    world.stack.patch(names.WORKERS, world.namespace, "pool-0", {"spec": {"powerState": "Stopped"}})
    wait_until(lambda: len(list_pods(world)) == 1, "the pod of a stopped worker is gone")
    wait_until(lambda: condition(worker(world, "pool-0"), "Ready")["reason"] == "Stopped")
    assert worker(world, "pool-0")["status"]["machineState"] == "Stopped"
    world.stack.patch(names.WORKERS, world.namespace, "pool-0", {"spec": {"powerState": "Running"}})
    world.available(2)
    assert worker(world, "pool-0")["metadata"]["uid"] == uid
    wait_until(lambda: len(list_pods(world)) == 2, "its pod is there again")


def _restarts(world: Scene) -> None:
    def pod_of() -> set[str]:
        label = "simyard.dev/worker"
        return {item["metadata"]["uid"] for item in list_pods(world) if item["metadata"]["labels"][label] == "pool-1"}

    before, uid = pod_of(), worker(world, "pool-1")["metadata"]["uid"]
    world.stack.patch(names.WORKERS, world.namespace, "pool-1", {"spec": {"restarts": 1}})
    wait_until(lambda: len(pod_of()) == 1 and not pod_of() & before, "there is another pod of the same worker")
    world.available(2)
    assert worker(world, "pool-1")["metadata"]["uid"] == uid
    assert worker(world, "pool-1")["status"]["restarts"] == 1


def _is_replaced_when_evicted(world: Scene) -> None:
    uid = worker(world, "pool-1")["metadata"]["uid"]
    name = f"pool-1-{uid[:8]}"
    answer = world.stack.api.request(
        "PATCH",
        f"/api/v1/namespaces/{world.namespace}/pods/{name}/status",
        {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}},
        media="application/merge-patch+json",
    )
    assert answer.accepted, answer.message
    wait_until(lambda: worker(world, "pool-1").get("metadata", {}).get("uid", uid) != uid, "the worker is replaced")
    wait_until(lambda: world.pool()["status"].get("failures"), "the pool tells of it")
    [failure] = world.pool()["status"]["failures"]
    assert failure["worker"] == "pool-1"
    assert failure["message"] == "Evicted: The node was low on resource: memory."
    world.available(2)
