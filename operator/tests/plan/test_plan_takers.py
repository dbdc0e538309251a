# SPDX-License-Identifier: Apache-2.0
"""A few workers of a pool take from its queue; all do once it is used."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from simyard.plan.takers import STANDING_TAKERS, PoolTakers

UIDS = [f"w{number}" for number in range(3 * STANDING_TAKERS)]
NUMBERS = st.integers(0, len(UIDS) - 1)


class Pool(RuleBasedStateMachine):
    """Pool whose workers appear, leave, work and reconnect, and whose takers follow the plan."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = PoolTakers()
        self.ready: set[str] = set()
        self.told: set[str] = set()
        self.busy: set[str] = set()
        self.used = False

    def place(self, *uids: str) -> None:
        for uid in uids:
            self.plan.set_state(uid, ready=uid in self.ready, told=uid in self.told, busy=uid in self.busy)

    @rule(first=NUMBERS, count=NUMBERS)
    def become_ready(self, first: int, count: int) -> None:
        self.ready.update(UIDS[first : first + count])
        self.place(*UIDS[first : first + count])

    @rule(first=NUMBERS, count=NUMBERS)
    def go_or_drain(self, first: int, count: int) -> None:
        self.ready.difference_update(UIDS[first : first + count])
        self.place(*UIDS[first : first + count])

    @rule(first=NUMBERS, count=NUMBERS)
    def register_anew(self, first: int, count: int) -> None:
        self.told.difference_update(UIDS[first : first + count])
        self.place(*UIDS[first : first + count])

    @rule(first=NUMBERS, count=NUMBERS)
    def begin(self, first: int, count: int) -> None:
        self.busy.update(UIDS[first : first + count])
        self.place(*UIDS[first : first + count])

    @rule(first=NUMBERS, count=NUMBERS)
    def end(self, first: int, count: int) -> None:
        self.busy.difference_update(UIDS[first : first + count])
        self.place(*UIDS[first : first + count])

    @rule()
    def use(self) -> None:
        self.used = True

    @rule(most=st.integers(1, len(UIDS)))
    def tell(self, most: int) -> None:
        chosen = self.plan.choose_to_tell(used=self.used, most=most)
        assert len(chosen) == len(set(chosen)) <= most
        assert set(chosen) <= self.ready - self.told
        if not self.used:
            assert not set(chosen) & self.busy
            before = len((self.told & self.ready) - self.busy)
            assert not chosen or before + len(chosen) <= STANDING_TAKERS, "no more than are needed"
        self.told.update(chosen)
        self.place(*chosen)

    @invariant()
    def nobody_is_missing_when_there_is_nobody_to_tell(self) -> None:
        if self.plan.choose_to_tell(used=self.used, most=1):
            return
        if self.used:
            assert self.ready <= self.told
        free = self.ready - self.busy
        assert len(free & self.told) >= min(STANDING_TAKERS, len(free))

    @invariant()
    def nothing_is_kept_of_a_pool_without_workers(self) -> None:
        assert self.ready or not self.plan


TestPool = Pool.TestCase


@given(st.integers(0, STANDING_TAKERS), st.booleans())
def test_all_workers_of_a_small_pool_take(replicas: int, used: bool) -> None:
    plan = PoolTakers()
    for uid in UIDS[:replicas]:
        plan.set_state(uid, ready=True, told=False, busy=False)
    assert sorted(plan.choose_to_tell(used=used, most=100)) == sorted(UIDS[:replicas])
