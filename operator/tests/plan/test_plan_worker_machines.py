# SPDX-License-Identifier: Apache-2.0
"""Requests to a site for one Worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plan_objects import NOW, make_machine, make_worker

from simyard.api.worker import Stages
from simyard.plan.machine import Step
from simyard.plan.worker_machines import CONFIRM_SECONDS, MachinePlan, WorkerMachines, plan_worker_machines
from simyard_sites.base import MachineState

WORKER, MACHINE = make_worker(), make_machine()
SECOND = replace(MACHINE, id="second")


def plan(*machines: Any, worker: Any = None, **seen: Any) -> MachinePlan:
    return plan_worker_machines(WorkerMachines(worker, machines, **seen))


@pytest.mark.parametrize("worker", [WORKER, None])
def test_nothing_is_decided_while_not_all_machines_are_known(worker: Any) -> None:
    assert plan(MACHINE, worker=worker, complete=False) == plan(worker=worker, complete=False) == MachinePlan()


def test_a_suspect_is_looked_for_and_nothing_else_is_asked() -> None:
    assert plan(MACHINE, SECOND, suspects={"second"}) == MachinePlan(((Step.LOOK, "second"),))


def test_a_machine_that_may_be_an_orphan_is_not_deleted_before_its_worker_was_looked_for() -> None:
    assert plan(MACHINE, SECOND, may_be_orphan=True) == MachinePlan(look_for_owner=True)


def test_of_several_machines_of_one_worker_the_first_stays() -> None:
    assert plan(MACHINE, SECOND, worker=WORKER).requests == ((Step.DELETE, "second"),)
    assert plan(MACHINE, SECOND).requests == ((Step.DELETE, "second"), (Step.DELETE, MACHINE.id))


def test_a_worker_without_a_machine_gets_one_once() -> None:
    assert plan(worker=WORKER).requests == ((Step.CREATE, WORKER.metadata.uid),)
    assert plan(worker=WORKER, lost=True) == MachinePlan()


def test_a_machine_that_a_worker_had_is_looked_for_by_its_id_and_without_one_the_worker_is_lost() -> None:
    assert plan(worker=make_worker(machine_id="7")).requests == ((Step.LOOK, "7"),)
    registered = make_worker(stages=Stages(registered=NOW))
    assert plan(worker=registered) == MachinePlan(lost=True)
    assert plan(worker=registered, create_sent=True) == MachinePlan()


def test_a_deletion_is_asked_for_once_and_confirmed_after_a_while() -> None:
    assert plan(MACHINE).requests == ((Step.DELETE, MACHINE.id),)
    assert plan(MACHINE, deletion_seconds=1.0) == MachinePlan(again_seconds=CONFIRM_SECONDS - 1)
    assert plan(MACHINE, deletion_seconds=CONFIRM_SECONDS).requests == ((Step.LOOK, MACHINE.id),)


def test_a_machine_that_is_being_deleted_already_is_not_deleted_again() -> None:
    going = make_machine(MachineState.TERMINATING)
    assert plan(going) == MachinePlan(deletion_began=True, again_seconds=CONFIRM_SECONDS)


def test_a_stopped_worker_rests_where_stopping_deletes_its_machine() -> None:
    assert plan(worker=make_worker(spec={"powerState": "Stopped"}), stop_ends=True) == MachinePlan(rests=True)


def test_a_machine_follows_its_workers_power_state() -> None:
    assert plan(MACHINE, worker=make_worker(spec={"powerState": "Stopped"})).requests == ((Step.STOP, MACHINE.id),)
