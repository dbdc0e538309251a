"""The provider ``pod``: one POST for each pod that is made, one DELETE for each that ends."""

from __future__ import annotations

import uuid

from simyard_adapter.bootstrap import shared
from simyard_sites.base import (
    ErrorScope,
    InvalidSpecError,
    Machine,
    MachineRequest,
    Owner,
    SiteConfig,
    SiteInfo,
)
from simyard_sites.kubernetes import rights
from simyard_sites.kubernetes.access import check_rights, server_version
from simyard_sites.kubernetes.client import Json, KubeClient, path_of
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.refusals import QUOTA, Hint
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubernetes.site import KubernetesSite
from simyard_sites.pod.manifest import BOOTSTRAP_KEY, check, pod, secret_of
from simyard_sites.pod.reading import read

PODS = Resource("", "v1", "pods", "Pod")
_FIELD = "spec.provider.pod"
_SIZES = (QUOTA, "usage per Container", "usage per Pod")
"""In refusals that are about what a pod asks for, which is the service's to say."""
HINTS = (
    Hint("violates PodSecurity", "workers keep to the standard `restricted`; something in the cluster changed the pod"),
    Hint("no PriorityClass with name", f"set {_FIELD}.priorityClassName to one that exists"),
    Hint("RuntimeClass", f"set {_FIELD}.runtimeClassName to one that exists"),
    Hint("error looking up service account", f"create it, or set {_FIELD}.serviceAccountName to one that exists"),
    Hint("being terminated", "the namespace is being deleted"),
    Hint(
        "namespaces ",
        f"create the namespace that {_FIELD}.namespace names (it is immutable: another one takes a new CloudSite)",
    ),
    Hint("usage per Container", "the namespace's LimitRange does not permit spec.resources of the SimulationService"),
    Hint("usage per Pod", "the namespace's LimitRange does not permit spec.resources of the SimulationService"),
    Hint("admission webhook", "a policy of the cluster refuses the pod"),
)


class PodSite(KubernetesSite):
    """See :class:`simyard_sites.kubernetes.site.KubernetesSite`.

    Raises:
        InvalidSpecError: the provider's settings cannot be used.
    """

    resource = PODS
    hints = HINTS

    def __init__(self, config: SiteConfig) -> None:
        super().__init__(config, "pod")
        self._provider = config.provider

    async def probe(self) -> SiteInfo:
        """See :class:`simyard_sites.base.Site`; asks whether each right that is needed is granted."""
        client = await self._cluster.client()
        try:
            version = await server_version(client)
            await check_rights(client, [(rule, self._namespace) for rule in rights.PODS], "docs/sites/pod.md")
            if self._namespace:
                await self._rehearse(client)
        except ApiError as error:
            raise self._error(error) from error
        return SiteInfo(version=version)

    async def _rehearse(self, client: KubeClient) -> None:
        """Have a pod of ours checked that is not made, so that a wrong setting is told before anybody needs one."""
        name = f"simyard-rehearsal-{uuid.uuid4().hex[:8]}"
        request = MachineRequest(name, Owner(self._namespace, "rehearsal", ""), b"", image="rehearsal", cpu_millis=1)
        path = path_of(PODS, self._namespace)
        body = pod(request, "rehearsal", self._provider, self._labels)
        try:
            await client.request("POST", path, body=body, query={"dryRun": "All"}, resource=PODS, verb="rehearse")
        except ApiError as error:
            if not any(text in error.message for text in _SIZES):
                raise

    async def _make(self, client: KubeClient, request: MachineRequest, namespace: str) -> Machine:
        check(request)
        owner = request.owner
        data = {BOOTSTRAP_KEY: shared(request.bootstrap)}
        secret = await self._secrets.ensure(client, namespace, f"simyard-{owner.pool or owner.worker}", data)
        body = pod(request, secret, self._provider, self._labels)
        _, machine = await self._store(client, body, request, namespace)
        return machine

    async def _start(self, client: KubeClient, machine_id: str) -> Machine:
        """A pod runs as long as it is there; one that was stopped is created again."""
        return await self._get(client, machine_id)

    async def _suspend(self, client: KubeClient, machine_id: str) -> None:
        await self._get(client, machine_id)
        raise InvalidSpecError(
            "a pod cannot be suspended: stop it, or use a site with virtual machines", scope=ErrorScope.ITEM
        )

    def _machine(self, item: Json) -> Machine | None:
        return read(item)

    def _secret(self, item: Json) -> str:
        return secret_of(item)
