# SPDX-License-Identifier: Apache-2.0
"""Tuner: it finds, by trials, the number of parallel calls to a site and the number of items in each call.

The goal is the smallest setting that keeps the site busy. At first, the tuner doubles both numbers as long as the site
then answers clearly more items per second, as in TCP's slow start and BBR's start-up. It repeats a failed trial once
before it ends the growth. Later, it halves or doubles one of the numbers from time to time, and keeps the change if the
measured rate permits. The rate follows from Little's law: items under way divided by the mean time of a call. A site
that queues accepted items still answers its calls quickly, so its queue does not slow the tuner down.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

MAX_PER_BATCH = 500
GROWTH_PAYS = 1.25
"""Minimum factor by which a doubling must raise the rate (BBR's start-up: draft-ietf-ccwg-bbr 5.3.1.2)."""
HALVING_COSTS = 0.95
"""Minimum share of the rate that must remain after a halving; otherwise, the tuner undoes the halving."""
HOLD_ROUNDS = 8
"""Number of rounds for which the tuner starts no trial after a failed trial."""
MIN_CALLS_PER_ROUND = 4
UNHURRIED_SECONDS = 5.0
"""Maximum mean duration of calls for further growth. A call that exceeds its provider's timeout would cost more."""
LONG_SECONDS = 15.0
"""Maximum mean duration of calls; if calls take longer, the tuner halves the batch."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Declared limits: the maximum number of items under way, and the maximum number of items in a call; both >= 1."""

    in_flight: int
    batch: int = MAX_PER_BATCH


@dataclass(frozen=True, slots=True)
class Setting:
    """Number of parallel calls, and number of items in each."""

    calls: int
    batch: int

    @property
    def in_flight(self) -> int:
        """Maximum number of items under way."""
        return self.calls * self.batch

    def limit_to(self, bounds: Bounds) -> Setting:
        """Return the nearest setting within bounds: batches become smaller first, and calls fewer if necessary."""
        batch = min(self.batch, bounds.batch, max(1, bounds.in_flight // min(self.calls, START.calls)))
        return Setting(max(1, min(self.calls, bounds.in_flight // batch)), batch)


START = Setting(calls=4, batch=4)


class Move(enum.Enum):
    """Kind of a trial: one number doubles or halves."""

    LARGER_BATCHES = enum.auto()
    MORE_CALLS = enum.auto()
    FEWER_CALLS = enum.auto()
    SMALLER_BATCHES = enum.auto()

    def apply(self, setting: Setting, bounds: Bounds) -> Setting:
        """Return the setting after this move, within the bounds; the same setting if the move is not possible."""
        calls, batch = setting.calls, setting.batch
        if self is Move.LARGER_BATCHES:
            larger = min(2 * batch, bounds.batch, bounds.in_flight)
            return Setting(max(1, min(calls, bounds.in_flight // larger)), larger)
        if self is Move.MORE_CALLS:
            return Setting(max(calls, min(2 * calls, bounds.in_flight // batch)), batch)
        if self is Move.FEWER_CALLS:
            return Setting(max(1, calls // 2), batch)
        return Setting(calls, max(1, batch // 2))

    @property
    def grows(self) -> bool:
        """True if the move increases the number of items under way."""
        return self in _GROWTH


_GROWTH = (Move.LARGER_BATCHES, Move.MORE_CALLS)
_STEADY = (Move.FEWER_CALLS, Move.SMALLER_BATCHES, Move.LARGER_BATCHES, Move.MORE_CALLS)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a site to a call, as the tuner counts it.

    Attributes:
        round: Value of :attr:`Tuner.round` when the call was sent.
        items: Number of items in the call.
        seconds: Time for which the call occupied its place, including the work before and after it.
        full: True if the calls used the whole setting: there was enough work, and the pace delayed no call.
        call_seconds: Duration of the call at the site.
    """

    round: int
    items: int
    seconds: float
    full: bool
    call_seconds: float


@dataclass(frozen=True, slots=True)
class Tuner:
    """Tuner of one kind of call to one site.

    Attributes:
        base: Best known setting.
        base_rate: Items per second with the best known setting; 0 if unknown.
        trial: Move of the present trial; None if there is no trial.
        growing: True if the tuner has not found a limit yet, or if a growing trial succeeded again.
        round: Number of the present round; the tuner ignores answers to calls of earlier rounds.
    """

    bounds: Bounds
    base: Setting
    base_rate: float = 0.0
    trial: Move | None = None
    growing: bool = True
    round: int = 0
    _turn: int = 0
    _doubts: int = 0
    _hold: int = 0
    _calls: int = 0
    _counted: int = 0
    _items: int = 0
    _seconds: float = 0.0
    _call_seconds: float = 0.0

    @classmethod
    def start(cls, bounds: Bounds) -> Tuner:
        """Return a new tuner, without measurements."""
        return cls(bounds, START.limit_to(bounds))

    @property
    def setting(self) -> Setting:
        """Setting that is in use now."""
        return self.base if self.trial is None else self.trial.apply(self.base, self.bounds)

    @property
    def is_bound(self) -> bool:
        """True if the declared bounds permit no growth."""
        return all(move.apply(self.base, self.bounds).in_flight <= self.base.in_flight for move in _GROWTH)

    def with_bounds(self, bounds: Bounds) -> Tuner:
        """Return the tuner with new declared bounds."""
        if bounds == self.bounds:
            return self
        return replace(self._next_round(self.base.limit_to(bounds), None), bounds=bounds, growing=True, _turn=0)

    def record_answer(self, answer: Answer) -> Tuner:
        """Return the tuner after the answer to a call."""
        if answer.round != self.round or not answer.full:
            return self
        skips = 0 if self.growing else self.setting.calls
        tuner = replace(self, _calls=self._calls + 1)
        if tuner._calls <= skips:
            return tuner
        tuner = replace(
            tuner,
            _counted=self._counted + 1,
            _items=self._items + answer.items,
            _seconds=self._seconds + answer.seconds,
            _call_seconds=self._call_seconds + answer.call_seconds,
        )
        needed = max(self.setting.calls, MIN_CALLS_PER_ROUND) * (1 if self.growing else 2)
        if tuner._counted < needed and tuner._call_seconds < needed * LONG_SECONDS:
            return tuner
        rate = self.setting.calls * tuner._items / max(tuner._seconds, 1e-9)
        return tuner._judge(rate, tuner._call_seconds / tuner._counted)

    def record_throttle(self, round_: int) -> Tuner:
        """Return the tuner after the site refused a call because of too many requests.

        The tuner undoes the present trial. The pace, not the tuner, reduces the rate.
        """
        if round_ != self.round or (self.trial is None and not self.growing):
            return self
        return replace(self._next_round(self.base, None), growing=False, _hold=HOLD_ROUNDS)

    def record_failure(self, round_: int) -> Tuner:
        """Return the tuner after a failed call: half as many calls or half the batch, and growth from there."""
        if round_ != self.round:
            return self
        move = Move.FEWER_CALLS if self.base.calls > 1 else Move.SMALLER_BATCHES
        return replace(self._next_round(move.apply(self.base, self.bounds), None), growing=True, base_rate=0.0, _turn=0)

    def restart(self) -> Tuner:
        """Return the tuner after an outage, with the first or the best known setting, the smaller of the two."""
        first = START.limit_to(self.bounds)
        base = Setting(min(self.base.calls, first.calls), min(self.base.batch, first.batch))
        return replace(self._next_round(base, None), growing=True, base_rate=0.0, _turn=0, _hold=0)

    def _judge(self, rate: float, seconds: float) -> Tuner:
        """Return the tuner after a round with this rate (items per second) and this mean duration of a call."""
        if seconds > LONG_SECONDS and self.setting.batch > 1:
            smaller = Move.SMALLER_BATCHES.apply(self.setting, self.bounds)
            return replace(self._next_round(smaller, None), growing=False, base_rate=0.0)
        if self.trial is None:
            if self._hold:
                return replace(self._next_round(self.base, None), base_rate=rate, _hold=self._hold - 1)
            return replace(self, base_rate=rate)._start_trial(seconds)
        pays = rate >= self.base_rate * (GROWTH_PAYS if self.trial.grows else HALVING_COSTS)
        if pays and self.trial.grows:
            turn = _GROWTH.index(self.trial)
            return replace(self, base=self.setting, base_rate=rate, growing=True, _turn=turn)._start_trial(seconds)
        if pays:
            return self._next_round(self.setting, None)
        if self.growing and not self._doubts:
            return replace(self._next_round(self.base, self.trial), _doubts=1)
        if self.growing:
            return replace(self, _turn=self._turn + 1)._start_trial(seconds)
        return replace(self._next_round(self.base, None), _turn=self._turn + 1, _hold=HOLD_ROUNDS)

    def _start_trial(self, seconds: float) -> Tuner:
        """Return the tuner with the next trial that is possible; without a trial if none is possible."""
        turn = self._turn
        if self.growing:
            while turn < len(_GROWTH):
                if self._is_possible(_GROWTH[turn], seconds):
                    return replace(self._next_round(self.base, _GROWTH[turn]), _turn=turn)
                turn += 1
            return replace(self._next_round(self.base, None), growing=False, _turn=0)
        for ahead in range(len(_STEADY)):
            move = _STEADY[(turn + ahead) % len(_STEADY)]
            if self._is_possible(move, seconds):
                return replace(self._next_round(self.base, move), _turn=(turn + ahead) % len(_STEADY))
        return self._next_round(self.base, None)

    def _is_possible(self, move: Move, seconds: float) -> bool:
        after = move.apply(self.base, self.bounds)
        return after != self.base and not (move.grows and seconds > UNHURRIED_SECONDS)

    def _next_round(self, base: Setting, trial: Move | None) -> Tuner:
        return replace(
            self,
            base=base,
            trial=trial,
            round=self.round + 1,
            _doubts=0,
            _calls=0,
            _counted=0,
            _items=0,
            _seconds=0.0,
            _call_seconds=0.0,
        )
