# SPDX-License-Identifier: Apache-2.0
"""Namespaces of a real API server as sites for pods, with kwok as the kubelet of all nodes."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from simyard_dev import tools
from simyard_dev.controlplane import ControlPlane
from simyard_dev.files import locked
from simyard_dev.processes import Process
from simyard_dev.providers import complete_pod
from simyard_dev.rights import wait_until_rights
from simyard_simulators.kube_front import KubeFront
from simyard_sites.base import Machine, MachineRequest, Site, SiteConfig
from simyard_sites.conformance.world import World
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.errors import NotFoundError
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubernetes.secrets import REVISIONS
from simyard_sites.pod import PodSite
from simyard_sites.pod.site import PODS

IMAGE = "registry.example.com/solver:3"
ACCOUNT = "simyard"
NODES = 4
READY_SECONDS = 240.0
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


class Nodes:
    """kwok and kube-scheduler beside a control plane; they end with the test run."""

    def __init__(self, directory: Path, plane: ControlPlane) -> None:
        self._directory = directory
        self._plane = plane
        self._kwok, self._scheduler = Process(directory, "kwok"), Process(directory, "kube-scheduler")

    def start(self) -> None:
        with locked(self._directory.with_name("nodes.lock")):
            if self._kwok.is_alive() and self._scheduler.is_alive():
                return
            self._directory.mkdir(parents=True, exist_ok=True)
            programs = tools.ensure(["kwok", "kube-scheduler"])
            config = f"--kubeconfig={self._plane.kubeconfig}"
            self._kwok.start([programs["kwok"], config, "--manage-all-nodes", "--node-lease-duration-seconds=40"])
            quick = ["--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=2000"]
            self._scheduler.start([programs["kube-scheduler"], config, *quick])
            items = [_node(number) for number in range(NODES)]
            self._plane.kubectl(
                "apply", "--filename=-", stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": items})
            )
            for item in items:
                # Every new node is tainted as not ready, and the controller that takes that away does not run.
                self._plane.kubectl(
                    "patch", "node", item["metadata"]["name"], "--type=merge", '--patch={"spec":{"taints":null}}'
                )


class PodWorld(World):
    """A namespace of its own in the cluster that tests share; sites use the token of an account there."""

    burst = 200

    def __init__(self, client: KubeClient, front: KubeFront, namespace: str, token: str) -> None:
        self.client = client
        self.front = front
        self.namespace = namespace
        self.token = token

    def site(self, installation: str = "default", name: str = "here", **provider: Any) -> PodSite:
        """See :class:`World`; ``provider`` is what the CloudSite says beside namespace and cluster."""
        given = {"namespace": self.namespace, "kubeconfigSecretRef": {"name": "cluster"}, **provider}
        credentials = {"kubeconfig": self.front.kubeconfig(self.token)}
        return PodSite(SiteConfig(name, complete_pod(**given), credentials, f"{self.namespace}-{installation}"))

    def request(self, request: MachineRequest) -> MachineRequest:
        """See :class:`World`: pods refuse user data."""
        return replace(request, image=IMAGE, user_data="", ssh_public_keys=())

    def connections(self) -> int:
        """See :class:`World`."""
        return self.front.connections

    def is_own_task(self, task: asyncio.Task[object]) -> bool:
        """See :class:`World`."""
        return getattr(task.get_coro(), "__qualname__", "").startswith(("RequestHandler.", "BaseRequest"))

    async def lose_answers(self, calls: int) -> None:
        """See :class:`World`."""
        self.front.lose = calls

    async def throttle(self, calls: int, retry_after_seconds: float | None) -> None:
        """See :class:`World`."""
        self.front.throttle, self.front.retry_after_seconds = calls, retry_after_seconds

    @asynccontextmanager
    async def quota_exhausted(self) -> AsyncIterator[None]:
        """See :class:`World`: a ResourceQuota."""
        body = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
        await self.client.create(QUOTAS, body, self.namespace)
        async with asyncio.timeout(READY_SECONDS):
            while not (await self.client.get(QUOTAS, "none", self.namespace)).get("status", {}).get("hard"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield
        await self.client.delete(QUOTAS, "none", self.namespace)

    @asynccontextmanager
    async def permission_denied(self) -> AsyncIterator[None]:
        """See :class:`World`: a role that lets it look only."""
        binding = await self.client.get(BINDINGS, ACCOUNT, self.namespace)
        await self._bind("view", binding)
        yield
        await self._bind(binding["roleRef"]["name"], binding)

    async def _bind(self, role: str, binding: Json) -> None:
        await self.client.delete(BINDINGS, ACCOUNT, self.namespace)
        body = {"metadata": {"name": ACCOUNT}, "roleRef": {**binding["roleRef"], "name": role}}
        await self.client.create(BINDINGS, {**body, "subjects": binding["subjects"]}, self.namespace)
        await wait_until_rights(self.client, self.namespace, ACCOUNT, PODS, allowed=role != "view")

    async def expire_credentials(self) -> None:
        """See :class:`World`."""
        self.front.expire(self.token)
        self.token = await token_of(self.client, self.namespace)

    def unreachable(self) -> AbstractAsyncContextManager[None]:
        """See :class:`World`."""
        return self.front.unreachable()

    def events_lost(self) -> AbstractAsyncContextManager[None]:
        """See :class:`World`."""
        return self.front.blind()

    async def leftovers(self) -> Collection[str]:
        """See :class:`World`: Secrets go with the revisions that own them, and by a controller that does not run."""
        revisions, _ = await self.client.list_all(REVISIONS, self.namespace)
        return [item["metadata"]["name"] for item in revisions]

    async def fail_machine(self, machine: Machine) -> None:
        """See :class:`World`: as a kubelet does that runs out of memory."""
        status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
        await self.client.patch(PODS, machine.name, {"status": status}, self.namespace, subresource="status")

    async def remove_machine(self, machine: Machine) -> None:
        """See :class:`World`."""
        await self.client.delete(PODS, machine.name, self.namespace)

    def spoil(self, request: MachineRequest) -> MachineRequest:
        """See :class:`World`."""
        return replace(request, image=" no image ")

    def wrong_sites(self) -> Mapping[str, Callable[[], Site]]:
        """See :class:`World`."""

        def kubeconfig(text: str) -> Site:
            provider = complete_pod(namespace=self.namespace, kubeconfigSecretRef={"name": "cluster"})
            return PodSite(SiteConfig("here", provider, {"kubeconfig": text}))

        return {
            "spec.provider.pod.kubeconfigSecretRef": lambda: kubeconfig("{"),
            "credentials": lambda: kubeconfig(self.front.kubeconfig("wrong")),
            "spec.provider.pod.priorityClassName": lambda: self.site(priorityClassName="nobody-has-it"),
            "spec.provider.pod.runtimeClassName": lambda: self.site(runtimeClassName="nobody-has-it"),
            "spec.provider.pod.serviceAccountName": lambda: self.site(serviceAccountName="nobody-has-it"),
        }


async def token_of(client: KubeClient, namespace: str) -> str:
    """A new token of the account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token"
    answer = await client.request("POST", path, body={"spec": {"expirationSeconds": 3600}})
    return str(answer["status"]["token"])


@asynccontextmanager
async def pod_world(plane: ControlPlane) -> AsyncIterator[PodWorld]:
    """A world for one test, whose namespace goes with it."""
    namespace = f"pods-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await KubeClient.connect(plane.kubeconfig))
        await make_namespace(client, namespace)
        await client.create(ACCOUNTS, {"metadata": {"name": ACCOUNT}}, namespace)
        role = {"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
        await client.create(
            BINDINGS, {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]}, namespace
        )
        await wait_until_rights(client, namespace, ACCOUNT, PODS)
        front = KubeFront(plane.server, str(plane.authority), PODS.plural)
        await stack.enter_async_context(front.serving())
        yield PodWorld(client, front, namespace, await token_of(client, namespace))
        await client.delete(NAMESPACES, namespace)


async def make_namespace(client: KubeClient, namespace: str) -> None:
    """Make a namespace with the Pod Security Standard ``restricted``, and wait until pods can be made in it."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await client.create(NAMESPACES, {"metadata": {"name": namespace, "labels": labels}})
    async with asyncio.timeout(READY_SECONDS):
        while True:
            try:
                await client.get(ACCOUNTS, "default", namespace)
                return
            except NotFoundError:
                await asyncio.sleep(0.05)


def _node(number: int) -> Json:
    name = f"node-{number}"
    resources = {"cpu": "1000", "memory": "1Ti", "pods": "2000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": resources, "allocatable": resources},
    }
