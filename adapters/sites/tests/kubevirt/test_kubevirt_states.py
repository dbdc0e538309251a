# SPDX-License-Identifier: Apache-2.0
"""What a machine's object says, in the words of KubeVirt v1.9, and what becomes of it for those who wait."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard_sites.base import Address, Machine, MachineState, Owner, Stage
from simyard_sites.kubernetes.client import Json
from simyard_sites.kubevirt.states import read_machine

OWNER = Owner("ns", "pool-0", "uid", "pool")
CREATED = "2026-01-02T03:04:05Z"
EPOCH = 1767323045.0


def seen(phase: str = "", *conditions: Json, deleted: bool = False, **status: Any) -> Machine:
    metadata: Json = {"namespace": "ns", "name": "pool-0-1", "creationTimestamp": CREATED}
    if deleted:
        metadata["deletionTimestamp"] = CREATED
    return read_machine({"metadata": metadata, "status": {"phase": phase, "conditions": conditions, **status}}, OWNER)


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("", MachineState.PENDING),
        ("Pending", MachineState.PENDING),
        ("Scheduling", MachineState.PROLOG),
        ("Scheduled", MachineState.BOOT),
        ("Running", MachineState.RUNNING),
        ("Failed", MachineState.FAILED),
        ("Succeeded", MachineState.FAILED),
        ("Unknown", MachineState.FAILED),
        ("SomethingNew", MachineState.PENDING),
    ],
)
def test_phases_are_states(phase: str, state: MachineState) -> None:
    assert seen(phase).state is state
    assert seen(phase, deleted=True).state is MachineState.TERMINATING


def test_stages_are_entered_when_kubevirt_says_so() -> None:
    phases = ("Pending", "Scheduling", "Scheduled", "Running")
    times = [
        {"phase": phase, "phaseTransitionTimestamp": f"2026-01-02T03:04:0{6 + index}Z"}
        for index, phase in enumerate(phases)
    ]
    assert seen("Running", phaseTransitionTimestamps=times).entered == {
        Stage.PENDING: EPOCH,
        Stage.PROLOG: EPOCH + 2,
        Stage.BOOT: EPOCH + 3,
        Stage.RUNNING: EPOCH + 4,
    }


@pytest.mark.parametrize(
    ("phase", "said", "state", "reason", "told"),
    [
        (
            "Scheduling",
            condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available"),
            MachineState.PENDING,
            "Unschedulable",
            "no node has room for the machine: 0/3 nodes are available",
        ),
        (
            "Scheduling",
            condition("Synchronized", "False", "ErrImagePull", "manifest unknown"),
            MachineState.PENDING,
            "ErrImagePull",
            "check spec.images.kubevirt",
        ),
        (
            "Scheduling",
            condition("Synchronized", "False", "ImagePullBackOff", "back-off"),
            MachineState.FAILED,
            "ImagePullBackOff",
            "check spec.images.kubevirt",
        ),
        (
            "Pending",
            condition("Synchronized", "False", "FailedCreate", 'pods "x" is forbidden: exceeded quota'),
            MachineState.PENDING,
            "FailedCreate",
            "exceeded quota",
        ),
        (
            "Pending",
            condition("Synchronized", "False", "FailedCreate", 'violates PodSecurity "restricted:latest"'),
            MachineState.FAILED,
            "PodSecurity",
            "violates PodSecurity",
        ),
        (
            "Pending",
            condition("Synchronized", "False", "FailedPvcNotFound", "PVC not found"),
            MachineState.PENDING,
            "FailedPvcNotFound",
            "the machine's disk does not exist",
        ),
        (
            "Pending",
            condition("DataVolumesReady", "Unknown", "NotAllDVsReady", "Not all of the VMI's DVs are ready"),
            MachineState.PENDING,
            "NotAllDVsReady",
            "the disk is being created",
        ),
        (
            "Failed",
            condition("DataVolumesReady", "False", "NotAllDVsReady", "Not all of the VMI's DVs are ready"),
            MachineState.FAILED,
            "FailedDataVolumeImport",
            "look at the DataVolume",
        ),
        (
            "Pending",
            condition("PodScheduled", "False", "Unschedulable", "PVC ns/x does not exist, waiting for it to appear"),
            MachineState.PENDING,
            "FailedPvcNotFound",
            "the machine's disk does not exist",
        ),
        (
            "Pending",
            condition("Synchronized", "False", "FailedCreate", "no PriorityClass with name x was found"),
            MachineState.PENDING,
            "FailedCreate",
            "spec.provider.kubevirt.priorityClassName",
        ),
        (
            "Scheduled",
            condition("Synchronized", "False", "Synchronizing with the Domain failed.", "no hugepages"),
            MachineState.BOOT,
            "SynchronizationFailed",
            "the virt-handler of the node reports an error: no hugepages",
        ),
        (
            "Failed",
            condition("Synchronized", "False", "FailedDataVolumeImport", "the import failed"),
            MachineState.FAILED,
            "FailedDataVolumeImport",
            "the import failed",
        ),
        (
            "Running",
            condition("Paused", "True", "PausedIOError", "low-level IO error detected"),
            MachineState.FAILED,
            "PausedIOError",
            "IO error",
        ),
        ("Running", condition("Paused", "True", "PausedByUser", "by user"), MachineState.SUSPENDED, "", ""),
        (
            "Running",
            condition("Synchronized", "False", "Anything", "else"),
            MachineState.RUNNING,
            "SynchronizationFailed",
            "else",
        ),
        (
            "Running",
            condition("Ready", "False", "PodTerminating"),
            MachineState.FAILED,
            "PodTerminating",
            "the machine's pod is ending",
        ),
        ("Running", condition("Ready", "False", "ContainersNotReady"), MachineState.RUNNING, "", ""),
        ("Succeeded", condition("Ready", "False"), MachineState.FAILED, "GuestShutDown", "shut itself down"),
    ],
)
def test_reasons_are_told(phase: str, said: Json, state: MachineState, reason: str, told: str) -> None:
    machine = seen(phase, said)
    assert (machine.state, machine.reason) == (state, reason)
    assert told in machine.message


def test_a_machine_of_a_lost_node_says_so() -> None:
    machine = seen("Failed", reason="NodeUnresponsive")
    assert (machine.state, machine.reason) == (MachineState.FAILED, "NodeUnresponsive")
    assert "the node does not answer" in machine.message


def test_a_disk_that_is_being_made_is_told_before_what_follows_from_it() -> None:
    missing = "PVC ns/x does not exist, waiting for it to appear"
    machine = seen(
        "Pending",
        condition("PodScheduled", "False", "Unschedulable", missing),
        condition("Synchronized", "False", "FailedPvcNotFound", missing),
        condition("DataVolumesReady", "Unknown", "NotAllDVsReady", "Not all of the VMI's DVs are ready"),
    )
    assert (machine.state, machine.reason) == (MachineState.PENDING, "NotAllDVsReady")


def test_a_machine_whose_node_is_drained_is_to_be_left() -> None:
    assert seen("Running").evacuate == ""
    assert seen("Running", evacuationNodeName="node-7").evacuate == "node node-7 is being drained"


def test_its_addresses_are_those_of_all_interfaces() -> None:
    mac = "02:00:00:00:00:01"
    interfaces = [
        {"name": "default"},
        {"name": "net1", "ipAddress": "10.0.0.9"},
        {
            "name": "net2",
            "ipAddress": "10.1.0.9",
            "ipAddresses": ["10.1.0.9", "fd00::9"],
            "interfaceName": "eth2",
            "mac": mac,
        },
    ]
    assert seen("Running", interfaces=interfaces).addresses == (
        Address("10.0.0.9"),
        Address("10.1.0.9", "eth2", mac),
        Address("fd00::9", "eth2", mac),
    )


@given(st.text(max_size=20), st.text(), st.text())
def test_whatever_kubevirt_says_a_reason_is_short_and_a_message_bounded(phase: str, reason: str, text: str) -> None:
    machine = seen(phase, condition("Synchronized", "False", reason, text * 100))
    assert len(machine.message) <= 1000
    assert re.fullmatch("([A-Z][A-Za-z0-9]*)?", machine.reason)
