# SPDX-License-Identifier: Apache-2.0
"""What is known of machines."""

from hypothesis import given
from hypothesis import strategies as st

from simyard_sites.base import MachineState, Owner
from simyard_sites.opennebula.ownership import Ownership
from simyard_sites.opennebula.records import VmRecord
from simyard_sites.opennebula.table import Table

PENDING, ACTIVE, DONE, POWEROFF = 1, 3, 6, 8
BOOT, RUNNING, SHUTDOWN = 2, 3, 12


def table() -> Table:
    return Table(Ownership("default", "here"), lambda: 100.0)


def vm(machine_id: int, name: str = "", state: int = ACTIVE, lcm_state: int = RUNNING, ours: bool = True) -> VmRecord:
    name = name or f"m{machine_id}"
    labels = Ownership("default", "here" if ours else "there").label(Owner("default", name, f"uid-{name}"))
    return VmRecord(machine_id, name, state, lcm_state, labels=labels)


def ask(known: Table, *records: VmRecord) -> None:
    known.apply_records(records, known.begin_query())


def test_machines_of_others_are_not_there() -> None:
    known = table()
    ask(known, vm(1), vm(2, ours=False), VmRecord(3, "x", ACTIVE, RUNNING))
    assert [machine.id for machine in known.list_machines()] == ["1"]
    assert known.next_id == 4


def test_a_machine_whose_labels_somebody_took_away_is_still_ours() -> None:
    known = table()
    ask(known, vm(1))
    ask(known, VmRecord(1, "renamed", POWEROFF, 0))
    [machine] = known.list_machines()
    assert (machine.name, machine.state) == ("m1", MachineState.STOPPED)


def test_of_two_machines_of_a_name_the_lower_id_is_the_machine_in_whatever_order_they_come() -> None:
    for records in ((vm(0, "a"), vm(5, "a")), (vm(5, "a"), vm(0, "a"))):
        known = table()
        for record in records:
            ask(known, record)
        ask(known, *records)
        found = known.find_by_name("a")
        assert found is not None and found.id == "0"
        assert [machine.id for machine in known.list_machines()] == ["0"]
        assert known.duplicates == {5}


@given(st.permutations([3, 1, 4, 0, 5]), st.integers(0, 4))
def test_all_who_look_agree_on_the_machine_of_a_name(ids: list[int], together: int) -> None:
    known = table()
    ask(known, *(vm(machine_id, "a") for machine_id in ids[:together]))
    for machine_id in ids[together:]:
        ask(known, vm(machine_id, "a"))
    assert known.list_ids() == [0]
    assert known.duplicates == {1, 3, 4, 5}


def test_who_was_told_of_a_duplicate_is_told_that_it_is_gone() -> None:
    known = table()
    changes = known.add_listener()
    ask(known, vm(5, "a"))
    assert changes.collect() == {5: "a"}
    ask(known, vm(2, "a"))
    assert changes.collect() == {5: "a", 2: "a"}
    assert known.get(5) is None
    ask(known, vm(5, "a", DONE))
    assert known.duplicates == set()


def test_an_answer_to_an_earlier_question_is_older_news() -> None:
    known = table()
    early, late = known.begin_query(), known.begin_query()
    known.apply_records([vm(1)], late)
    known.apply_records([vm(1, state=PENDING, lcm_state=0)], early)
    assert known.list_machines()[0].state is MachineState.RUNNING


def test_a_machine_that_is_gone_stays_gone() -> None:
    known = table()
    early = known.begin_query()
    ask(known, vm(1))
    ask(known, vm(1, state=DONE))
    known.apply_records([vm(1)], early)
    known.add_accepted(1, "m1", Owner("default", "m1", "uid-m1"))
    assert known.list_machines() == []
    assert known.find_by_name("m1") is None


def test_a_machine_that_was_asked_for_before_it_was_made_can_be_made() -> None:
    known = table()
    known.finish([1])
    ask(known, vm(1))
    assert known.list_ids() == [1]


def test_nothing_is_told_where_nothing_changed() -> None:
    known = table()
    ask(known, vm(1))
    changes = known.add_listener()
    ask(known, vm(1))
    assert changes.collect() == {}


def test_what_moves_is_known_and_what_rests_is_not_looked_at_often() -> None:
    known = table()
    ask(known, vm(1), vm(2, lcm_state=BOOT), vm(3, state=PENDING, lcm_state=0), vm(4, lcm_state=36))
    assert known.moving == {2, 3}
    known.expect_change([1])
    ask(known, vm(1), vm(2))
    assert known.moving == {1, 3}
    ask(known, vm(1, lcm_state=SHUTDOWN))
    assert known.moving == {1, 3}
    ask(known, vm(1, state=DONE))
    assert known.moving == {3}


def test_the_lowest_id_that_a_sweep_must_begin_with() -> None:
    known = table()
    assert known.first_id == 0
    ask(known, vm(0), vm(7))
    assert known.first_id == 0
    known.finish([0])
    assert known.first_id == 7
    known.finish([7])
    assert known.first_id == 8
