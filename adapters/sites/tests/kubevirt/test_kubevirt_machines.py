# SPDX-License-Identifier: Apache-2.0
"""What is asked of KubeVirt, checked by the definitions that it installs: no unknown field, nothing of a wrong type."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard_dev import kubevirt
from simyard_dev.controlplane import ControlPlane
from simyard_dev.providers import complete_kubevirt
from simyard_sites.base import InvalidSpecError, MachineRequest, Owner
from simyard_sites.kubernetes.client import Json, KubeClient
from simyard_sites.kubevirt.instancetype import apply_instancetype, parse_bytes
from simyard_sites.kubevirt.settings import Settings
from simyard_sites.kubevirt.vmi import build_data_volume, build_machine_instance, make_disk_name

UID = "0b0dd0f2-4d3b-4d4e-8d6f-54f5a9fd7a0c"
SECRET = "simyard-pool-1"
EVERYTHING = {
    "rootDisk": {"containerDisk": {"imagePullPolicy": "IfNotPresent", "imagePullSecret": "registry"}},
    "network": {"pod": True, "multus": ["fast", "other/slow"]},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "simulation", "operator": "Exists", "effect": "NoSchedule"}],
    "priorityClassName": "simulation",
    "terminationGracePeriodSeconds": 5,
}


def request(**asked: Any) -> MachineRequest:
    owner = Owner("research", "pool-0", UID, "pool")
    given = {"image": "registry.example.com/solver:3", "cores": 2, "memory_mib": 2048, **asked}
    return MachineRequest(f"pool-0-{UID[:8]}", owner, b"{}", **given)


def machine(provider: Json | None = None, **asked: Any) -> Json:
    settings = Settings.from_provider(complete_kubevirt(**provider or {}))
    return build_machine_instance(request(**asked), "machines", {"a": "b"}, SECRET, settings)


@pytest.fixture(scope="session")
def bundles() -> kubevirt.KubeVirtRelease:
    return kubevirt.release()


@pytest.fixture
async def client(kubevirt_control_plane: ControlPlane) -> AsyncIterator[KubeClient]:
    async with await KubeClient.connect(kubevirt_control_plane.kubeconfig) as client:
        yield client


async def accepted(client: KubeClient, body: Json) -> Json:
    """As the API server would store it."""
    path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
    body = {**body, "metadata": {**body["metadata"], "namespace": "default", "name": f"m-{uuid.uuid4().hex}"}}
    return await client.request("POST", path, body=body, query={"dryRun": "All", "fieldValidation": "Strict"})


@pytest.mark.xdist_group("kubevirt")
@pytest.mark.parametrize("provider", [{}, EVERYTHING, {"network": {"pod": False, "multus": ["fast"]}}])
async def test_the_api_server_knows_every_field(client: KubeClient, provider: Json) -> None:
    asked = machine(provider)
    assert (await accepted(client, asked))["spec"] == asked["spec"]


@pytest.mark.xdist_group("kubevirt")
async def test_every_instance_type_and_preference_of_kubevirt_can_be_written_out(
    client: KubeClient, bundles: kubevirt.KubeVirtRelease
) -> None:
    plain = machine({"preference": {"name": "x"}})
    for instancetype in bundles.instancetypes:
        asked = apply_instancetype(plain, instancetype, None)
        assert (await accepted(client, asked))["spec"] == asked["spec"]
    largest = max(bundles.instancetypes, key=lambda item: parse_bytes(item["spec"]["memory"]["guest"]))
    for preference in bundles.preferences:
        asked = apply_instancetype(plain, largest, preference)
        assert (await accepted(client, asked))["spec"] == asked["spec"]


def test_the_guest_knows_who_it_is_from_its_firmware_and_no_secret_is_in_the_object() -> None:
    made = machine(hostname="solver-7.example.com")
    assert made["spec"]["domain"]["firmware"] == {"uuid": UID, "serial": "pool-0"}
    assert made["spec"]["hostname"] == "solver-7"
    [seed] = [item for item in made["spec"]["volumes"] if "cloudInitNoCloud" in item]
    assert seed["cloudInitNoCloud"] == {"secretRef": {"name": SECRET}}
    assert made["spec"]["evictionStrategy"] == "External"


def test_a_machine_has_the_cores_and_the_memory_of_its_service_to_itself() -> None:
    domain = machine()["spec"]["domain"]
    assert (domain["cpu"], domain["memory"]) == ({"cores": 2}, {"guest": "2048Mi"})
    assert domain["resources"] == {"requests": {"cpu": "2"}}


def test_a_service_without_an_image_is_told_which_field_is_missing() -> None:
    with pytest.raises(InvalidSpecError, match=r"spec\.images\.kubevirt"):
        machine(image="")


def instancetype(**spec: Any) -> Json:
    return {"metadata": {"name": "u1"}, "spec": {"cpu": {"guest": 4}, "memory": {"guest": "4Gi"}, **spec}}


def preference(**spec: Any) -> Json:
    return {"metadata": {"name": "debian"}, "spec": spec}


@pytest.mark.parametrize(
    ("cpu", "topology"),
    [
        ({}, (4, 1, 1)),
        ({"preferredCPUTopology": "cores"}, (1, 4, 1)),
        ({"preferredCPUTopology": "preferThreads"}, (1, 1, 4)),
        ({"preferredCPUTopology": "any"}, (4, 1, 1)),
        ({"preferredCPUTopology": "spread"}, (2, 2, 1)),
        ({"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 4}}, (1, 4, 1)),
        ({"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads"}}, (1, 2, 2)),
        ({"preferredCPUTopology": "spread", "spreadOptions": {"across": "SocketsCoresThreads"}}, (1, 2, 2)),
    ],
)
def test_processors_are_arranged_as_the_preference_says(cpu: Json, topology: tuple[int, int, int]) -> None:
    made = apply_instancetype(machine(), instancetype(), preference(cpu=cpu))["spec"]["domain"]["cpu"]
    assert (made["sockets"], made["cores"], made["threads"]) == topology


def test_an_instance_type_takes_the_place_of_the_services_resources() -> None:
    given = instancetype(
        memory={"guest": "4Gi", "overcommitPercent": 25, "hugepages": {"pageSize": "2Mi"}},
        cpu={"guest": 1, "dedicatedCPUPlacement": True},
        annotations={"team": "blue"},
        nodeSelector={"gpu": "yes"},
    )
    made = apply_instancetype(machine(), given, None)
    domain = made["spec"]["domain"]
    assert domain["cpu"] == {"sockets": 1, "cores": 1, "threads": 1, "dedicatedCpuPlacement": True}
    assert domain["memory"] == {"guest": "4Gi", "hugepages": {"pageSize": "2Mi"}}
    assert domain["resources"] == {"requests": {"memory": str(3 * 1024**3)}}
    assert made["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert made["metadata"]["annotations"] == {"team": "blue"}


def test_two_node_selectors_are_one_too_many() -> None:
    with pytest.raises(InvalidSpecError, match=r"spec\.provider\.kubevirt\.nodeSelector.* u1 "):
        apply_instancetype(machine(EVERYTHING), instancetype(nodeSelector={"gpu": "yes"}), None)


def test_a_preference_fills_in_what_nobody_decided() -> None:
    wants = preference(
        devices={"preferredDiskBus": "sata", "preferredInterfaceModel": "e1000e"},
        firmware={"preferredEfi": {"secureBoot": True}},
        clock={"preferredClockOffset": {"utc": {}}},
    )
    free = apply_instancetype(machine({"preference": {"name": "debian"}}), None, wants)["spec"]["domain"]
    assert {disk["disk"]["bus"] for disk in free["devices"]["disks"]} == {"sata"}
    assert free["devices"]["interfaces"][0]["model"] == "e1000e"
    assert free["firmware"] == {"uuid": UID, "serial": "pool-0", "bootloader": {"efi": {"secureBoot": True}}}
    assert free["clock"] == {"utc": {}}
    decided = apply_instancetype(machine(), None, wants)["spec"]["domain"]
    assert {disk["disk"]["bus"] for disk in decided["devices"]["disks"]} == {"virtio"}


@pytest.mark.parametrize("needs", [{"cpu": {"guest": 3}}, {"memory": {"guest": "2049Mi"}}])
def test_a_machine_that_is_too_small_for_the_preference_is_refused(needs: Json) -> None:
    with pytest.raises(InvalidSpecError, match="the preference debian needs at least"):
        apply_instancetype(machine(), None, preference(requirements=needs))


@given(st.integers(1, 10**6), st.sampled_from([("Ki", 2**10), ("Mi", 2**20), ("Gi", 2**30), ("M", 10**6), ("", 1)]))
def test_quantities_of_memory_are_read_as_kubernetes_reads_them(count: int, unit: tuple[str, int]) -> None:
    assert parse_bytes(f"{count}{unit[0]}") == count * unit[1]


@pytest.mark.parametrize(
    ("volume", "source"),
    [
        ({}, {"source": {"registry": {"url": "docker://registry.example.com/solver:3"}}}),
        (
            {"dataSource": {"namespace": "golden"}},
            {"sourceRef": {"kind": "DataSource", "namespace": "golden", "name": "solver"}},
        ),
        (
            {"persistentVolumeClaim": {"namespace": "golden", "name": "disk"}},
            {"source": {"pvc": {"namespace": "golden", "name": "disk"}}},
        ),
    ],
)
def test_a_disk_of_its_own_belongs_to_its_machine(volume: Json, source: Json) -> None:
    provider = {"rootDisk": {"dataVolume": {"size": "10Gi", "storageClassName": "fast", **volume}}}
    settings, stored = Settings.from_provider(complete_kubevirt(**provider)), machine(provider)
    stored["metadata"]["uid"] = "uid-of-machine"
    assert stored["spec"]["volumes"][0] == {"name": "root", "dataVolume": {"name": stored["metadata"]["name"]}}
    disk = build_data_volume(stored, settings.root_disk)  # type: ignore[arg-type]
    assert disk["metadata"]["name"] == stored["metadata"]["name"]
    assert [owner["uid"] for owner in disk["metadata"]["ownerReferences"]] == ["uid-of-machine"]
    storage = {"resources": {"requests": {"storage": "10Gi"}}, "storageClassName": "fast"}
    assert disk["spec"] == {"storage": storage, **source}


@pytest.mark.parametrize("image", ["solver", "a/b/solver:1.2", "host:5000/solver@sha256:abc", "host:5000/x/solver:1"])
def test_a_prepared_disk_is_named_as_the_image(image: str) -> None:
    assert make_disk_name(image) == "solver"
