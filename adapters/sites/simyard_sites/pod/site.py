# SPDX-License-Identifier: Apache-2.0
"""The provider ``pod``: one POST creates a pod, one DELETE ends it."""

from __future__ import annotations

import uuid

from simyard_adapter.bootstrap import remove_worker
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
from simyard_sites.kubernetes.access import check_rights, get_server_version
from simyard_sites.kubernetes.client import Json, KubeClient, build_path
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.refusals import QUOTA, Hint
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubernetes.site import KubernetesSite
from simyard_sites.pod.manifest import BOOTSTRAP_KEY, build_pod, check, read_secret_name
from simyard_sites.pod.reading import read

PODS = Resource("", "v1", "pods", "Pod")
_FIELD = "spec.provider.pod"
_SIZES = (QUOTA, "usage per Container", "usage per Pod")
"""The texts of refusals that concern the resources of a pod, which the service sets."""
HINTS = (
    Hint(
        "violates PodSecurity",
        "a webhook of the cluster changed the pod, which satisfied the standard `restricted`: exempt the namespace",
    ),
    Hint("no PriorityClass with name", f"set {_FIELD}.priorityClassName to an existing PriorityClass"),
    Hint("RuntimeClass", f"set {_FIELD}.runtimeClassName to an existing RuntimeClass"),
    Hint(
        "error looking up service account",
        f"create it, or set {_FIELD}.serviceAccountName to an existing ServiceAccount",
    ),
    Hint("being terminated", "the namespace is being deleted: create it again when it is gone"),
    Hint(
        "namespaces ",
        f"create the namespace of {_FIELD}.namespace (an immutable field: another namespace needs a new CloudSite)",
    ),
    Hint(
        "usage per Container",
        "the namespace's LimitRange does not allow spec.resources of the SimulationService: adapt one of them",
    ),
    Hint(
        "usage per Pod",
        "the namespace's LimitRange does not allow spec.resources of the SimulationService: adapt one of them",
    ),
    Hint(
        "admission webhook",
        "an admission webhook of the cluster refuses the pod: ask the administrators of the cluster for an exemption",
    ),
)


class PodSite(KubernetesSite):
    """A site of pods in one Kubernetes cluster.

    Raises:
        InvalidSpecError: The provider's settings cannot be used.
    """

    resource = PODS
    hints = HINTS

    def __init__(self, config: SiteConfig) -> None:
        super().__init__(config, "pod")
        self._provider = config.provider

    async def probe(self) -> SiteInfo:
        """Return the version of Kubernetes, after a check of all necessary rights."""
        client = await self._cluster.get_client()
        try:
            version = await get_server_version(client)
            await check_rights(client, [(rule, self._namespace) for rule in rights.PODS], "docs/sites/pod.md")
            if self._namespace:
                await self._rehearse(client)
        except ApiError as error:
            raise self._error(error) from error
        return SiteInfo(version=version)

    async def _rehearse(self, client: KubeClient) -> None:
        """Have the API server check a pod in a dry run, so that the CloudSite shows wrong settings at once."""
        name = f"simyard-rehearsal-{uuid.uuid4().hex[:8]}"
        request = MachineRequest(name, Owner(self._namespace, "rehearsal", ""), b"", image="rehearsal", cpu_millis=1)
        path = build_path(PODS, self._namespace)
        body = build_pod(request, "rehearsal", self._provider, self._labels)
        try:
            await client.request("POST", path, body=body, query={"dryRun": "All"}, resource=PODS, verb="rehearse")
        except ApiError as error:
            if not any(text in error.message for text in _SIZES):
                raise

    async def _make(self, client: KubeClient, request: MachineRequest, namespace: str) -> Machine:
        check(request)
        owner = request.owner
        data = {BOOTSTRAP_KEY: remove_worker(request.bootstrap)}
        secret = await self._secrets.ensure(client, namespace, f"simyard-{owner.pool or owner.worker}", data)
        body = build_pod(request, secret, self._provider, self._labels)
        _, machine = await self._store(client, body, request, namespace)
        return machine

    async def _start(self, client: KubeClient, machine_id: str) -> Machine:
        """Return the machine. Nothing is to be started: a pod runs as long as it exists."""
        return await self._get(client, machine_id)

    async def _suspend(self, client: KubeClient, machine_id: str) -> None:
        await self._get(client, machine_id)
        raise InvalidSpecError(
            "pods cannot be suspended: stop the worker, or use a site with virtual machines", scope=ErrorScope.ITEM
        )

    def _machine(self, item: Json) -> Machine | None:
        return read(item)

    def _secret(self, item: Json) -> str:
        return read_secret_name(item)
