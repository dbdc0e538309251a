# SPDX-License-Identifier: Apache-2.0
"""Next step of one machine."""

import pytest
from plan_objects import NOW, make_machine, make_worker

from simyard.api.worker import Worker
from simyard.plan.machine import Step, make_machine_name, plan_machine
from simyard_sites.base import Machine, MachineState

DELETING = make_worker().model_copy(
    update={"metadata": make_worker().metadata.model_copy(update={"deletion_timestamp": NOW})}
)


@pytest.mark.parametrize(
    ("worker", "machine", "step"),
    [
        (make_worker(), None, Step.CREATE),
        (make_worker(machine_id="m"), None, Step.LOST),
        (make_worker(machine_id="0"), None, Step.LOST),
        (make_worker(), make_machine(MachineState.BOOT), Step.NOTHING),
        (make_worker(), make_machine(), Step.NOTHING),
        (make_worker(), make_machine(MachineState.FAILED), Step.NOTHING),
        (None, make_machine(MachineState.FAILED), Step.DELETE),
        (None, make_machine(), Step.DELETE),
        (None, None, Step.NOTHING),
        (DELETING, make_machine(), Step.DELETE),
        (DELETING, None, Step.NOTHING),
        (make_worker(spec={"powerState": "Stopped"}), make_machine(), Step.STOP),
        (make_worker(spec={"powerState": "Suspended"}), make_machine(), Step.SUSPEND),
        (make_worker(spec={"powerState": "Stopped"}), make_machine(MachineState.STOPPED), Step.NOTHING),
        (make_worker(spec={"powerState": "Stopped"}), make_machine(MachineState.BOOT), Step.NOTHING),
        (make_worker(spec={"powerState": "Stopped"}), make_machine(MachineState.SUSPENDED), Step.STOP),
        (make_worker(spec={"powerState": "Suspended"}), make_machine(MachineState.STOPPED), Step.NOTHING),
        (make_worker(spec={"restarts": 1}), make_machine(), Step.RESTART),
        (make_worker(spec={"restarts": 2}, restarts=1), make_machine(), Step.RESTART),
        (make_worker(spec={"restarts": 2}, restarts=2), make_machine(), Step.NOTHING),
        (make_worker(spec={"restarts": 1}), make_machine(MachineState.BOOT), Step.NOTHING),
        (make_worker(spec={"restarts": 1, "powerState": "Stopped"}), make_machine(), Step.STOP),
        (make_worker(spec={"restarts": 1}), make_machine(MachineState.STOPPED), Step.START),
        (make_worker(), make_machine(MachineState.STOPPED), Step.START),
        (make_worker(), make_machine(MachineState.SUSPENDED), Step.START),
    ],
)
def test_each_pair_of_worker_and_machine_needs_one_step(
    worker: Worker | None, machine: Machine | None, step: Step
) -> None:
    assert plan_machine(worker, machine) is step


def test_a_restart_that_the_site_has_accepted_is_not_asked_for_again() -> None:
    worker = make_worker(spec={"restarts": 2}, restarts=1)
    assert plan_machine(worker, make_machine(), 1) is Step.RESTART
    assert plan_machine(worker, make_machine(), 2) is Step.NOTHING


STOPPED = make_worker(spec={"powerState": "Stopped"}, machine_id="m")


@pytest.mark.parametrize(
    ("worker", "machine", "ended", "step"),
    [
        (STOPPED, make_machine(), False, Step.STOP),
        (STOPPED, make_machine(MachineState.TERMINATING), True, Step.NOTHING),
        (STOPPED, None, False, Step.REST),
        (make_worker(spec={"powerState": "Stopped"}), None, False, Step.REST),
        (make_worker(machine_id="m", machine_state="Stopped"), None, False, Step.CREATE),
        (make_worker(machine_id="m", machine_state="Running"), None, True, Step.CREATE),
        (make_worker(machine_id="m", machine_state="Running"), None, False, Step.LOST),
        (make_worker(machine_id="m", machine_state="Terminating"), make_machine(), True, Step.NOTHING),
    ],
)
def test_where_stopping_a_machine_ends_it_it_is_made_anew_unless_it_was_lost(
    worker: Worker, machine: Machine | None, ended: bool, step: Step
) -> None:
    assert plan_machine(worker, machine, stop_ends=True, ended=ended) is step


def test_where_a_stopped_machine_stays_one_that_is_gone_is_lost() -> None:
    assert plan_machine(make_worker(machine_id="m", machine_state="Stopped"), None, ended=True) is Step.LOST


def test_a_machine_is_named_after_its_worker_and_its_uid() -> None:
    assert make_machine_name("pool-0", "0123456789abcdef") == "pool-0-01234567"
    assert len(make_machine_name("w" * 54, "0123456789abcdef")) == 63
