# SPDX-License-Identifier: Apache-2.0
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from simyard_dev.providers import make_emulated_settings
from simyard_sites.emulated.scheduler import Scheduler
from simyard_sites.emulated.settings import Settings

LIMITS = st.builds(
    Settings,
    time_scale_percent=st.integers(1, 200),
    interval_milliseconds=st.sampled_from([0, 1000]),
    machines_per_interval=st.integers(0, 5),
    machines_per_host_and_interval=st.integers(0, 2),
    hosts=st.integers(0, 4),
    machines_per_host=st.integers(0, 3),
)
NEWS = st.lists(st.sampled_from(["add", "drop", "release", "wait"]), max_size=60)


@given(LIMITS, NEWS)
def test_it_keeps_every_limit_and_leaves_nobody_waiting_who_has_room(limits: Settings, news: list[str]) -> None:
    scheduler = Scheduler()
    now, added = 0.0, 0
    waiting: dict[str, None] = {}
    on_hosts: list[tuple[str, int]] = []
    room = limits.hosts * limits.machines_per_host
    for what in [*news, *["wait"] * 70]:
        if what == "add":
            waiting[f"m{added}"] = None
            scheduler.add(f"m{added}", limits, now)
            added += 1
        elif what == "drop" and waiting:
            machine_id = next(iter(waiting))
            del waiting[machine_id]
            scheduler.drop(machine_id)
        elif what == "release" and on_hosts:
            scheduler.release(on_hosts.pop(0)[1], limits, now)
        elif what == "wait" and scheduler.next_run is not None:
            assert scheduler.next_run >= now
            now = scheduler.next_run
            placed = scheduler.run(limits, now).machines
            assert [machine_id for machine_id, _ in placed] == list(waiting)[: len(placed)]
            for machine_id, host in placed:
                del waiting[machine_id]
                assert (host is None) == (not limits.hosts)
                if host is not None:
                    on_hosts.append((machine_id, host))
            assert not limits.machines_per_interval or len(placed) <= limits.machines_per_interval
            per_run = Counter(host for _, host in placed if host is not None)
            most = limits.machines_per_host_and_interval
            assert not most or all(count <= most for count in per_run.values())
            loads = Counter(host for _, host in on_hosts)
            assert not limits.machines_per_host or all(load <= limits.machines_per_host for load in loads.values())
    assert not waiting or len(on_hosts) == room


def test_machines_go_to_the_host_with_the_fewest() -> None:
    scheduler = Scheduler()
    limits = make_emulated_settings(hosts=3)
    for number in range(6):
        scheduler.add(f"m{number}", limits, 0.0)
    assert Counter(host for _, host in scheduler.run(limits, 0.0).machines) == {0: 2, 1: 2, 2: 2}
    scheduler.release(1, limits, 1.0)
    scheduler.add("last", limits, 1.0)
    assert scheduler.run(limits, 1.0).machines == [("last", 1)]


def test_after_a_pause_it_runs_half_an_interval_later_and_keeps_its_beat_while_there_is_work() -> None:
    scheduler = Scheduler()
    limits = make_emulated_settings(interval_milliseconds=30_000, machines_per_interval=1)
    scheduler.add("a", limits, 100.0)
    scheduler.add("b", limits, 101.0)
    assert scheduler.next_run == 115.0
    scheduler.run(limits, 115.0)
    assert scheduler.next_run == 145.0
    scheduler.run(limits, 145.0)
    assert scheduler.next_run is None
    scheduler.add("c", limits, 150.0)
    assert scheduler.next_run == 175.0


def test_it_says_once_for_whom_there_is_no_room_and_places_them_first_when_there_is() -> None:
    scheduler = Scheduler()
    limits = make_emulated_settings(hosts=1, machines_per_host=1)
    for name in ("a", "b"):
        scheduler.add(name, limits, 0.0)
    run = scheduler.run(limits, 0.0)
    assert (run.machines, run.stuck) == ([("a", 0)], ["b"])
    scheduler.add("c", limits, 1.0)
    assert scheduler.run(limits, 1.0).stuck == ["c"]
    scheduler.release(0, limits, 2.0)
    assert scheduler.run(limits, 2.0).machines == [("b", 0)]
