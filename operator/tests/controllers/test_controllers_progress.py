# SPDX-License-Identifier: Apache-2.0
"""Whether kopf makes progress, as the objects show that wait for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from simyard.api.base import Metadata
from simyard.api.names import FINALIZER
from simyard.controllers.progress import FinalizerProgress


@dataclass
class Item:
    """An object."""

    metadata: Metadata


@dataclass
class Clock:
    """Seconds that a test sets."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Objects:
    """FinalizerProgress that are told of objects."""

    clock: Clock = field(default_factory=Clock)
    known: dict[str, Item] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.progress = FinalizerProgress(self.clock)

    def become(self, uid: str, *, finalizer: bool, deleted: bool = False) -> None:
        when = datetime(2026, 1, 1, tzinfo=UTC) if deleted else None
        finalizers = [FINALIZER] if finalizer else []
        item = Item(Metadata(name=uid, uid=uid, finalizers=finalizers, deletion_timestamp=when))
        self.progress.apply_change(self.known.get(uid), item)
        self.known[uid] = item

    def go(self, uid: str) -> None:
        self.progress.apply_change(self.known.pop(uid), None)


def test_objects_without_a_finalizer_and_deleted_ones_with_it_wait() -> None:
    objects = Objects()
    objects.become("new", finalizer=False)
    objects.clock.seconds = 10
    assert objects.progress.measure_stalled_seconds() == 10
    objects.become("new", finalizer=True)
    assert objects.progress.measure_stalled_seconds() == 0
    objects.become("new", finalizer=True, deleted=True)
    objects.clock.seconds = 25
    assert objects.progress.measure_stalled_seconds() == 15
    objects.go("new")
    assert objects.progress.measure_stalled_seconds() == 0


def test_many_that_wait_while_others_move_on_are_no_standstill() -> None:
    objects = Objects()
    for index in range(100):
        objects.become(f"pool-{index}", finalizer=False)
    for index in range(99):
        objects.clock.seconds += 5
        objects.become(f"pool-{index}", finalizer=True)
    assert objects.progress.measure_stalled_seconds() == 0
    objects.clock.seconds += 50
    assert objects.progress.measure_stalled_seconds() == 50


def test_a_deletion_that_kopf_asks_for_again_and_again_is_no_standstill() -> None:
    objects = Objects()
    objects.become("pool", finalizer=True)
    objects.become("pool", finalizer=True, deleted=True)
    for _ in range(10):
        objects.clock.seconds += 21
        objects.progress.report_handler("pool")
    assert objects.progress.measure_stalled_seconds() == 0


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans(), st.integers(0, 100)), max_size=30)


@given(STEPS)
def test_nothing_is_reported_when_nothing_waits_and_something_is_when_only_time_passes(
    steps: list[tuple[str, bool, bool, int]],
) -> None:
    objects = Objects()
    for uid, finalizer, deleted, seconds in steps:
        objects.clock.seconds += seconds
        objects.become(uid, finalizer=finalizer, deleted=deleted)
    metadata = [item.metadata for item in objects.known.values()]
    waits = any((item.deletion_timestamp is not None) == (FINALIZER in item.finalizers) for item in metadata)
    before = objects.progress.measure_stalled_seconds()
    objects.clock.seconds += 1000
    assert objects.progress.measure_stalled_seconds() == (before + 1000 if waits else 0)
    for uid in list(objects.known):
        objects.go(uid)
    assert objects.progress.measure_stalled_seconds() == 0
