# SPDX-License-Identifier: Apache-2.0
"""Usage is counted once, whatever happens between the passes; what nobody could see is not charged."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from simyard.api.base import from_seconds
from simyard.api.cloud_site import Cost
from simyard.api.usage import HOUR_MILLISECONDS, UsageRow
from simyard.plan.metering import (
    MAX_CATCH_UP_MILLISECONDS,
    Account,
    MachineKey,
    Metered,
    Moment,
    RowKey,
)

EPOCH = 1_700_000_000_000
PRICE = Cost(currency="EUR", worker_hour_millis=77, core_hour_millis=13)
SITES = ("a", "b")


def at(milliseconds: int, jump: int = 0) -> Moment:
    """A time of the tests; the clock on the wall may have jumped."""
    return Moment(EPOCH + milliseconds + jump, 5_000 + milliseconds)


def row_of(site: str = "a", pool: str = "pool", currency: str = "EUR") -> RowKey:
    return RowKey(pool, "service", site, currency)


def metered(running: int, site: str = "a", pool: str = "pool", cores: int = 2, licences: int = 1) -> Metered:
    return Metered(row_of(site, pool), cores, licences, EPOCH + running)


def only(account: Account) -> UsageRow:
    (row,) = account.list_rows()
    return row


def exact_cost(row: UsageRow) -> int:
    return row.cost_millis * HOUR_MILLISECONDS + row.cost_remainder


@dataclass(frozen=True)
class Life:
    """A machine that runs from ``begin`` to ``end``."""

    site: str
    pool: str
    begin: int
    end: int
    cores: int


lives = st.builds(
    lambda site, pool, begin, length, cores: Life(site, pool, begin, begin + length, cores),
    st.sampled_from(SITES),
    st.sampled_from(("p", "q", "")),
    st.integers(0, 5_000),
    st.integers(0, 5_000),
    st.integers(1, 64),
)
END = 10_001


@dataclass
class World:
    """One operator after the other, over the same ledger; its machines as they are."""

    machines: list[Life]
    now: int = 0
    stored: list[UsageRow] = field(default_factory=list)
    account: Account = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def key(self, life: Life) -> MachineKey:
        return MachineKey(life.site, str(self.machines.index(life)))

    def restart(self) -> None:
        """A new process reads the ledger, and hears which machines there are."""
        self.account = Account(self.stored, at(self.now))
        self.hear()

    def hear(self) -> None:
        for number, life in enumerate(self.machines):
            key = MachineKey(life.site, str(number))
            if life.begin <= self.now < life.end and key not in self.account:
                machine = metered(life.begin, life.site, life.pool, life.cores)
                self.account.open(key, machine, PRICE, at(self.now))
            elif life.end <= self.now:
                self.account.close(key, at(self.now))

    def pass_to(self, time: int) -> None:
        """Let time pass; every start and end is heard when it happens."""
        events = {t for life in self.machines for t in (life.begin, life.end) if self.now < t <= time}
        for self.now in sorted({*events, time}):
            self.hear()

    def write(self) -> None:
        for site in SITES:
            self.account.advance(site, at(self.now))
        self.stored = self.account.list_rows()


def sums(rows: list[UsageRow]) -> tuple[int, int, int, int]:
    return (
        sum(row.worker_milliseconds for row in rows),
        sum(row.core_milliseconds for row in rows),
        sum(row.licence_milliseconds for row in rows),
        sum(exact_cost(row) for row in rows),
    )


def true_sums(machines: list[Life]) -> tuple[int, int, int, int]:
    workers = sum(life.end - life.begin for life in machines)
    cores = sum((life.end - life.begin) * life.cores for life in machines)
    return workers, cores, workers, workers * PRICE.worker_hour_millis + cores * PRICE.core_hour_millis


@given(st.lists(lives, max_size=8), st.lists(st.integers(0, END), max_size=8))
def test_however_often_it_is_written_the_sums_are_those_of_one_pass(machines: list[Life], writes: list[int]) -> None:
    world = World(machines)
    for time in sorted(writes):
        world.pass_to(time)
        world.write()
    world.pass_to(END)
    world.write()
    assert sums(world.stored) == true_sums(machines)
    assert all(row.workers == row.cores == row.licences == row.hour_cost_millis == 0 for row in world.stored)


@given(st.lists(lives, max_size=8), st.lists(st.tuples(st.integers(0, END), st.booleans()), max_size=8))
def test_a_crash_loses_nothing_of_what_still_runs_and_counts_nothing_twice(
    machines: list[Life], steps: list[tuple[int, bool]]
) -> None:
    """Ends are written before the crash; then nothing is lost at all."""
    world = World(machines)
    for time, writes in sorted(steps):
        ended = len([life for life in machines if world.now < life.end <= time])
        world.pass_to(time)
        if writes or ended:
            world.write()
        world.restart()
    world.pass_to(END)
    world.write()
    assert sums(world.stored) == true_sums(machines)


@given(
    st.lists(lives, max_size=8),
    st.lists(st.tuples(st.integers(0, END), st.sampled_from(("write", "crash", "away"))), max_size=10),
)
def test_at_any_crash_only_machines_that_ended_unwritten_lose_their_last_time(
    machines: list[Life], steps: list[tuple[int, str]]
) -> None:
    world = World(machines)
    most = true_sums(machines)[0]
    before = (0, 0, 0, 0)
    for time, what in sorted(steps):
        if what == "away":
            world.now = time
            world.restart()
        else:
            world.pass_to(time)
            if what == "crash":
                world.restart()
            else:
                world.write()
                assert all(new >= old for new, old in zip(sums(world.stored), before, strict=True))
                before = sums(world.stored)
        assert sums(world.account.list_rows())[0] <= most
    world.pass_to(END)
    world.write()
    last_crash = max((time for time, what in steps if what != "write"), default=-1)
    loses_at_most = sum(life.end - life.begin for life in machines if life.end <= last_crash)
    assert most - loses_at_most <= sums(world.stored)[0] <= most


@given(st.lists(st.tuples(st.integers(0, 1_000), st.integers(-(10**9), 10**9)), min_size=1, max_size=10))
def test_jumps_of_the_clock_change_nothing_in_a_process(steps: list[tuple[int, int]]) -> None:
    account = Account([], at(0))
    account.open(MachineKey("a", "0"), metered(0), PRICE, at(0))
    now = 0
    for length, jump in steps:
        now += length
        account.advance("a", at(now, jump))
        assert only(account).worker_milliseconds == now


@given(st.integers(-(10**12), 10**12), st.integers(0, 10**9))
def test_a_clock_that_is_far_off_at_a_restart_costs_no_more_than_a_week(jump: int, away: int) -> None:
    stored = Account([], at(0))
    stored.open(MachineKey("a", "0"), metered(0), PRICE, at(0))
    stored.advance("a", at(1000))
    account = Account(stored.list_rows(), at(1000 + away, jump))
    account.open(MachineKey("a", "0"), metered(0), PRICE, at(1000 + away, jump))
    assert 1000 <= only(account).worker_milliseconds <= 1000 + MAX_CATCH_UP_MILLISECONDS
    assert only(account).worker_milliseconds <= 1000 + max(0, away + jump)


def test_a_running_time_that_is_learnt_late_is_counted_in_full() -> None:
    account = Account([], at(0))
    account.open(MachineKey("a", "0"), metered(0), PRICE, at(0))
    account.advance("a", at(5000))
    account.open(MachineKey("a", "1"), metered(3000), PRICE, at(6000))
    assert only(account).worker_milliseconds == 6000 + 3000


def test_a_site_that_cannot_be_reached_is_caught_up_for_what_is_still_there() -> None:
    account = Account([], at(0))
    for number in range(2):
        account.open(MachineKey("a", str(number)), metered(0), PRICE, at(0))
        account.open(MachineKey("b", str(number)), metered(0, "b"), PRICE, at(0))
    for site in SITES:
        account.advance(site, at(1000))
    account.advance("b", at(2000))
    account.close(MachineKey("a", "0"), None)
    account.advance("a", at(3000))
    a, b = account.list_rows()
    assert (a.worker_milliseconds, a.accounted_until) == (2 * 1000 + 2000, from_seconds((EPOCH + 3000) / 1000))
    assert (b.worker_milliseconds, b.accounted_until) == (2 * 2000, from_seconds((EPOCH + 2000) / 1000))


def test_a_new_price_counts_from_then_on() -> None:
    account = Account([], at(0))
    account.open(MachineKey("a", "0"), metered(0), Cost(worker_hour_millis=1000), at(0))
    account.advance("a", at(HOUR_MILLISECONDS))
    account.reprice("a", Cost(worker_hour_millis=3000))
    account.advance("a", at(2 * HOUR_MILLISECONDS))
    row = only(account)
    assert (row.cost_millis, row.hour_cost_millis) == (4000, 3000)


def test_another_currency_makes_another_row_and_counts_no_time_twice() -> None:
    account = Account([], at(0))
    account.open(MachineKey("a", "0"), metered(0), Cost(worker_hour_millis=1000), at(0))
    account.advance("a", at(HOUR_MILLISECONDS))
    account.reprice("a", Cost(currency="USD", worker_hour_millis=2000))
    account.advance("a", at(3 * HOUR_MILLISECONDS))
    euro, dollar = account.list_rows()
    assert (euro.currency, euro.cost_millis, euro.workers) == ("EUR", 1000, 0)
    assert (dollar.currency, dollar.cost_millis, dollar.workers) == ("USD", 4000, 1)
    again = Account(account.list_rows(), at(3 * HOUR_MILLISECONDS))
    price = Cost(currency="CHF", worker_hour_millis=1000)
    again.open(MachineKey("a", "0"), Metered(row_of(currency="CHF"), 2, 1, EPOCH), price, at(4 * HOUR_MILLISECONDS))
    assert sums(again.list_rows())[0] == 4 * HOUR_MILLISECONDS
    account.close(MachineKey("a", "0"), at(3 * HOUR_MILLISECONDS))
    assert sums(account.list_rows())[0] == 3 * HOUR_MILLISECONDS


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=40), st.integers(1, 20))
def test_folding_keeps_the_sums_and_prefers_pools_that_are_gone(pools: list[tuple[int, bool]], most: int) -> None:
    account = Account([], at(0))
    for number, (pool, ends) in enumerate(pools):
        key = MachineKey("a", str(number))
        account.open(key, metered(0, pool=f"p{pool}"), PRICE, at(0))
        if ends:
            account.close(key, at(number))
    account.advance("a", at(1000))
    before = account.list_rows()
    account.fold(lambda pool: False, most + 1)
    after = account.list_rows()
    assert len(after) <= max(most + 1, 1)
    assert sums(after) == sums(before)
    assert sum(row.workers for row in after) == sum(row.workers for row in before)
    left = [row for row in after if row.pool]
    if len(before) > len(after) and any(row.workers == 0 for row in left):
        folded = {row.pool for row in before} - {row.pool for row in left}
        assert not any(row.workers for row in before if row.pool in folded), "what runs is folded last"
    for number in range(len(pools)):
        account.close(MachineKey("a", str(number)), at(1000))
    assert sum(row.workers for row in account.list_rows()) == 0


def test_a_pool_that_exists_is_folded_after_those_that_do_not() -> None:
    account = Account([], at(0))
    for number, pool in enumerate(("kept", "old", "older")):
        account.open(MachineKey("a", str(number)), metered(0, pool=pool), PRICE, at(0))
        account.close(MachineKey("a", str(number)), at(1000 - number))
    account.fold(lambda pool: pool == "kept", 2)
    assert {row.pool for row in account.list_rows()} == {"", "kept"}


def test_a_machine_of_a_folded_pool_is_not_counted_again_after_a_restart() -> None:
    account = Account([], at(0))
    account.open(MachineKey("a", "0"), metered(0, pool="old"), PRICE, at(0))
    account.close(MachineKey("a", "0"), at(1000))
    account.fold(lambda pool: False, 0)
    again = Account(account.list_rows(), at(2000))
    again.open(MachineKey("a", "0"), metered(0, pool="old"), PRICE, at(2000))
    assert sums(again.list_rows())[0] == 2000


@given(
    st.lists(lives, max_size=6),
    st.lists(st.tuples(st.integers(0, END), st.integers(0, 1), st.booleans()), max_size=12),
)
def test_two_operators_that_write_over_each_other_count_everything_once(
    machines: list[Life], steps: list[tuple[int, int, bool]]
) -> None:
    """Each sees all machines; when the other one has written meanwhile, it goes on from what that one wrote."""
    worlds = (World(machines), World(machines))
    bases: list[list[UsageRow]] = [[], []]
    stored: list[UsageRow] = []
    for time, which, lost_answer in [*sorted(steps), (END, 0, False), (END, 1, False)]:
        for world in worlds:
            world.pass_to(time)
        world = worlds[which]
        if bases[which] != stored:
            world.account = world.account.rebase(stored, lambda _: PRICE, lambda _: True, at(time))
        world.write()
        stored = world.stored
        if not lost_answer:
            bases[which] = stored
            world.account.closed.clear()
    assert sums(stored) == true_sums(machines)


def test_an_account_that_was_just_read_differs_where_something_runs_and_only_there() -> None:
    first = Account([], at(0))
    first.open(MachineKey("a", "1"), metered(0, "a"), PRICE, at(0))
    rows = first.list_rows()
    assert not first.differs(rows, "a")
    second = Account(rows, at(10))
    assert second.differs(rows, "a")
    assert not second.differs(rows, "b")
    second.open(MachineKey("a", "2"), metered(0, "a"), PRICE, at(10))
    assert not second.differs(rows, "a"), "as many run, whichever they are"


def test_the_status_says_how_many_run_and_the_latest_time() -> None:
    account = Account([], at(0))
    assert (account.build_status().workers, account.build_status().accounted_until) == (0, None)
    account.open(MachineKey("a", "1"), metered(0, "a"), PRICE, at(0))
    account.open(MachineKey("b", "1"), metered(0, "b"), PRICE, at(0))
    account.advance("b", at(2_000))
    status = account.build_status()
    assert (status.workers, status.accounted_until) == (2, from_seconds((EPOCH + 2_000) / 1000))
