# SPDX-License-Identifier: Apache-2.0
"""What the states mean."""

import pytest
from pyone import LCM_STATE, VM_STATE

from simyard_sites.base import Machine, MachineState, Owner, Stage
from simyard_sites.opennebula.machines import read_machine
from simyard_sites.opennebula.records import VmRecord
from simyard_sites.opennebula.states import format_reason, get_machine_state, is_settled, name_of

ACTIVE = 3
OWNER = Owner("default", "w", "1", "pool")


def machine(state: int, lcm_state: int = 0, before: Machine | None = None, now: float = 100.0, **texts: str) -> Machine:
    record = VmRecord(7, "w-1", state, lcm_state, stime=50, **texts)  # type: ignore[arg-type]
    return read_machine(record, OWNER, before, now, seen_starting=True)


def test_every_state_that_pyone_names_has_a_meaning_of_its_own() -> None:
    names = {name_of(state, 0) for state in VM_STATE if state != ACTIVE} | {name_of(3, state) for state in LCM_STATE}
    unknown = {name for name in names if get_machine_state(name) is MachineState.RUNNING}
    assert unknown == {
        "RUNNING", "MIGRATE", "SAVE_MIGRATE", "UNKNOWN", "HOTPLUG", "HOTPLUG_SNAPSHOT", "HOTPLUG_NIC", "HOTPLUG_SAVEAS",
        "HOTPLUG_RESIZE", "DISK_SNAPSHOT", "DISK_SNAPSHOT_REVERT", "DISK_SNAPSHOT_DELETE", "DISK_RESIZE",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lcm_state", "name", "meaning"),
    [
        (69, "BACKUP", MachineState.RUNNING),
        (70, "BACKUP_POWEROFF", MachineState.STOPPED),
        (71, "RESTORE", MachineState.STOPPED),
        (99, "LCM_STATE_99", MachineState.RUNNING),
    ],
)
def test_later_states_are_known_and_those_to_come_count_as_running(
    lcm_state: int, name: str, meaning: MachineState
) -> None:
    assert name_of(ACTIVE, lcm_state) == name
    assert get_machine_state(name) is meaning


@pytest.mark.parametrize(
    "state", [state for state in LCM_STATE if state.name.endswith("FAILURE")], ids=lambda s: s.name
)
def test_each_failure_has_its_own_reason_and_the_text_that_explains_it(state: LCM_STATE) -> None:
    failed = machine(ACTIVE, state, error="Error executing image transfer script")
    assert failed.state is MachineState.FAILED
    assert failed.reason == format_reason(state.name) != ""
    assert failed.message == "Error executing image transfer script"
    assert is_settled(state.name)


def test_a_machine_that_waits_for_a_host_has_not_failed_and_says_why_it_waits() -> None:
    waiting = machine(1, scheduler="Not enough capacity in Host or System DS, dispatch limit reached")
    assert (waiting.state, waiting.reason) == (MachineState.PENDING, "Unschedulable")
    assert waiting.message.startswith("Not enough capacity")
    assert machine(2).reason == "Hold"
    assert machine(1, error="an old error").message == ""


@pytest.mark.parametrize(
    ("state", "lcm_state", "meaning"),
    [
        (0, 0, MachineState.PENDING),
        (3, 1, MachineState.PROLOG),
        (3, 2, MachineState.BOOT),
        (3, 20, MachineState.BOOT),
        (3, 3, MachineState.RUNNING),
        (3, 16, MachineState.RUNNING),
        (4, 0, MachineState.SUSPENDED),
        (5, 0, MachineState.SUSPENDED),
        (8, 0, MachineState.STOPPED),
        (9, 0, MachineState.STOPPED),
        (3, 18, MachineState.STOPPED),
        (3, 11, MachineState.TERMINATING),
        (3, 12, MachineState.TERMINATING),
        (3, 23, MachineState.TERMINATING),
        (11, 0, MachineState.FAILED),
    ],
)
def test_states_mean(state: int, lcm_state: int, meaning: MachineState) -> None:
    assert machine(state, lcm_state).state is meaning


def test_stages_are_entered_when_they_are_seen_and_keep_their_times() -> None:
    seen = machine(1)
    for lcm_state, now in ((1, 101.0), (2, 102.0), (3, 103.0), (18, 200.0), (20, 201.0), (3, 202.0)):
        seen = machine(ACTIVE, lcm_state, seen, now)
    assert seen.entered == {Stage.PENDING: 50, Stage.PROLOG: 101, Stage.BOOT: 102, Stage.RUNNING: 103}


def test_a_clock_that_lags_behind_the_sites_never_turns_stages_round() -> None:
    seen = machine(ACTIVE, 1, machine(1), now=20.0)
    assert seen.entered == {Stage.PENDING: 50, Stage.PROLOG: 50}


def test_of_a_machine_that_runs_already_only_the_first_stage_is_known() -> None:
    record = VmRecord(7, "w-1", ACTIVE, 3, stime=50)
    seen = read_machine(
        record, OWNER, read_machine(record, OWNER, None, 90, seen_starting=False), 99, seen_starting=False
    )
    assert seen.entered == {Stage.PENDING: 50}
