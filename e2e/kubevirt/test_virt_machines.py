# SPDX-License-Identifier: Apache-2.0
"""The site's requests and its reports about machines are right with KubeVirt's own virt-api and virt-controller."""

from __future__ import annotations

from typing import Any

import pytest
from virt_stage import PODS, Stage

from simyard_dev.providers import complete_kubevirt
from simyard_dev.virt_control_plane import read_manifests
from simyard_sites.base import ConflictError, ErrorScope, InvalidSpecError, MachineState, Outcome, PowerAction, Site
from simyard_sites.base import Stage as Entered
from simyard_sites.kubernetes.client import build_path
from simyard_sites.kubernetes.errors import ApiError, NotFoundError
from simyard_sites.kubevirt.instancetype import apply_instancetype, parse_bytes
from simyard_sites.kubevirt.settings import Settings
from simyard_sites.kubevirt.vmi import VMIS, build_machine_instance


async def act(site: Site, machine_id: str, action: PowerAction) -> Outcome:
    [outcome] = [outcome async for outcome in site.act([machine_id], action)]
    return outcome


async def test_the_site_can_be_used(there: Stage) -> None:
    info = await there.site.probe()
    assert info.version == "KubeVirt v1.7.0"


async def test_a_machine_from_its_creation_to_its_end(there: Stage) -> None:
    machine = await there.running()
    assert list(machine.entered) == [Entered.PENDING, Entered.PROLOG, Entered.BOOT, Entered.RUNNING]
    assert (machine.reason, machine.message) == ("", "")
    assert [outcome.error async for outcome in there.site.delete([machine.id])] == [None]
    await there.until_gone(machine.id)


async def test_a_suspended_machine_is_paused_until_it_is_started(there: Stage) -> None:
    machine = await there.running()
    assert (await act(there.site, machine.id, PowerAction.SUSPEND)).error is None
    await there.until(machine.id, lambda seen: seen.state is MachineState.SUSPENDED)
    assert (await act(there.site, machine.id, PowerAction.SUSPEND)).error is None, "it is so already"
    assert (await act(there.site, machine.id, PowerAction.START)).error is None
    await there.until(machine.id, lambda seen: seen.state is MachineState.RUNNING)


async def test_a_machine_cannot_be_suspended_where_no_virt_handler_is_and_its_pool_goes_on(there: Stage) -> None:
    machine = await there.running()
    node = (await there.launcher(machine.id))["spec"]["nodeName"]
    async with there.without_handler(node):
        outcome = await act(there.site, machine.id, PowerAction.SUSPEND)
    assert isinstance(outcome.error, ConflictError)
    assert "No virt-handler on node" in str(outcome.error)


@pytest.mark.parametrize("hostname", ["Node_7", "n" * 64, "-a"])
async def test_a_host_name_that_is_none_is_refused_by_its_field(there: Stage, hostname: str) -> None:
    [outcome] = [outcome async for outcome in there.site.create([there.request(hostname=hostname)])]
    assert isinstance(outcome.error, InvalidSpecError)
    assert outcome.error.scope is ErrorScope.ITEM
    assert str(outcome.error).startswith("spec.hostname: ")


async def test_the_longest_names_can_be_used(there: Stage) -> None:
    longest = there.request("w" * 54, hostname="n" * 63 + ".example.com")
    [machine_id] = await there.create(longest)
    await there.until(machine_id, lambda seen: seen.state is MachineState.RUNNING)
    assert (await there.stored(machine_id))["spec"]["hostname"] == "n" * 63


async def test_a_node_is_drained_by_way_of_the_site(there: Stage) -> None:
    machine = await there.running()
    launcher = await there.launcher(machine.id)
    name, node = launcher["metadata"]["name"], launcher["spec"]["nodeName"]
    path = f"/api/v1/namespaces/{there.namespace}/pods/{name}/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    with pytest.raises(ApiError, match="429"):
        await there.client.request("POST", path, body=eviction)
    machine = await there.until(machine.id, lambda seen: seen.evacuate != "")
    assert machine.evacuate == f"node {node} is being drained"
    assert [outcome.error async for outcome in there.site.delete([machine.id])] == [None]
    await there.until_gone(machine.id)
    with pytest.raises(NotFoundError):
        await there.client.get(PODS, name, there.namespace)


EVERYTHING = {
    "rootDisk": {"containerDisk": {"imagePullPolicy": "IfNotPresent", "imagePullSecret": "registry"}},
    "network": {"pod": True, "multus": ["fast", "other/slow"]},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "simulation", "operator": "Exists", "effect": "NoSchedule"}],
    "priorityClassName": "simulation",
    "terminationGracePeriodSeconds": 5,
}
DISK = {"rootDisk": {"dataVolume": {"size": "1Gi", "dataSource": {"namespace": "golden"}}}}


@pytest.mark.parametrize("provider", [EVERYTHING, DISK, {"network": {"pod": False, "multus": ["fast"]}}])
async def test_virt_api_accepts_every_machine_that_the_site_makes(there: Stage, provider: dict[str, Any]) -> None:
    site = there.site_of(**provider)
    try:
        await there.create(there.request(cores=2, memory_mib=2048), site=site)
    finally:
        await site.aclose()


async def test_virt_api_accepts_every_instance_type_and_preference_that_kubevirt_brings(there: Stage) -> None:
    settings = Settings.from_provider(complete_kubevirt(preference={"name": "x"}))
    plain = build_machine_instance(there.request(), there.namespace, {}, "secret", settings)
    items = read_manifests()
    types = [item for item in items if item["kind"] == "VirtualMachineClusterInstancetype"]
    largest = max(types, key=lambda item: parse_bytes(item["spec"]["memory"]["guest"]))
    bodies = [apply_instancetype(plain, item, None) for item in types]
    bodies += [
        apply_instancetype(plain, largest, item) for item in items if item["kind"] == "VirtualMachineClusterPreference"
    ]
    assert len(bodies) > 100
    for body in bodies:
        await there.client.request(
            "POST", build_path(VMIS, there.namespace), body=body, query={"dryRun": "All", "fieldValidation": "Strict"}
        )
