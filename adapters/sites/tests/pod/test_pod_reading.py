# SPDX-License-Identifier: Apache-2.0
"""What a pod's status means for a machine, from statuses as kubelets, schedulers and controllers write them."""

from __future__ import annotations

from typing import Any

import pytest

from simyard_sites.base import Address, MachineState, Owner, Stage
from simyard_sites.kubernetes.client import Json
from simyard_sites.kubernetes.ownership import build_owner_labels
from simyard_sites.pod.reading import MAX_CRASHES, read

OWNER = Owner("team", "pool-0", "0f0e0d0c-0b0a-0908-0706-050403020100", "pool")
CREATED = "2026-01-02T03:04:05Z"


def pod(*, deleted: bool = False, **status: Any) -> Json:
    metadata = {"namespace": "team", "name": "pool-0-0f0e0d0c", "creationTimestamp": CREATED}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-02T03:05:05Z"
    return {"metadata": {**metadata, "labels": build_owner_labels(OWNER)}, "spec": {}, "status": status}


def conditions(**states: str) -> list[Json]:
    return [
        {"type": kind, "status": status, "lastTransitionTime": f"2026-01-02T03:04:{10 + number}Z"}
        for number, (kind, status) in enumerate(states.items())
    ]


def container(waits: str = "", said: str = "", *, name: str = "worker", restarts: int = 0, **last: Any) -> Json:
    state = {"waiting": {"reason": waits, "message": said}}
    status: Json = {"name": name, "restartCount": restarts, "state": state}
    return {**status, "lastState": {"terminated": last}} if last else status


SCHEDULED = conditions(PodScheduled="True")
SANDBOXED = conditions(PodScheduled="True", PodReadyToStartContainers="True")
UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes."}]


def taken(reason: str) -> list[Json]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "it must go"}]


@pytest.mark.parametrize(
    ("item", "state", "reason"),
    [
        (pod(phase="Pending"), MachineState.PENDING, ""),
        (pod(phase="Pending", conditions=UNSCHEDULABLE), MachineState.PENDING, "Unschedulable"),
        (pod(phase="Pending", conditions=SCHEDULED), MachineState.PROLOG, ""),
        (pod(phase="Pending", conditions=SANDBOXED), MachineState.BOOT, ""),
        (
            pod(phase="Pending", conditions=SANDBOXED, containerStatuses=[container("ErrImagePull", "no such image")]),
            MachineState.BOOT,
            "ErrImagePull",
        ),
        (
            pod(phase="Pending", containerStatuses=[container("ImagePullBackOff", "x")]),
            MachineState.FAILED,
            "ImagePullBackOff",
        ),
        (
            pod(phase="Pending", initContainerStatuses=[container("InvalidImageName", "x", name="adapter")]),
            MachineState.FAILED,
            "InvalidImageName",
        ),
        (
            pod(phase="Pending", containerStatuses=[container("CreateContainerConfigError", "image will run as root")]),
            MachineState.FAILED,
            "CreateContainerConfigError",
        ),
        (pod(phase="Running"), MachineState.RUNNING, ""),
        (
            pod(
                phase="Running",
                containerStatuses=[container("CrashLoopBackOff", restarts=1, exitCode=1, reason="Error")],
            ),
            MachineState.RUNNING,
            "",
        ),
        (
            pod(
                phase="Running",
                containerStatuses=[container("CrashLoopBackOff", restarts=1, exitCode=3, reason="Error")],
            ),
            MachineState.FAILED,
            "Error",
        ),
        (
            pod(
                phase="Running",
                containerStatuses=[
                    container("CrashLoopBackOff", restarts=MAX_CRASHES, exitCode=137, reason="OOMKilled")
                ],
            ),
            MachineState.FAILED,
            "OOMKilled",
        ),
        (pod(phase="Succeeded"), MachineState.FAILED, "Completed"),
        (pod(phase="Failed", reason="Evicted", message="low on memory"), MachineState.FAILED, "Evicted"),
        (pod(phase="Failed", reason="NodeAffinity", message="x"), MachineState.FAILED, "NodeAffinity"),
        (pod(phase="Failed"), MachineState.FAILED, "Failed"),
        (pod(phase="Running", deleted=True), MachineState.TERMINATING, ""),
        (
            pod(phase="Running", deleted=True, conditions=taken("PreemptionByScheduler")),
            MachineState.FAILED,
            "Preempted",
        ),
        (pod(phase="Running", deleted=True, conditions=taken("EvictionByEvictionAPI")), MachineState.FAILED, "Evicted"),
        (
            pod(phase="Running", deleted=True, conditions=taken("DeletionByTaintManager")),
            MachineState.FAILED,
            "NodeTainted",
        ),
        (pod(phase="Failed", conditions=taken("DeletionByPodGC")), MachineState.FAILED, "NodeLost"),
        (
            pod(phase="Failed", reason="Evicted", conditions=taken("TerminationByKubelet")),
            MachineState.FAILED,
            "Evicted",
        ),
        (pod(phase="Running", conditions=taken("PreemptionByScheduler")), MachineState.RUNNING, ""),
    ],
)
def test_each_status_of_a_pod_is_one_state_with_its_reason(item: Json, state: MachineState, reason: str) -> None:
    machine = read(item)
    assert machine is not None
    assert (machine.state, machine.reason) == (state, reason)
    assert machine.owner == OWNER


def test_the_message_of_a_pod_that_finds_no_node_has_the_reason_in_it() -> None:
    machine = read(pod(phase="Pending", conditions=UNSCHEDULABLE))
    assert machine is not None
    assert machine.message == "Unschedulable: 0/3 nodes."


def test_the_message_of_a_container_that_ended_has_its_exit_code_and_its_last_words() -> None:
    ended = container("CrashLoopBackOff", restarts=1, exitCode=128, reason="StartError", message="no such program\n")
    machine = read(pod(phase="Running", containerStatuses=[ended]))
    assert machine is not None
    assert (machine.reason, machine.message) == (
        "StartError",
        "container worker ended with exit code 128: no such program",
    )


def test_the_stages_are_entered_at_the_times_of_the_pods_own_conditions() -> None:
    running = {"name": "worker", "state": {"running": {"startedAt": "2026-01-02T03:04:30Z"}}}
    machine = read(pod(phase="Running", conditions=SANDBOXED, containerStatuses=[running], podIP="10.1.2.3"))
    assert machine is not None
    pending = machine.entered[Stage.PENDING]
    assert {stage: at - pending for stage, at in machine.entered.items()} == {
        Stage.PENDING: 0,
        Stage.PROLOG: 5,
        Stage.BOOT: 6,
        Stage.RUNNING: 25,
    }
    assert machine.addresses == (Address("10.1.2.3", "eth0"),)


def test_a_pod_without_our_labels_is_no_machine() -> None:
    item = pod(phase="Running")
    item["metadata"]["labels"] = {"app": "x"}
    assert read(item) is None
