# SPDX-License-Identifier: Apache-2.0
"""Pods as a real API server takes or refuses them, and the Secrets that they share."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from pod_world import IMAGE, NAMESPACES, READY_SECONDS, PodWorld, make_namespace

from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.declarations import Interface
from simyard_dev.providers import complete_pod
from simyard_sites.base import (
    ConflictError,
    ErrorScope,
    InvalidSpecError,
    Machine,
    MachineNotFoundError,
    MachineRequest,
    Owner,
    PermissionDeniedError,
    PowerAction,
    QuotaExhaustedError,
    Site,
    SiteConfig,
    SiteError,
    Snapshot,
)
from simyard_sites.kubernetes import secrets as secrets_module
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubernetes.secrets import REVISIONS, SECRETS, SharedSecrets
from simyard_sites.pod import PodSite
from simyard_sites.pod.site import PODS

pytestmark = pytest.mark.xdist_group("pod")

LIMITS = Resource("", "v1", "limitranges", "LimitRange")
EVERYTHING: dict[str, Any] = {
    "adapterImage": "registry.example.com/simyard:1",
    "imagePullPolicy": "IfNotPresent",
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"pool": "simulation"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
    "userId": 1000,
    "readOnlyRootFilesystem": True,
    "scratch": {"size": "10Gi", "storageClassName": "fast"},
    "terminationGracePeriodSeconds": 60,
    "labels": {"team": "simulation", "simyard.dev/worker": "somebody-else"},
    "annotations": {"example.com/note": "worker"},
}


def request(worker: str = "pool-0", pool: str = "pool", namespace: str = "team", **changes: Any) -> MachineRequest:
    uid = str(uuid.uuid4())
    document = Bootstrap(
        namespace=namespace,
        worker=worker,
        worker_uid=uid,
        service="service",
        pool=pool,
        broker=BrokerAddress("broker.example", 5671, "simyard", "pool", "a-password"),
        interface=Interface(),
        connector={"commands": {}},
    )
    owner = Owner(namespace, worker, uid, pool)
    made = MachineRequest(f"{worker}-{uid[:8]}", owner, document.to_bytes(), image=IMAGE, cpu_millis=250)
    return replace(made, **changes)


async def created(site: Site, *requests: MachineRequest) -> list[Machine]:
    outcomes = [outcome async for outcome in site.create(requests)]
    assert not [outcome.error for outcome in outcomes if outcome.error]
    machines = {outcome.key: outcome.machine for outcome in outcomes if outcome.machine}
    return [machines[item.name] for item in requests]


async def refused(site: Site, item: MachineRequest) -> SiteError:
    [outcome] = [outcome async for outcome in site.create([item])]
    assert outcome.error is not None
    return outcome.error


@pytest.mark.parametrize(
    "provider", [{}, {"userId": 0}, EVERYTHING], ids=["defaults", "user of the image", "everything"]
)
async def test_the_pod_is_as_restricted_as_can_be_and_holds_no_secret(
    world: PodWorld, provider: dict[str, Any]
) -> None:
    async with aclosing(world.site(**provider)) as site:
        item = request()
        await created(site, item)
        pod = await world.client.get(PODS, item.name, world.namespace)
    spec = pod["spec"]
    assert "a-password" not in str(pod)
    assert pod["metadata"]["labels"]["simyard.dev/worker"] == "pool-0"
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["resources"]["requests"] == container["resources"]["limits"]
    assert spec["containers"][0]["resources"]["limits"] == {"cpu": "250m", "memory": "512Mi"}
    environment = {entry["name"]: entry["value"] for entry in spec["containers"][0]["env"]}
    assert (environment["SIMYARD_WORKER"], environment["SIMYARD_WORKER_UID"]) == ("pool-0", item.owner.worker_uid)


async def test_the_workers_of_a_pool_share_one_immutable_secret_that_names_none_of_them(world: PodWorld) -> None:
    async with aclosing(world.site()) as site:
        items = [request("pool-0"), request("pool-1"), request("other-0", "other")]
        await created(site, *items)
        pods = [await world.client.get(PODS, item.name, world.namespace) for item in items]
    names = [pod["spec"]["volumes"][0]["secret"]["secretName"] for pod in pods]
    assert names[0] == names[1] != names[2]
    secret = await world.client.get(SECRETS, names[0], world.namespace)
    assert secret["immutable"] is True
    assert not any(item.owner.worker_uid in str(secret) for item in items)


async def test_secrets_go_when_no_pod_refers_to_them_also_those_of_an_earlier_process(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets_module, "GRACE_SECONDS", 0.0)
    async with aclosing(world.site()) as site:
        kept, goes = await created(site, request("kept-0", "kept"), request("goes-0", "goes"))
        await world.client.delete(PODS, goes.name, world.namespace)
    async with asyncio.timeout(READY_SECONDS):
        while await _exists(world.client, goes, world.namespace):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    async with aclosing(world.site()) as site, aclosing(site.events()) as events:
        first = await anext(events)
        assert isinstance(first, Snapshot)
        assert [machine.id for machine in first.machines] == [kept.id]
        later = asyncio.create_task(anext(events))  # sweeps before it waits
        await created(site, request("kept-1", "kept"))
        await later
    revisions, _ = await world.client.list_all(REVISIONS, world.namespace)
    assert [item["metadata"]["name"].rpartition("-")[0] for item in revisions] == ["simyard-kept"]


async def test_a_secret_that_is_made_anew_has_another_name_so_that_the_former_one_cannot_take_it_along(
    world: PodWorld,
) -> None:
    now = 0.0
    shared = SharedSecrets({"simyard.dev/site": "here"}, lambda: now)
    first = await shared.ensure(world.client, world.namespace, "simyard-pool", {"key": b"value"})
    assert await shared.ensure(world.client, world.namespace, "simyard-pool", {"key": b"value"}) == first
    now = 1000.0
    await shared.sweep(world.client, world.namespace)
    second = await shared.ensure(world.client, world.namespace, "simyard-pool", {"key": b"value"})
    assert second != first
    assert await shared.ensure(world.client, world.namespace, "simyard-pool", {"key": b"other"}) not in (first, second)


async def test_what_cannot_be_is_refused_with_the_field_to_change(world: PodWorld) -> None:
    bounds = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    await world.client.create(LIMITS, {"metadata": {"name": "small"}, "spec": bounds}, world.namespace)
    async with aclosing(world.site()) as site:
        for item, field in (
            (request(image=""), "spec.images.pod"),
            (request(hostname="a.b.example"), "spec.hostname"),
            (request(user_data="#cloud-config"), "spec.userData"),
            (request(ssh_public_keys=("ssh-ed25519 AAAA",)), "spec.sshPublicKeys"),
            (request(cpu_millis=2000), "spec.resources"),
        ):
            error = await refused(site, item)
            assert isinstance(error, InvalidSpecError)
            assert field in str(error)
    async with aclosing(world.site(namespace=f"{world.namespace}-absent")) as site:
        error = await refused(site, request())
        assert isinstance(error, InvalidSpecError | PermissionDeniedError)


async def test_a_quota_of_the_workers_own_namespace_is_not_the_sites(world: PodWorld) -> None:
    async with world.quota_exhausted(), aclosing(site_everywhere(world)) as site:
        error = await refused(site, request(namespace=world.namespace))
    assert isinstance(error, QuotaExhaustedError)
    assert error.scope is ErrorScope.POOL


async def test_without_a_namespace_of_its_own_pods_are_where_their_workers_are(world: PodWorld) -> None:
    other = f"{world.namespace}-other"
    await make_namespace(world.client, other)
    async with aclosing(site_everywhere(world)) as site:
        await created(site, request(namespace=world.namespace), request(namespace=other))
        assert {machine.id.partition("/")[0] for machine in await site.list_owned()} == {world.namespace, other}
    await world.client.delete(NAMESPACES, other)


async def test_a_pod_that_says_to_be_the_worker_of_another_namespace_is_no_machine(world: PodWorld) -> None:
    async with aclosing(site_everywhere(world)) as site:
        here = request(namespace=world.namespace)
        await created(site, here)
        pod = await world.client.get(PODS, here.name, world.namespace)
        labels = {**pod["metadata"]["labels"], "simyard.dev/namespace": "elsewhere"}
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        await world.client.create(
            PODS, {"metadata": {"name": "claims", "labels": labels}, "spec": spec}, world.namespace
        )
        assert [machine.name for machine in await site.list_owned()] == [here.name]


async def test_a_pod_that_took_the_name_of_one_of_ours_is_not_deleted(world: PodWorld) -> None:
    async with aclosing(world.site()) as site:
        item = request()
        [machine] = await created(site, item)
        pod = await world.client.get(PODS, item.name, world.namespace)
        immediately = {"gracePeriodSeconds": 0}
        path = f"/api/v1/namespaces/{world.namespace}/pods/{item.name}"
        await world.client.request("DELETE", path, body=immediately, resource=PODS)
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        async with asyncio.timeout(READY_SECONDS):
            while await _exists(world.client, machine, world.namespace):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        theirs = await world.client.create(PODS, {"metadata": {"name": item.name}, "spec": spec}, world.namespace)
        [outcome] = [outcome async for outcome in site.delete([machine.id])]
        assert isinstance(outcome.error, ConflictError), "it is not the one that it was"
        [outcome] = [outcome async for outcome in site.delete([machine.id])]
        assert outcome.error is None, "for this site there is none"
        [outcome] = [outcome async for outcome in site.act([machine.id], PowerAction.STOP)]
        assert isinstance(outcome.error, MachineNotFoundError)
    assert (await world.client.get(PODS, item.name, world.namespace))["metadata"]["uid"] == theirs["metadata"]["uid"]


@pytest.mark.parametrize("machine_id", ["{namespace}", "{namespace}/", "{namespace}/a/log", "", "/"])
async def test_an_id_that_is_none_does_nothing(world: PodWorld, machine_id: str) -> None:
    async with aclosing(world.site()) as site:
        [machine] = await created(site, request())
        asked = machine_id.format(namespace=world.namespace)
        [outcome] = [outcome async for outcome in site.delete([asked])]
        assert outcome.error is None
        [outcome] = [outcome async for outcome in site.get([asked])]
        assert isinstance(outcome.error, MachineNotFoundError)
        assert [found.id for found in await site.list_owned()] == [machine.id]


async def test_sites_that_share_a_namespace_share_no_secret(world: PodWorld) -> None:
    item = request()
    async with aclosing(world.site()) as site, aclosing(world.site(name="other")) as other:
        await created(site, item)
        await created(other, replace(item, name=f"{item.name}-too"))
    revisions, _ = await world.client.list_all(REVISIONS, world.namespace)
    assert {item["metadata"]["labels"]["simyard.dev/site"] for item in revisions} == {"here", "other"}


async def test_a_probe_names_the_rights_that_are_missing(world: PodWorld) -> None:
    async with world.permission_denied(), aclosing(world.site()) as site:
        with pytest.raises(PermissionDeniedError, match=r"create, delete pods in namespace [-\w]+; create secrets in"):
            await site.probe()


@pytest.mark.parametrize(
    "entry",
    [{"exec": {"command": "steal"}}, {"tokenFile": "/var/run/secrets/token"}, {"client-key": "/etc/key"}],
    ids=["program", "token file", "key file"],
)
def test_a_kubeconfig_that_runs_a_program_or_reads_a_file_of_the_operator_is_refused(entry: Json) -> None:
    document = {"users": [{"name": "u", "user": entry}], "clusters": []}
    with pytest.raises(InvalidSpecError, match=r"spec\.provider\.pod\.kubeconfigSecretRef"):
        PodSite(SiteConfig("s", complete_pod(kubeconfigSecretRef={"name": "x"}), {"kubeconfig": str(document)}))


def site_everywhere(world: PodWorld) -> Site:
    """A site in all namespaces; its account is an administrator there."""
    return PodSite(SiteConfig("all", complete_pod(), installation=world.namespace, kubeconfig=world.client.kubeconfig))


async def _exists(client: KubeClient, machine: Machine, namespace: str) -> bool:
    items, _ = await client.list_all(PODS, namespace, fields=f"metadata.name={machine.name}")
    return bool(items)
