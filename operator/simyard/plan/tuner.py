# SPDX-License-Identifier: Apache-2.0
"""Tuner: finds the number of parallel calls to a site and the batch size of each call, by trials.

The goal is the smallest setting that keeps the site busy. At first both numbers double as long as the site then answers
clearly more items per second. A trial without success is repeated once before the growth ends, as in TCP's slow start
and BBR's start-up. Later each number is now and then halved or doubled for a while, and the measured rate decides.
Little's law gives the rate: items under way / mean time of a call. A site that accepts items and queues them still
answers its calls quickly, so the tuner does not slow down for it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

MAX_PER_BATCH = 500
GROWTH_PAYS = 1.25
"""Factor by which doubling must raise the rate, else it is undone (BBR's start-up: draft-ietf-ccwg-bbr 5.3.1.2)."""
HALVING_COSTS = 0.95
"""Share of the rate that must remain after a halving; otherwise the halving is undone."""
HOLD_ROUNDS = 8
"""Number of rounds without a trial after a failed trial."""
MIN_CALLS_PER_ROUND = 4
UNHURRIED_SECONDS = 5.0
"""Maximum duration of calls during growth. Providers have deadlines, and a lost answer costs more than growth gains."""
LONG_SECONDS = 15.0
"""Maximum duration of a call; a batch that takes longer is halved."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Declared maximum numbers of items under way and of items in a call; both are at least 1."""

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
        """Return the nearest setting within bounds: smaller batches before fewer calls, down to 4 calls."""
        batch = min(self.batch, bounds.batch, max(1, bounds.in_flight // min(self.calls, START.calls)))
        return Setting(max(1, min(self.calls, bounds.in_flight // batch)), batch)


START = Setting(calls=4, batch=4)


class Move(enum.Enum):
    """Kind of a trial."""

    LARGER_BATCHES = enum.auto()
    MORE_CALLS = enum.auto()
    FEWER_CALLS = enum.auto()
    SMALLER_BATCHES = enum.auto()

    def apply(self, setting: Setting, bounds: Bounds) -> Setting:
        """Return the setting after the move; the same setting if the move is not possible."""
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
        """True if the move sends more to the site."""
        return self in _GROWTH


_GROWTH = (Move.LARGER_BATCHES, Move.MORE_CALLS)
_STEADY = (Move.FEWER_CALLS, Move.SMALLER_BATCHES, Move.LARGER_BATCHES, Move.MORE_CALLS)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a call.

    Attributes:
        round: Value of :attr:`Tuner.round` when the call was sent.
        items: Number of items in the call.
        seconds: Time for which the call occupied its place, including the work before and after it.
        full: True if the setting was used in full: no limit of the pace and no lack of work kept calls or items back.
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
        base_rate: Items per second with this setting; 0 if unknown.
        trial: Move that is being tried.
        growing: True if no limit was found yet, or a limit has disappeared.
        round: Number of the present setting; answers to calls of earlier rounds are ignored.
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
        """Return a tuner without any measurement."""
        return cls(bounds, START.limit_to(bounds))

    @property
    def setting(self) -> Setting:
        """Setting that is in use now."""
        return self.base if self.trial is None else self.trial.apply(self.base, self.bounds)

    @property
    def is_bound(self) -> bool:
        """True if only the declared bounds prevent growth."""
        return all(move.apply(self.base, self.bounds).in_flight <= self.base.in_flight for move in _GROWTH)

    def with_bounds(self, bounds: Bounds) -> Tuner:
        """Return the tuner with other declared bounds."""
        if bounds == self.bounds:
            return self
        return replace(self._next_round(self.base.limit_to(bounds), None), bounds=bounds, growing=True, _turn=0)

    def record_answer(self, answer: Answer) -> Tuner:
        """Return the tuner after an answer."""
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
        """Return the tuner after the site refused a call because of too many requests: the trial is undone.

        The pace reduces the rate.
        """
        if round_ != self.round or (self.trial is None and not self.growing):
            return self
        return replace(self._next_round(self.base, None), growing=False, _hold=HOLD_ROUNDS)

    def record_failure(self, round_: int) -> Tuner:
        """Return the tuner after a call that the site could not answer: half the setting, and growth from there."""
        if round_ != self.round:
            return self
        move = Move.FEWER_CALLS if self.base.calls > 1 else Move.SMALLER_BATCHES
        return replace(self._next_round(move.apply(self.base, self.bounds), None), growing=True, base_rate=0.0, _turn=0)

    def restart(self) -> Tuner:
        """Return the tuner after an outage of the site: the first setting, or the best known one if it is smaller."""
        first = START.limit_to(self.bounds)
        base = Setting(min(self.base.calls, first.calls), min(self.base.batch, first.batch))
        return replace(self._next_round(base, None), growing=True, base_rate=0.0, _turn=0, _hold=0)

    def _judge(self, rate: float, seconds: float) -> Tuner:
        """Return the tuner after a round with this rate and mean duration of a call."""
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
        """Return the tuner with the next possible trial."""
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
