# SPDX-License-Identifier: Apache-2.0
"""What is particular to KubeVirt, against a real API server with its definitions; its controllers are simulated."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from kubevirt_world import IMAGE, KubevirtWorld
from prometheus_client import REGISTRY

from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.declarations import Interface
from simyard_dev.controlplane import ControlPlane
from simyard_dev.providers import complete_kubevirt
from simyard_simulators.kube_front import KubeFront
from simyard_sites.base import (
    InvalidSpecError,
    Machine,
    MachineRequest,
    Outcome,
    Owner,
    PermissionDeniedError,
    Site,
    SiteConfig,
)
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import NotFoundError
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubevirt import KubevirtSite
from simyard_sites.kubevirt.vmi import DATA_VOLUMES, VMIS

pytestmark = pytest.mark.xdist_group("kubevirt")

GONE_SECONDS = 240.0
PASSWORD = "a-password-that-nobody-may-read"
DISK = {"rootDisk": {"dataVolume": {"size": "1Gi", "dataSource": {"namespace": "golden"}}}}
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
FREE = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


def request(count: int = 0, **asked: Any) -> MachineRequest:
    uid = str(uuid.uuid4())
    broker = BrokerAddress("127.0.0.1", 5671, "/", "pool", PASSWORD)
    worker = f"pool-{count}"
    document = Bootstrap("ns", worker, uid, "service", "pool", broker, Interface(), {}).to_bytes()
    return MachineRequest(f"{worker}-{uid[:8]}", Owner("ns", worker, uid, "pool"), document, image=IMAGE, **asked)


async def create(site: Site, *requests: MachineRequest) -> list[Outcome]:
    return [outcome async for outcome in site.create(requests)]


def sent(verb: str, resource: Resource) -> float:
    labels = {"verb": verb, "resource": resource.plural}
    found = [REGISTRY.get_sample_value("simyard_kube_requests_total", {**labels, "code": str(c)}) for c in range(600)]
    return sum(filter(None, found))


@pytest.fixture
async def site(world: KubevirtWorld) -> AsyncIterator[Site]:
    made = world.site()
    yield made
    await made.aclose()


async def test_a_machine_is_one_write_and_a_pool_one_secret_that_its_machines_do_not_tell(
    world: KubevirtWorld, site: Site
) -> None:
    before = sent("post", VMIS)
    requests = [request(count) for count in range(5)]
    assert all(outcome.error is None for outcome in await create(site, *requests))
    assert sent("post", VMIS) == before + 5
    secrets, _ = await world.client.list_all(Resource("", "v1", "secrets", "Secret"), world.namespace)
    assert len([item for item in secrets if item["metadata"]["name"].startswith("simyard-pool-")]) == 1
    machines, _ = await world.client.list_all(VMIS, world.namespace)
    assert PASSWORD not in json.dumps(machines)
    async for outcome in site.delete([f"{world.namespace}/{item.name}" for item in requests]):
        assert outcome.error is None


async def test_workers_with_their_own_user_data_do_not_share_a_secret(world: KubevirtWorld, site: Site) -> None:
    await create(site, request(0), request(1, user_data="#cloud-config\n{}"), request(2))
    machines, _ = await world.client.list_all(VMIS, world.namespace)
    named = [item["spec"]["volumes"][1]["cloudInitNoCloud"]["secretRef"]["name"] for item in machines]
    assert len(set(named)) == 2


async def test_an_instance_type_is_read_and_written_out(world: KubevirtWorld) -> None:
    path = f"/apis/instancetype.kubevirt.io/v1beta1/namespaces/{world.namespace}/virtualmachineinstancetypes"
    spec = {"cpu": {"guest": 3}, "memory": {"guest": "3Gi"}}
    kind = {"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype"}
    await world.client.request("POST", path, body={**kind, "metadata": {"name": "three"}, "spec": spec})
    site = world.site(instancetype={"kind": "VirtualMachineInstancetype", "name": "three"})
    try:
        [outcome] = await create(site, asked := request())
        assert outcome.error is None
    finally:
        await site.aclose()
    stored = await world.client.get(VMIS, asked.name, world.namespace)
    assert stored["spec"]["domain"]["cpu"] == {"sockets": 3, "cores": 1, "threads": 1}
    assert stored["metadata"]["annotations"]["kubevirt.io/instancetype-name"] == "three"


async def test_the_missing_right_is_named(world: KubevirtWorld, site: Site) -> None:
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}/rolebindings"
    await world.client.request("DELETE", path)
    with pytest.raises(PermissionDeniedError, match=r"create, delete virtualmachineinstances\.kubevirt\.io in namesp"):
        await site.probe()


async def test_a_name_that_somebody_else_has_is_not_taken_over(world: KubevirtWorld, site: Site) -> None:
    mine = request()
    [outcome] = await create(site, mine)
    assert outcome.error is None
    theirs = replace(mine, owner=replace(mine.owner, worker_uid=str(uuid.uuid4())))
    [outcome] = await create(site, theirs)
    assert isinstance(outcome.error, InvalidSpecError)
    assert "belongs to another owner" in str(outcome.error)


@pytest.fixture
async def disks(world: KubevirtWorld) -> AsyncIterator[KubeClient]:
    """A stand-in for CDI's definition of DataVolumes: any content, and nobody who makes disks."""
    names = {"kind": DATA_VOLUMES.kind, "plural": DATA_VOLUMES.plural, "singular": "datavolume"}
    version = {"name": DATA_VOLUMES.version, "served": True, "storage": True, "schema": FREE}
    name = f"{DATA_VOLUMES.plural}.{DATA_VOLUMES.group}"
    spec = {"group": DATA_VOLUMES.group, "scope": "Namespaced", "names": names, "versions": [version]}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": DEFINITIONS.kind, "metadata": {"name": name}, "spec": spec}
    await world.client.create(DEFINITIONS, body)
    await until_served(world.client)
    yield world.client
    await world.client.delete(DEFINITIONS, name)
    async with asyncio.timeout(GONE_SECONDS):
        while await exists(world.client, name):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def exists(client: KubeClient, name: str) -> bool:
    """Return whether a definition is there, perhaps only until it is deleted."""
    try:
        await client.get(DEFINITIONS, name)
    except NotFoundError:
        return False
    return True


async def until_served(client: KubeClient) -> None:
    while True:
        try:
            await client.list_all(DATA_VOLUMES, "default")
        except NotFoundError:
            continue
        return


async def test_without_cdi_it_is_said_which_setting_needs_it(world: KubevirtWorld) -> None:
    site = world.site(**DISK)
    try:
        [outcome] = await create(site, request())
        with pytest.raises(InvalidSpecError, match=r"spec\.provider\.kubevirt\.rootDisk\.dataVolume"):
            await site.probe()
    finally:
        await site.aclose()
    assert isinstance(outcome.error, InvalidSpecError)
    assert "spec.provider.kubevirt.rootDisk.dataVolume" in str(outcome.error)


async def test_an_instance_type_that_is_not_there_is_named_by_the_probe(world: KubevirtWorld) -> None:
    site = world.site(instancetype={"kind": "VirtualMachineInstancetype", "name": "nobody-has-it"})
    try:
        with pytest.raises(InvalidSpecError, match=r"spec\.provider\.kubevirt\.instancetype: .* nobody-has-it"):
            await site.probe()
    finally:
        await site.aclose()


async def test_a_cluster_without_kubevirt_is_told_from_one_that_does_not_answer(
    world: KubevirtWorld, kubevirt_control_plane: ControlPlane
) -> None:
    async def absent(_: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text="404 page not found\n")

    given = kubevirt_control_plane
    front = KubeFront(given.server, str(given.authority), VMIS.plural, (("GET", "/apis/kubevirt.io/v1", absent),))
    async with front.serving():
        credentials = {"kubeconfig": front.kubeconfig(world.token)}
        provider = complete_kubevirt(namespace=world.namespace, kubeconfigSecretRef={"name": "there"})
        site = KubevirtSite(SiteConfig("there", provider, credentials))
        try:
            with pytest.raises(InvalidSpecError, match="KubeVirt is not installed in the cluster"):
                await site.probe()
        finally:
            await site.aclose()


async def test_a_machine_whose_disk_was_forgotten_gets_it(world: KubevirtWorld, disks: KubeClient) -> None:
    world.simulated.latencies = replace(world.simulated.latencies, scheduling=3600)
    site = world.site(**DISK)
    try:
        [outcome] = await create(site, asked := request())
        assert outcome.error is None
        made = await disks.get(DATA_VOLUMES, asked.name, world.namespace)
        assert made["spec"]["sourceRef"] == {"kind": "DataSource", "namespace": "golden", "name": "solver"}
        await disks.delete(DATA_VOLUMES, asked.name, world.namespace)
        events = site.events()
        await anext(events)  # the snapshot; what follows on it is done before the next event
        await create(site, request(1))
        await anext(events)
        await events.aclose()
    finally:
        await site.aclose()
    again = await disks.get(DATA_VOLUMES, asked.name, world.namespace)
    assert again["metadata"]["ownerReferences"][0]["kind"] == VMIS.kind


async def test_an_evacuated_machine_says_so(world: KubevirtWorld, site: Site) -> None:
    [outcome] = await create(site, asked := request())
    assert outcome.machine is not None
    machine = await told(site, lambda seen: seen.state == "Running")
    await world.simulated.evacuate(world.namespace, asked.name)
    machine = await told(site, lambda seen: bool(seen.evacuate))
    assert machine.evacuate.startswith("node node-")


async def told(site: Site, wanted: Any) -> Machine:
    events = site.events()
    try:
        async for event in events:
            for machine in getattr(event, "machines", None) or [getattr(event, "machine", None)]:
                if machine is not None and wanted(machine):
                    return machine
    finally:
        await events.aclose()
    raise AssertionError("the stream does not end")
