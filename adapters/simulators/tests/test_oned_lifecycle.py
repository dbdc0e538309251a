# SPDX-License-Identifier: Apache-2.0
"""The states of a VM: what follows by itself, what each action does in each state, what fails and is recovered."""

import dataclasses

import pytest
from oned_world import World

from simyard_simulators.oned import WIDE, Failure, Lcm, Settings, State, Step
from simyard_simulators.oned.states import FAILURES, RefusedError

SETTINGS = Settings(scheduler=WIDE)


@pytest.fixture
def world() -> World:
    return World(SETTINGS)


def failing(*failures: Failure) -> World:
    return World(dataclasses.replace(SETTINGS, failures=failures))


def test_a_vm_goes_through_prolog_and_boot_to_running_and_reports(world: World) -> None:
    vm = world.create()
    seen = []
    for _ in range(40):
        if vm.state_name not in seen:
            seen.append(vm.state_name)
        world.after(0.5)
    assert seen == ["PENDING", "PROLOG", "BOOT", "RUNNING"]
    assert vm.user_template.get("READY") == "YES"
    history = vm.history
    assert history is not None
    assert history.prolog_started + 2 == history.prolog_ended == history.running_started
    assert (vm.deploy_id, history.hostname) == ("one-0", "node0")


def test_the_first_vm_has_id_0(world: World) -> None:
    assert [world.create(name).oid for name in ("a", "b")] == [0, 1]


@pytest.mark.parametrize(
    ("action", "through", "end"),
    [
        ("terminate", ["SHUTDOWN", "EPILOG"], "DONE"),
        ("terminate-hard", ["SHUTDOWN", "EPILOG"], "DONE"),
        ("poweroff", ["SHUTDOWN_POWEROFF"], "POWEROFF"),
        ("poweroff-hard", ["SHUTDOWN_POWEROFF"], "POWEROFF"),
        ("suspend", ["SAVE_SUSPEND"], "SUSPENDED"),
        ("stop", ["SAVE_STOP", "EPILOG_STOP"], "STOPPED"),
        ("undeploy", ["SHUTDOWN_UNDEPLOY", "EPILOG_UNDEPLOY"], "UNDEPLOYED"),
        ("reboot", [], "RUNNING"),
        ("reboot-hard", [], "RUNNING"),
    ],
)
def test_actions_lead_a_running_vm_to_their_end(world: World, action: str, through: list[str], end: str) -> None:
    vm = world.running()
    world.life.act(vm, action)
    seen = []
    for _ in range(40):
        if vm.state_name not in seen:
            seen.append(vm.state_name)
        world.after(0.25)
    assert seen == [*through, end]
    held = vm.host is not None
    assert held is (end in ("POWEROFF", "SUSPENDED", "RUNNING"))
    assert world.cloud.hosts[0].used_cores == (1.0 if held else 0.0)


@pytest.mark.parametrize(
    ("action", "through"),
    [
        ("poweroff", ["BOOT_POWEROFF"]),
        ("suspend", ["BOOT_SUSPENDED"]),
        ("stop", ["PENDING", "PROLOG_RESUME", "BOOT_STOPPED"]),
        ("undeploy", ["PENDING", "PROLOG_UNDEPLOY", "BOOT_UNDEPLOY"]),
    ],
)
def test_resume_brings_back_what_was_put_down(world: World, action: str, through: list[str]) -> None:
    vm = world.running()
    world.life.act(vm, action)
    world.after(30)
    world.life.act(vm, "resume")
    seen = []
    for _ in range(60):
        if vm.state_name not in seen:
            seen.append(vm.state_name)
        world.after(0.25)
    assert seen == [*through, "RUNNING"]


@pytest.mark.parametrize("lcm", [lcm for lcm in Lcm if lcm not in FAILURES | {Lcm.RUNNING, Lcm.UNKNOWN}])
def test_terminate_is_refused_while_a_driver_works(world: World, lcm: Lcm) -> None:
    vm = world.running()
    world.cloud.index(vm, State.ACTIVE, lcm)
    with pytest.raises(RefusedError) as refusal:
        world.life.act(vm, "terminate")
    assert refusal.value.code == 0x0800
    assert str(refusal.value) == (
        f'Error performing action "terminate": Could not terminate VM 0, wrong state {lcm.name}.'
    )


@pytest.mark.parametrize("lcm", sorted(FAILURES))
def test_terminate_deletes_from_every_failure(world: World, lcm: Lcm) -> None:
    vm = world.running()
    world.cloud.index(vm, State.ACTIVE, lcm)
    world.life.act(vm, "terminate-hard")
    assert vm.lcm is Lcm.CLEANUP_DELETE
    world.after(30)
    assert vm.state is State.DONE


def test_terminate_ends_at_once_what_has_no_host_and_is_repeated_in_peace(world: World) -> None:
    waiting, held = world.create("a"), world.create("b", hold=True)
    for vm in (waiting, held):
        world.life.act(vm, "terminate-hard")
        assert vm.state is State.DONE
        world.life.act(vm, "terminate-hard")
    world.after(30)
    assert waiting.histories == []


@pytest.mark.parametrize("action", ["resume", "hold", "release"])
def test_other_actions_name_the_state_that_forbids_them(world: World, action: str) -> None:
    vm = world.running()
    with pytest.raises(RefusedError) as refusal:
        world.life.act(vm, action)
    assert str(refusal.value) == (f'Error performing action "{action}": This action is not available for state RUNNING')


def test_an_unknown_action_is_refused(world: World) -> None:
    with pytest.raises(RefusedError, match='Action "explode" is not supported'):
        world.life.act(world.running(), "explode")


def test_a_held_vm_waits_until_it_is_released(world: World) -> None:
    vm = world.create(hold=True)
    world.after(100)
    assert vm.state is State.HOLD
    world.life.act(vm, "release")
    world.after(100)
    assert vm.state_name == "RUNNING"


def test_a_persistent_one_is_cloned_first(world: World) -> None:
    vm = world.create(persistent=True)
    assert vm.state is State.CLONING
    world.after(60)
    assert vm.state_name == "RUNNING"


@pytest.mark.parametrize(
    ("step", "failed"),
    [(Step.PROLOG, "PROLOG_FAILURE"), (Step.BOOT, "BOOT_FAILURE"), (Step.CLONE, "CLONING_FAILURE")],
)
def test_steps_fail_where_failures_are_asked_for(step: Step, failed: str) -> None:
    world = failing(Failure(step, name="bad", error="no such file"))
    good, bad = (world.create(name, persistent=step is Step.CLONE) for name in ("good", "bad"))
    world.after(60)
    assert (good.state_name, bad.state_name) == ("RUNNING", failed)
    if step is not Step.CLONE:
        assert bad.user_template.get("ERROR").endswith(": no such file")


def test_a_share_of_the_vms_fails() -> None:
    world = failing(Failure(Step.BOOT, share=0.3))
    vms = [world.create(f"vm-{number}") for number in range(200)]
    world.after(60)
    failed = [vm for vm in vms if vm.lcm is Lcm.BOOT_FAILURE]
    assert 30 < len(failed) < 90


def test_a_guest_that_ignores_a_shutdown_runs_on_and_ends_by_force() -> None:
    world = failing(Failure(Step.SHUTDOWN))
    vm = world.running()
    world.life.act(vm, "terminate")
    world.after(30)
    assert vm.state_name == "RUNNING"
    world.life.act(vm, "terminate-hard")
    world.after(30)
    assert vm.state is State.DONE


def test_recover_retries_succeeds_fails_deletes_and_recreates() -> None:
    world = failing(Failure(Step.BOOT))
    vms = [world.create(f"vm-{number}") for number in range(4)]
    world.after(60)
    world.cloud.failures.clear()
    retried, believed, deleted, recreated = vms
    world.life.recover(retried, 2)
    world.life.recover(believed, 1)
    world.life.recover(deleted, 3)
    world.life.recover(recreated, 4)
    assert [vm.state_name for vm in vms] == ["BOOT", "RUNNING", "CLEANUP_DELETE", "CLEANUP_RESUBMIT"]
    world.after(60)
    assert [vm.state_name for vm in vms] == ["RUNNING", "RUNNING", "DONE", "RUNNING"]
    world.life.act(recreated, "poweroff")
    world.after(1)
    world.life.recover(recreated, 0)
    assert recreated.state_name == "RUNNING"


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (2, "Recover action is not available for state POWEROFF"),
        (4, "Cannot delete-recreate a powered off VM. Resume it first"),
    ],
)
def test_recover_is_refused_where_there_is_nothing_to_recover(world: World, operation: int, message: str) -> None:
    vm = world.running()
    world.life.act(vm, "poweroff-hard")
    world.after(30)
    with pytest.raises(RefusedError, match=message):
        world.life.recover(vm, operation)


def test_a_vm_that_is_lost_or_switches_itself_off_is_resumed(world: World) -> None:
    lost, off = world.running("a"), world.running("b")
    world.life.lose_contact(lost)
    world.life.power_down(off)
    assert (lost.state_name, off.state_name) == ("UNKNOWN", "POWEROFF")
    for vm in (lost, off):
        world.life.act(vm, "resume")
    world.after(60)
    assert (lost.state_name, off.state_name) == ("RUNNING", "RUNNING")


def test_what_was_planned_for_an_earlier_state_is_void(world: World) -> None:
    vm = world.running()
    world.life.act(vm, "poweroff")
    world.after(1)
    world.life.act(vm, "poweroff-hard")
    world.after(1.5)
    assert vm.state is State.POWEROFF
    world.life.act(vm, "resume")
    world.after(60)
    assert vm.state_name == "RUNNING"
