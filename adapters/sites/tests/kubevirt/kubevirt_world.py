# SPDX-License-Identifier: Apache-2.0
"""A cluster with KubeVirt's definitions, its controllers simulated, and a front that can misbehave."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from simyard_dev.controlplane import ControlPlane
from simyard_dev.providers import complete_kubevirt
from simyard_dev.rights import wait_until_rights
from simyard_simulators.kube_front import KubeFront
from simyard_simulators.virt import Latencies, SimulatedKubeVirt
from simyard_simulators.virt.subresources import routes
from simyard_sites.base import Machine, MachineRequest, Site, SiteConfig
from simyard_sites.conformance.world import World
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.secrets import REVISIONS
from simyard_sites.kubevirt import KubevirtSite
from simyard_sites.kubevirt.vmi import VMIS

IMAGE = "registry.example.com/solver:3"
ACCOUNT = "simyard"
LATENCIES = Latencies(scheduled=0.02, running=0.02)


class KubevirtWorld(World):
    """A namespace of its own in the cluster that tests share; sites use the token of an account there."""

    deadline_seconds = 240.0
    burst = 100  # each costs the API server several more writes, because its controllers' are made as well

    def __init__(
        self, client: KubeClient, front: KubeFront, simulated: SimulatedKubeVirt, namespace: str, token: str
    ) -> None:
        self.client = client
        self.front = front
        self.simulated = simulated
        self.namespace = namespace
        self.token = token
        self._tokens: Callable[[], str] | None = None

    def site(self, installation: str = "default", name: str = "there", **provider: Any) -> Site:
        """See :class:`World`; ``provider`` is what the CloudSite says beside namespace and cluster."""
        given = {"namespace": self.namespace, "kubeconfigSecretRef": {"name": "kubevirt"}, **provider}
        credentials = {"kubeconfig": self.front.kubeconfig(self.token)}
        return KubevirtSite(
            SiteConfig(name, complete_kubevirt(**given), credentials, f"{self.namespace}-{installation}")
        )

    def request(self, request: MachineRequest) -> MachineRequest:
        """See :class:`World`."""
        return replace(request, image=IMAGE)

    def connections(self) -> int:
        """See :class:`World`."""
        return self.front.connections

    def is_own_task(self, task: asyncio.Task[object]) -> bool:
        """See :class:`World`."""
        name = getattr(task.get_coro(), "__qualname__", "")
        return name.startswith(("RequestHandler.", "SimulatedKubeVirt.", "KubeClient.", "BaseRequest"))

    async def lose_answers(self, calls: int) -> None:
        """See :class:`World`."""
        self.front.lose = calls

    async def throttle(self, calls: int, retry_after_seconds: float | None) -> None:
        """See :class:`World`."""
        self.front.throttle, self.front.retry_after_seconds = calls, retry_after_seconds

    @asynccontextmanager
    async def quota_exhausted(self) -> AsyncIterator[None]:
        """See :class:`World`: in the words of the quota plugin of kube-apiserver."""
        said = (
            'virtualmachineinstances.kubevirt.io "x" is forbidden: exceeded quota: machines, requested:'
            " count/virtualmachineinstances.kubevirt.io=1, used: 0, limited: 0"
        )
        with self.front.refusing(HTTPStatus.FORBIDDEN, "Forbidden", said):
            yield

    @asynccontextmanager
    async def permission_denied(self) -> AsyncIterator[None]:
        """See :class:`World`: in the words of kube-apiserver."""
        said = (
            'virtualmachineinstances.kubevirt.io is forbidden: User "x" cannot create resource'
            f' "virtualmachineinstances" in API group "kubevirt.io" in the namespace "{self.namespace}"'
        )
        with self.front.refusing(HTTPStatus.FORBIDDEN, "Forbidden", said):
            yield

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
        """See :class:`World`."""
        await self.simulated.fail(self.namespace, machine.name, "Failed", "the guest is gone")

    async def remove_machine(self, machine: Machine) -> None:
        """See :class:`World`."""
        await self.client.delete(VMIS, machine.name, self.namespace)

    def spoil(self, request: MachineRequest) -> MachineRequest:
        """See :class:`World`."""
        return replace(request, hostname="not_a_label!" * 8, name=f"{request.name}.!")

    def wrong_sites(self) -> Mapping[str, Callable[[], Site]]:
        """See :class:`World`."""

        def kubeconfig(text: str) -> Site:
            provider = complete_kubevirt(namespace=self.namespace, kubeconfigSecretRef={"name": "kubevirt"})
            return KubevirtSite(SiteConfig("there", provider, {"kubeconfig": text}))

        nobody = {"instancetype": {"name": "nobody-has-it"}}
        return {
            "kubeconfig": lambda: kubeconfig("{"),
            "credentials": lambda: kubeconfig(self.front.kubeconfig("wrong")),
            "instancetype": lambda: self.site(**nobody),
            "namespace": lambda: self.site(namespace=f"{self.namespace}-absent"),
        }


async def token_of(client: KubeClient, namespace: str) -> str:
    """A new token of the account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token"
    answer = await client.request("POST", path, body={"spec": {"expirationSeconds": 3600}})
    return str(answer["status"]["token"])


@asynccontextmanager
async def kubevirt_world(control_plane: ControlPlane, latencies: Latencies = LATENCIES) -> AsyncIterator[KubevirtWorld]:
    """A world for one test, whose namespace goes with it."""
    namespace, sockets = f"kubevirt-{uuid.uuid4().hex[:8]}", World().connections()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await KubeClient.connect(control_plane.kubeconfig))
        for path, body in _account(namespace):
            await client.request("POST", path, body=body)
        await wait_until_rights(client, namespace, ACCOUNT, VMIS)
        simulated = SimulatedKubeVirt(client, latencies, namespace=namespace)
        await stack.enter_async_context(simulated.running())
        front = KubeFront(control_plane.server, str(control_plane.authority), VMIS.plural, routes(simulated))
        await stack.enter_async_context(front.serving())
        world = KubevirtWorld(client, front, simulated, namespace, await token_of(client, namespace))
        yield world
        path = f"/apis/kubevirt.io/v1/namespaces/{namespace}/{VMIS.plural}"
        await client.request("DELETE", path)
        await client.request("DELETE", f"/api/v1/namespaces/{namespace}")
    with suppress(TimeoutError):
        async with asyncio.timeout(5):
            while World().connections() > sockets:  # noqa: ASYNC110 - TLS says farewell, which nobody announces
                await asyncio.sleep(0.01)


def _account(namespace: str) -> list[tuple[str, dict[str, Any]]]:
    """The namespace, and the account that has the rights of docs/sites/kubevirt.md there."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    binding = {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]}
    return [
        ("/api/v1/namespaces", {"metadata": {"name": namespace}}),
        (f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": ACCOUNT}}),
        (f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding),
    ]
