# SPDX-License-Identifier: Apache-2.0
"""Problems that virt-controller finds after it accepted a machine become readable reasons."""

from __future__ import annotations

import pytest
from virt_stage import NODES, PODS, Stage

from simyard_simulators.virt import lifecycle
from simyard_sites.base import MachineState
from simyard_sites.kubernetes.client import Json
from simyard_sites.kubevirt.vmi import DATA_VOLUMES

DISK = {"rootDisk": {"dataVolume": {"size": "1Gi", "dataSource": {"namespace": "golden"}}}}
OLD = {"kubevirt.io/heartbeat": "2020-01-01T00:00:00Z"}


async def test_a_disk_that_is_being_made_is_not_taken_for_a_full_cluster(there: Stage) -> None:
    site = there.site_of(**DISK)
    try:
        [machine_id] = await there.create(there.request(), site=site)
    finally:
        await site.aclose()
    machine = await there.until(machine_id, lambda seen: seen.reason not in ("", "FailedPvcNotFound"))
    assert (machine.state, machine.reason) == (MachineState.PENDING, "NotAllDVsReady")
    assert machine.message.startswith("the disk is being created")
    await there.client.patch(DATA_VOLUMES, machine.name, {"status": {"phase": "Failed"}}, there.namespace)
    machine = await there.until(machine_id, lambda seen: seen.state is MachineState.FAILED)
    assert machine.reason == "FailedDataVolumeImport"
    assert "look at the DataVolume" in machine.message


async def test_an_error_of_virt_handler_is_told_while_the_machine_boots(there: Stage) -> None:
    there.handler.starts = False
    [machine_id] = await there.create(there.request())
    machine = await there.until(machine_id, lambda seen: seen.state is MachineState.BOOT)

    def failed(stored: Json) -> Json:
        said = lifecycle.condition("Synchronized", "False", "Synchronizing with the Domain failed.", "no hugepages")
        return {"conditions": lifecycle.with_condition(stored["status"], said)}

    await there.handler.update(there.namespace, machine.name, failed)
    machine = await there.until(machine_id, lambda seen: seen.reason != "")
    assert (machine.state, machine.reason) == (MachineState.BOOT, "SynchronizationFailed")
    assert machine.message == "the virt-handler of the node reports an error: no hugepages"


async def test_a_machine_of_a_lost_node_says_so(there: Stage) -> None:
    machine = await there.running()
    launcher = await there.launcher(machine.id)
    name, node = launcher["metadata"]["name"], launcher["spec"]["nodeName"]
    ended = {"status": {"phase": "Failed"}}
    await there.client.patch(PODS, name, ended, there.namespace, subresource="status")
    await there.client.patch(NODES, node, {"metadata": {"annotations": OLD}})
    try:
        machine = await there.until(machine.id, lambda seen: seen.reason == "NodeUnresponsive")
    finally:
        await there.handler.beat(node)
    assert machine.state is MachineState.FAILED
    assert machine.message.startswith("the node does not answer")


async def test_a_machine_whose_pod_ends_and_never_goes_has_failed(there: Stage) -> None:
    """As on a dead node: the pod is deleted, and no kubelet ends it."""
    machine = await there.running()
    name = (await there.launcher(machine.id))["metadata"]["name"]
    with there.virt.silent_kubelets():
        await there.client.delete(PODS, name, there.namespace)
        machine = await there.until(machine.id, lambda seen: seen.state is MachineState.FAILED)
    assert machine.reason == "PodTerminating"


@pytest.mark.parametrize(
    ("provider", "field"),
    [
        ({"priorityClassName": "nobody-has-it"}, "spec.provider.kubevirt.priorityClassName"),
        ({"network": {"multus": ["nobody-has-it"]}}, "spec.provider.kubevirt.network.multus"),
    ],
)
async def test_a_pod_that_is_refused_names_the_field_of_the_cloud_site(
    there: Stage, provider: Json, field: str
) -> None:
    site = there.site_of(**provider)
    try:
        [machine_id] = await there.create(there.request(), site=site)
    finally:
        await site.aclose()
    machine = await there.until(machine_id, lambda seen: seen.reason != "")
    assert (machine.state, machine.reason) == (MachineState.PENDING, "FailedCreate")
    assert field in machine.message


@pytest.mark.parametrize(("level", "fails"), [("baseline", False), ("restricted", True)])
async def test_what_a_namespace_must_permit(there: Stage, level: str, *, fails: bool) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level}
    await there.client.request(
        "PATCH",
        f"/api/v1/namespaces/{there.namespace}",
        body={"metadata": {"labels": labels}},
        content_type="application/merge-patch+json",
    )
    [machine_id] = await there.create(there.request())
    ends = (MachineState.FAILED, MachineState.RUNNING)
    machine = await there.until(machine_id, lambda seen: seen.state in ends)
    assert (machine.state is MachineState.FAILED, machine.reason) == (fails, "PodSecurity" if fails else "")
