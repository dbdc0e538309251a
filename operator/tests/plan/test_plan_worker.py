# SPDX-License-Identifier: Apache-2.0
"""The status of a worker."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_objects import NOW, at, made_ready, make_machine, make_worker, not_ready, with_status

from simyard.api.base import find_condition
from simyard.api.worker import MAX_ADDRESSES, Worker, WorkerAddress
from simyard.plan.lost_workers import DISCONNECT_GRACE_SECONDS
from simyard.plan.worker import (
    Change,
    Observation,
    Registration,
    Values,
    WorkerPlan,
    is_ready,
    list_addresses,
    plan_worker,
)
from simyard_sites.base import Address, MachineState, Stage

LATER = at(10)
ENTERED = {Stage.PENDING: at(1), Stage.PROLOG: at(2), Stage.BOOT: at(3), Stage.RUNNING: at(4)}


def plan_of(worker: Worker, seen: Observation, now: datetime, steady: float = 0.0) -> WorkerPlan:
    return plan_worker(worker, seen, now, steady)


def reason_of(worker: Worker, seen: Observation, now: datetime = LATER, steady: float = 0.0) -> str:
    condition = find_condition(plan_of(worker, seen, now, steady).status.conditions, "Ready")
    assert condition is not None
    return f"{condition.status} {condition.reason}"


def test_a_worker_is_ready_when_its_adapter_registered_even_before_anything_else_is_known() -> None:
    plan = plan_of(make_worker(), Observation(registration=Registration(at(5), "0.1.0")), at(6))
    assert is_ready(with_status(make_worker(), conditions=plan.status.conditions))
    assert plan.change is Change.READINESS
    assert plan.status.stages.registered == at(5)
    assert plan.status.adapter_version == "0.1.0"


def test_a_worker_without_a_machine_says_that_its_site_denies_it_one() -> None:
    denied = Observation(denied="CloudSite abroad is cordoned")
    plan = plan_of(make_worker(), denied, LATER)
    condition = find_condition(plan.status.conditions, "Ready")
    assert condition is not None
    assert (condition.reason, condition.message) == ("SiteNotPermitted", "CloudSite abroad is cordoned")
    assert plan.change is Change.READINESS
    assert reason_of(make_worker(), Observation(denied=denied.denied, machine=make_machine())) == "False Starting"


@pytest.mark.parametrize("state", [MachineState.PENDING, MachineState.BOOT, MachineState.RUNNING])
def test_what_troubles_a_machine_before_it_registers_is_told(state: MachineState) -> None:
    seen = Observation(machine=make_machine(state, reason="Trouble", message="no hugepages"))
    condition = find_condition(plan_of(make_worker(), seen, LATER).status.conditions, "Ready")
    assert condition is not None
    assert condition.message == "no hugepages"


def test_a_suspended_machine_that_cannot_be_started_says_why() -> None:
    seen = Observation(machine=make_machine(MachineState.SUSPENDED), waits="Conflict: no virt-handler")
    condition = find_condition(plan_of(make_worker(), seen, LATER).status.conditions, "Ready")
    assert condition is not None
    assert condition.message == "the machine is suspended: Conflict: no virt-handler"


def test_every_stage_keeps_its_first_time() -> None:
    first = plan_of(make_worker(), Observation(machine=make_machine(entered=ENTERED)), at(5)).status
    again = make_machine(entered={stage: at(50) for stage in ENTERED})
    seen = Observation(machine=again, registration=Registration(at(60)))
    stages = plan_of(with_status(make_worker(), stages=first.stages), seen, at(61)).status.stages
    assert [stages.start, stages.pending, stages.prolog, stages.boot, stages.running, stages.registered] == [
        NOW, at(1), at(2), at(3), at(4), at(60),
    ]  # fmt: skip


def test_stages_alone_are_not_urgent() -> None:
    plan = plan_of(make_worker(), Observation(machine=make_machine(MachineState.BOOT, entered=ENTERED)), at(5))
    assert plan.change is Change.STAGES
    assert plan.status.machine_state == "Boot"


def test_nothing_new_is_no_change() -> None:
    seen = Observation(machine=make_machine(entered=ENTERED), registration=Registration(at(5)), consumer=True)
    worker = make_worker()
    worker = worker.model_copy(update={"status": plan_of(worker, seen, at(6)).status})
    assert plan_of(worker, seen, at(99)).change is Change.NONE
    assert plan_of(worker, Observation(machine=make_machine(entered=ENTERED)), at(99)).change is Change.NONE


def test_addresses_are_kept_with_the_stage_in_which_they_are_known_and_when_the_machine_is_unknown() -> None:
    machine = make_machine(
        MachineState.BOOT, addresses=(Address("10.0.0.7", "eth0", "02:00:00:00:00:01"), Address("fd00::7"))
    )
    plan = plan_of(make_worker(), Observation(machine=machine), at(5))
    assert plan.change is Change.STAGES
    assert plan.status.addresses == [
        WorkerAddress(address="10.0.0.7", interface="eth0", mac="02:00:00:00:00:01"),
        WorkerAddress(address="fd00::7"),
    ]
    worker = make_worker().model_copy(update={"status": plan.status})
    assert plan_of(worker, Observation(), at(6)).status.addresses == plan.status.addresses


def test_what_a_guest_says_of_its_network_is_an_address_or_nothing() -> None:
    said = ("10.0.0.7", "127.0.0.1", "fe80::1", "::1", "0.0.0.0", "ff02::1", "2001:db8::1%eth0", "10.0.0.7", "x", "")
    machine = make_machine(addresses=tuple(Address(ip, "eth 0\n", "me") for ip in said))
    assert list_addresses(machine) == [WorkerAddress(address="10.0.0.7")]


addresses = st.builds(Address, st.one_of(st.text(), st.ip_addresses().map(str)), st.text(), st.text())


@given(st.lists(addresses, max_size=40))
def test_addresses_are_always_such_as_the_api_server_stores(said: list[Address]) -> None:
    found = list_addresses(make_machine(addresses=tuple(said)))
    assert len(found) <= MAX_ADDRESSES
    assert [WorkerAddress.model_validate(item.to_json()) for item in found] == found


def test_new_values_alone_are_the_least_urgent() -> None:
    worker = made_ready(make_worker(), at(5))
    seen = Observation(machine=make_machine(), values=Values(at(7), {"load": 3}))
    worker = worker.model_copy(update={"status": plan_of(worker, seen, at(8)).status})
    plan = plan_of(worker, Observation(machine=make_machine(), values=Values(at(9), {"load": 4})), at(10))
    assert plan.change is Change.VALUES
    assert plan.status.attributes == {"load": 4}


def test_values_older_than_those_written_are_ignored() -> None:
    worker = with_status(make_worker(), attributes={"load": 4}, attributes_time=at(9))
    assert plan_of(worker, Observation(values=Values(at(8), {"load": 3})), at(10)).status.attributes == {"load": 4}


def test_an_unreachable_broker_changes_nothing() -> None:
    ready = made_ready(make_worker(), at(5))
    assert reason_of(ready, Observation(consumer=None)) == "True Registered"
    gone = not_ready(ready, "AdapterDisconnected", at(20))
    assert reason_of(gone, Observation(consumer=None), at(99)) == "False AdapterDisconnected"


@pytest.mark.parametrize("jump", [0, -3600, 3600])
def test_a_lost_consumer_counts_after_a_grace_whatever_the_clock_on_the_wall_does(jump: int) -> None:
    ready = made_ready(make_worker(), at(5))
    seen = Observation(consumer=False, consumer_gone=500.0)
    wall = at(5 + jump)
    plan = plan_of(ready, seen, wall, 501.0)
    assert plan.wake_seconds == DISCONNECT_GRACE_SECONDS - 1
    assert reason_of(ready, seen, wall, 501.0) == "True Registered"
    assert reason_of(ready, seen, wall, 500 + DISCONNECT_GRACE_SECONDS) == "False AdapterDisconnected"
    assert reason_of(not_ready(ready, "AdapterDisconnected", at(20)), Observation(consumer=True)) == "True Registered"


def test_what_is_worse_wins() -> None:
    ready = made_ready(make_worker(spec={"drain": True}), at(5))
    registered = Registration(at(5))
    failed = make_machine(MachineState.FAILED, reason="NoHost", message="nothing fits")
    assert reason_of(ready, Observation(refusal="InvalidSpec: no", registration=registered)) == "False MachineFailed"
    assert reason_of(ready, Observation(lost=True, registration=registered)) == "False MachineLost"
    assert reason_of(ready, Observation(machine=failed, registration=registered)) == "False MachineFailed"
    assert reason_of(ready, Observation(registration=registered)) == "False Draining"
    assert reason_of(ready, Observation(drained=True)) == "False Drained"
    stopped = Observation(machine=make_machine(MachineState.STOPPED), registration=registered)
    assert reason_of(made_ready(make_worker(), at(5)), stopped) == "False Stopped"
    drained = not_ready(ready, "Drained", at(6))
    assert reason_of(drained, Observation()) == "False Drained", "a new operator knows it from the status"
    assert reason_of(make_worker(), Observation(consumer=True)) == "False Starting"


def test_a_pending_machine_says_what_it_waits_for() -> None:
    machine = make_machine(MachineState.PENDING, message="no host has enough memory")
    condition = find_condition(plan_of(make_worker(), Observation(machine=machine), at(1)).status.conditions, "Ready")
    assert condition is not None
    assert condition.message == "no host has enough memory"
