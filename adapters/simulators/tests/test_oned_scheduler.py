# SPDX-License-Identifier: Apache-2.0
"""When PENDING VMs get a host: windows, limits of actions, capacity, requirements."""

import dataclasses

import pytest
from oned_world import World

from simyard_simulators.oned import MM_SCHED, STOCK, WIDE, Scheduler, Settings, State


def world(scheduler: Scheduler, hosts: int = 40, **more: int) -> World:
    return World(Settings(scheduler=scheduler, hosts=hosts, **more))


def placed(world: World) -> int:
    return sum(vm.state is not State.PENDING for vm in world.cloud.vms.values())


def test_the_stock_scheduler_places_7_vms_per_10_seconds() -> None:
    here = world(STOCK)
    for number in range(20):
        here.create(f"vm-{number}")
    counts = []
    for _ in range(4):
        here.after(0.1)
        counts.append(placed(here))
        here.after(9.9)
    assert counts == [7, 14, 20, 20]


def test_fewer_than_7_wait_for_the_window_to_end() -> None:
    here = world(STOCK)
    here.create()
    here.after(9.9)
    assert placed(here) == 0
    here.after(0.2)
    assert placed(here) == 1


def test_a_host_takes_one_deployment_after_the_other_as_installed() -> None:
    here = world(STOCK, hosts=2)
    for number in range(6):
        here.create(f"vm-{number}")
    here.after(10.1)
    assert [host.deploying for host in here.cloud.hosts.values()] == [1, 1]
    assert placed(here) == 2
    here.after(5.0)
    assert placed(here) == 4


def test_the_scheduler_of_5_12_to_6_10_gives_each_host_one_vm_per_15_seconds() -> None:
    here = world(MM_SCHED, hosts=4)
    for number in range(10):
        here.create(f"vm-{number}")
    counts = []
    for _ in range(3):
        here.after(15.1)
        counts.append(placed(here))
    assert counts == [4, 8, 10]


def test_a_wide_scheduler_places_all_at_once() -> None:
    here = world(WIDE)
    for number in range(500):
        here.create(f"vm-{number}")
    here.after(0)
    assert placed(here) == 500


def test_a_time_scale_shortens_the_windows() -> None:
    here = World(Settings(scheduler=STOCK, time_scale=0.01, hosts=40))
    here.create()
    here.after(0.11)
    assert placed(here) == 1


@pytest.mark.parametrize(
    ("hosts", "extra", "message"),
    [
        (0, "", "Cannot dispatch VM: No hosts enabled to run VMs"),
        (1, 'CPU="100"', "Cannot dispatch VM: No host with enough capacity to deploy the VM"),
        (
            1,
            'SCHED_REQUIREMENTS="CLUSTER_ID = 7"',
            "Cannot dispatch VM: No host meets capacity and SCHED_REQUIREMENTS: CLUSTER_ID = 7",
        ),
    ],
)
def test_a_vm_that_fits_nowhere_stays_pending_and_says_why(hosts: int, extra: str, message: str) -> None:
    here = world(WIDE, hosts=hosts)
    vm = here.create(extra=extra)
    here.after(1)
    assert vm.state is State.PENDING
    assert vm.user_template.get("SCHED_MESSAGE").endswith(message)
    assert "SCHED_MESSAGE" in vm.short_xml()


def test_it_is_placed_when_there_is_room_again() -> None:
    here = world(WIDE, hosts=1, cores_per_host=1)
    first = here.running("first")
    second = here.create("second")
    here.after(1)
    assert second.state is State.PENDING
    here.life.act(first, "terminate-hard")
    here.after(60)
    assert second.state_name == "RUNNING"
    assert second.user_template.get("SCHED_MESSAGE") == ""


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        ('ID=\\"1\\"', {1}),
        ("ID=1 | ID=2", {1, 2}),
        ('!(NAME = \\"node0\\") & CLUSTER_ID=0', {1, 2}),
        ("ID != 0 & ID != 2", {1}),
        ('HYPERVISOR=\\"kvm\\"', {0, 1, 2}),
        ("ID ~ 3", set()),
        ("(ID=1", set()),
    ],
)
def test_requirements_choose_hosts(requirements: str, expected: set[int]) -> None:
    here = world(WIDE, hosts=3)
    vms = [here.create(f"vm-{number}", f'SCHED_REQUIREMENTS="{requirements}"') for number in range(12)]
    here.after(1)
    assert {vm.host for vm in vms if vm.host is not None} == expected


def test_vms_are_spread_over_the_hosts() -> None:
    here = world(dataclasses.replace(WIDE), hosts=4)
    for number in range(40):
        here.create(f"vm-{number}")
    here.after(1)
    assert [len(host.vms) for host in here.cloud.hosts.values()] == [10, 10, 10, 10]
