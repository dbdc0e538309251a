# SPDX-License-Identifier: Apache-2.0
import dataclasses

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from simyard_dev.providers import make_emulated_settings
from simyard_sites.base import (
    Address,
    ConflictError,
    Machine,
    MachineNotFoundError,
    MachineState,
    Owner,
    PowerAction,
    Stage,
)
from simyard_sites.emulated.cloud import Change, Cloud, GuestOrder
from simyard_sites.emulated.settings import Settings

OWNER = Owner("default", "worker", "uid")
SLOW = make_emulated_settings(pending_milliseconds=1000, prolog_milliseconds=2000, boot_milliseconds=3000)
ROOM = 2
LIMITED = make_emulated_settings(
    boot_milliseconds=500,
    requests_per_second=4,
    requests_per_machine=2,
    request_burst=3,
    interval_milliseconds=1000,
    machines_per_interval=2,
    threads=1,
    operation_milliseconds=700,
    hosts=ROOM,
    operations_per_host=1,
    machines_per_host=1,
)
STAGES = (Stage.PENDING, Stage.PROLOG, Stage.BOOT, Stage.RUNNING)


def states(cloud: Cloud) -> list[MachineState]:
    return [machine.state for machine in seen(cloud)]


def seen(cloud: Cloud) -> list[Machine]:
    return [machine for machine in map(cloud.find_machine, cloud.list_ids()) if machine]


def test_without_jitter_each_stage_lasts_exactly_its_latency() -> None:
    cloud = Cloud(SLOW)
    machine = cloud.create("a", OWNER, 100.0)
    assert (machine.id, machine.state, cloud.get_next_change()) == ("0", MachineState.PENDING, 101.0)
    assert machine.addresses == ()
    cloud.advance(500.0)
    [machine] = seen(cloud)
    assert machine.state is MachineState.RUNNING
    assert machine.addresses == (Address("198.18.0.1", "eth0"),)
    assert [machine.entered[stage] for stage in STAGES] == [100.0, 101.0, 103.0, 106.0]
    assert cloud.get_next_change() is None


@pytest.mark.parametrize(
    ("now", "state"),
    [
        (100.9, MachineState.PENDING),
        (101.0, MachineState.PROLOG),
        (103.0, MachineState.BOOT),
        (106.0, MachineState.RUNNING),
    ],
)
def test_a_machine_deleted_in_any_stage_terminates_and_is_gone_when_its_guest_has_ended(
    now: float, state: MachineState
) -> None:
    cloud = Cloud(SLOW)
    cloud.create("a", OWNER, 100.0)
    cloud.advance(now)
    assert states(cloud) == [state]
    cloud.delete("0")
    assert cloud.advance(now) == [Change("0", "a", guest=GuestOrder.END)]
    assert cloud.advance(now + 1000) == []
    assert states(cloud) == [MachineState.TERMINATING]
    cloud.record_guest_end("0", now)
    assert cloud.advance(now) == [Change("0", "a", gone=True)]
    assert len(cloud) == 0


def test_create_adopts_the_machine_of_the_same_name_and_a_later_one_gets_a_new_id() -> None:
    cloud = Cloud(make_emulated_settings())
    cloud.create("a", OWNER, 1.0)
    cloud.advance(2.0)
    machine = cloud.create("a", OWNER, 3.0)
    assert (machine.id, machine.state, len(cloud)) == ("0", MachineState.RUNNING, 1)
    cloud.delete("0")
    cloud.record_guest_end("0", 4.0)
    assert cloud.create("a", OWNER, 5.0).id == "1"


def test_jitter_stays_within_its_percentage_and_depends_on_the_name_alone() -> None:
    runs = []
    for _ in range(2):
        cloud = Cloud(make_emulated_settings(boot_milliseconds=1000, jitter_percent=20))
        for number in range(200):
            cloud.create(f"m{number}", OWNER, 0.0)
        cloud.advance(2.0)
        runs.append([machine.entered[Stage.RUNNING] for machine in seen(cloud)])
    assert runs[0] == runs[1]
    assert min(runs[0]) >= 0.8
    assert max(runs[0]) <= 1.2
    assert max(runs[0]) - min(runs[0]) > 0.35


@pytest.mark.parametrize(("percent", "least", "most"), [(0, 0, 0), (10, 60, 140), (100, 1000, 1000)])
def test_as_many_machines_fail_as_the_settings_say_and_they_say_that_it_is_emulated(
    percent: int, least: int, most: int
) -> None:
    cloud = Cloud(make_emulated_settings(failure_percent=percent))
    for number in range(1000):
        cloud.create(f"m{number}", OWNER, 0.0)
    cloud.advance(0.0)
    failed = [machine for machine in seen(cloud) if machine.state is MachineState.FAILED]
    assert least <= len(failed) <= most
    assert all("emulated" in machine.message and machine.reason == "EmulatedFailure" for machine in failed)
    assert states(cloud).count(MachineState.RUNNING) == 1000 - len(failed)


def test_changed_settings_hold_from_the_next_stage_on() -> None:
    cloud = Cloud(SLOW)
    cloud.create("a", OWNER, 0.0)
    cloud.configure(make_emulated_settings(prolog_milliseconds=10_000), 0.0)
    cloud.advance(10.9)
    assert states(cloud) == [MachineState.PROLOG]
    cloud.advance(11.0)
    assert states(cloud) == [MachineState.RUNNING]


def test_a_restart_ends_the_guest_before_the_machine_boots_and_keeps_the_times_of_the_first_start() -> None:
    cloud = Cloud(make_emulated_settings(boot_milliseconds=1000))
    cloud.create("a", OWNER, 0.0)
    cloud.advance(1.0)
    cloud.act("0", PowerAction.RESTART, 10.0)
    cloud.act("0", PowerAction.RESTART, 10.0)
    assert cloud.advance(20.0) == [Change("0", "a", guest=GuestOrder.END)]
    cloud.record_guest_end("0", 20.0)
    cloud.advance(20.5)
    assert states(cloud) == [MachineState.BOOT]
    assert cloud.advance(21.0)[-1] == Change("0", "a", guest=GuestOrder.RUN)
    assert seen(cloud)[0].entered[Stage.RUNNING] == 1.0


def test_an_action_that_leads_nowhere_is_a_conflict_and_names_the_state() -> None:
    cloud = Cloud(SLOW)
    cloud.create("a", OWNER, 0.0)
    with pytest.raises(ConflictError, match="cannot stop machine 0: it is Pending"):
        cloud.act("0", PowerAction.STOP, 0.0)
    with pytest.raises(MachineNotFoundError):
        cloud.act("1", PowerAction.START, 0.0)


def test_a_machine_that_still_stops_can_be_started_only_when_it_has() -> None:
    cloud = Cloud(make_emulated_settings())
    cloud.create("a", OWNER, 0.0)
    cloud.advance(0.0)
    cloud.act("0", PowerAction.STOP, 1.0)
    with pytest.raises(ConflictError, match="it is Stopped or about to be"):
        cloud.act("0", PowerAction.START, 1.0)
    assert states(cloud) == [MachineState.RUNNING]
    cloud.record_guest_end("0", 2.0)
    cloud.act("0", PowerAction.START, 2.0)
    cloud.advance(2.0)
    assert states(cloud) == [MachineState.RUNNING]


def test_a_machine_waits_for_the_scheduler_then_for_a_thread_and_its_host() -> None:
    cloud = Cloud(
        make_emulated_settings(
            interval_milliseconds=10_000,
            threads=2,
            operation_milliseconds=3000,
            hosts=1,
            operations_per_host=1,
            boot_milliseconds=1000,
        )
    )
    for name in "abc":
        cloud.create(name, OWNER, 100.0)
    cloud.advance(200.0)
    entered = [[machine.entered[stage] - 100 for stage in STAGES] for machine in seen(cloud)]
    assert entered == [[0, 5, 8, 9], [0, 5, 11, 12], [0, 5, 14, 15]]


def test_a_machine_without_room_stays_pending_and_says_why_until_there_is_some() -> None:
    cloud = Cloud(make_emulated_settings(hosts=1, machines_per_host=1))
    cloud.create("a", OWNER, 0.0)
    cloud.create("b", OWNER, 0.0)
    assert cloud.advance(0.0).count(Change("1", "b")) == 2
    assert [(machine.state, machine.reason) for machine in seen(cloud)] == [
        (MachineState.RUNNING, ""),
        (MachineState.PENDING, "Unschedulable"),
    ]
    assert "emulated: no host has room" in seen(cloud)[1].message
    cloud.delete("0")
    cloud.record_guest_end("0", 1.0)
    cloud.advance(1.0)
    assert [(machine.state, machine.reason, machine.message) for machine in seen(cloud)] == [
        (MachineState.RUNNING, "", "")
    ]


def test_a_machine_without_room_is_placed_when_the_cloud_gets_more_hosts() -> None:
    cloud = Cloud(make_emulated_settings(hosts=1, machines_per_host=1))
    cloud.create("a", OWNER, 0.0)
    cloud.create("b", OWNER, 0.0)
    cloud.advance(0.0)
    cloud.configure(make_emulated_settings(hosts=2, machines_per_host=1), 1.0)
    cloud.advance(1.0)
    assert states(cloud) == [MachineState.RUNNING] * 2


@pytest.mark.parametrize(("percent", "least", "most"), [(0, 0, 0), (10, 60, 140), (100, 1000, 1000)])
def test_as_many_events_and_answers_are_lost_as_the_settings_say_by_the_names_alone(
    percent: int, least: int, most: int
) -> None:
    runs = []
    for _ in range(2):
        cloud = Cloud(make_emulated_settings(lost_events_percent=percent, lost_answers_percent=percent))
        for number in range(1000):
            cloud.create(f"m{number}", OWNER, 0.0)
        told = [(change.id, change.lost) for change in cloud.advance(0.0) if change.guest is GuestOrder.RUN]
        runs.append((told, [cloud.draw_lost_answer(f"m{number}", "create") for number in range(1000)]))
    assert runs[0] == runs[1]
    told, answers = runs[0]
    assert least <= sum(is_lost for _, is_lost in told) <= most
    assert least <= sum(answers) <= most


def test_a_forgotten_machine_ends_and_is_gone_without_a_word() -> None:
    cloud = Cloud(make_emulated_settings())
    cloud.create("a", OWNER, 0.0)
    cloud.advance(0.0)
    cloud.forget("0", 1.0)
    assert cloud.advance(1.0) == [
        Change("0", "a", guest=GuestOrder.END, lost=True),
        Change("0", "a", gone=True, lost=True),
    ]
    assert len(cloud) == 0


def test_a_resurrected_machine_runs_under_its_old_id_and_can_be_deleted_again() -> None:
    cloud = Cloud(make_emulated_settings())
    cloud.create("a", OWNER, 0.0)
    with pytest.raises(MachineNotFoundError):
        cloud.resurrect("0", 0.0)
    for _ in range(2):
        cloud.delete("0")
        cloud.record_guest_end("0", 1.0)
        cloud.advance(1.0)
        assert (cloud.resurrect("0", 2.0).id, states(cloud)) == ("0", [MachineState.RUNNING])
        assert cloud.advance(2.0) == [Change("0", "a")]


class AnyHistory(RuleBasedStateMachine):
    """Anything may happen at any time; beside the cloud we keep what its orders make of the guests."""

    settings = SLOW

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.cloud = Cloud(self.settings)
        self.guests: dict[str, GuestOrder] = {}
        self.created = 0
        self.entered: dict[str, dict[Stage, float]] = {}

    def look(self) -> None:
        for change in self.cloud.advance(self.now):
            if change.gone and change.lost:
                assert self.guests.pop(change.id) is GuestOrder.END
            elif change.gone:
                assert change.id not in self.guests
                assert self.cloud.find_machine(change.id) is None
            elif change.guest:
                assert self.guests.get(change.id) is not GuestOrder.END or change.guest is GuestOrder.END
                self.guests[change.id] = change.guest

    @rule(name=st.sampled_from("abc"))
    def create(self, name: str) -> None:
        before = {machine.name: machine.id for machine in seen(self.cloud)}
        machine = self.cloud.create(name, OWNER, self.now)
        assert machine.id == before.get(name, str(self.created))
        self.created += name not in before
        self.look()

    @rule(number=st.integers(0, 5))
    def delete(self, number: int) -> None:
        self.cloud.delete(str(number))
        self.look()

    @rule(number=st.integers(0, 5))
    def forget(self, number: int) -> None:
        self.cloud.forget(str(number), self.now)
        self.look()

    @rule(number=st.integers(0, 5), action=st.sampled_from(PowerAction))
    def act(self, number: int, action: PowerAction) -> None:
        try:
            self.cloud.act(str(number), action, self.now)
            self.cloud.act(str(number), action, self.now)  # safe to repeat
        except (ConflictError, MachineNotFoundError):
            pass
        self.look()

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 10.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.look()

    @precondition(lambda self: GuestOrder.END in self.guests.values())
    @rule()
    def end_guests(self) -> None:
        for machine_id in [key for key, order in self.guests.items() if order is GuestOrder.END]:
            del self.guests[machine_id]
            self.cloud.record_guest_end(machine_id, self.now)
        self.look()

    @rule(number=st.integers(0, 5))
    def fail(self, number: int) -> None:
        if self.guests.get(str(number)) is GuestOrder.RUN:
            del self.guests[str(number)]
            self.cloud.fail(str(number), "GuestUnusable", "it can never work")
        self.look()

    @invariant()
    def stages_are_entered_in_order_and_once(self) -> None:
        for machine in seen(self.cloud):
            times = [machine.entered[stage] for stage in STAGES if stage in machine.entered]
            assert times == sorted(times)
            assert list(machine.entered) == list(STAGES[: len(times)])
            before = self.entered.get(machine.id, {})
            assert dict(list(machine.entered.items())[: len(before)]) == before
            self.entered[machine.id] = dict(machine.entered)

    @invariant()
    def guests_are_as_the_states_say(self) -> None:
        wanted = {MachineState.RUNNING: GuestOrder.RUN, MachineState.SUSPENDED: GuestOrder.FREEZE}
        for machine in seen(self.cloud):
            order = self.guests.get(machine.id)
            if order is not GuestOrder.END:
                assert order is wanted.get(machine.state)

    def teardown(self) -> None:
        for machine_id in self.cloud.list_ids():
            self.cloud.delete(machine_id)
        self.look()
        self.end_guests()
        assert len(self.cloud) == 0
        for number in range(ROOM):
            self.cloud.create(f"last-{number}", OWNER, self.now)
        self.cloud.advance(self.now + 100)
        assert states(self.cloud) == [MachineState.RUNNING] * ROOM


class AnyHistoryWithinLimits(AnyHistory):
    """The same in a cloud with a controller, a scheduler, threads and little room."""

    settings = LIMITED


TestAnyHistory = AnyHistory.TestCase
TestAnyHistoryWithinLimits = AnyHistoryWithinLimits.TestCase
for history in (TestAnyHistory, TestAnyHistoryWithinLimits):
    history.settings = settings(stateful_step_count=30)


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 100))),
    st.lists(st.floats(0, 20), max_size=5),
    st.sampled_from([make_emulated_settings(), LIMITED]),
)
def test_how_often_the_clock_is_looked_at_changes_nothing(
    latencies: list[tuple[int, int, int, int]], looks: list[float], limits: Settings
) -> None:
    often, once = Cloud(limits), Cloud(limits)
    for number, (pending, prolog, boot, jitter) in enumerate(latencies):
        for cloud in (often, once):
            limited = dataclasses.replace(
                limits,
                pending_milliseconds=pending,
                prolog_milliseconds=prolog,
                boot_milliseconds=boot,
                jitter_percent=jitter,
            )
            cloud.configure(limited, 0.0)
            cloud.create(f"m{number}", OWNER, 0.0)
    for now in sorted(looks):
        often.advance(now)
    often.advance(40.0)
    once.advance(40.0)
    assert seen(often) == seen(once)
