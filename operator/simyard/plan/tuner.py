"""How many calls to a site are under way at once, and how many items one carries: found by trying.

What is sought is the least that keeps the site busy. Both numbers are doubled as long as that makes the site answer
clearly more items per second, judged twice before it is given up (as TCP's slow start and BBR's start-up do: growth
ends where the delivery rate stands still). From then on each number is now and then halved and doubled for a while, and
what the site did meanwhile decides. Little's law gives the rate: items under way / mean time of a call. A site that
merely queues what it accepted has not slowed down its calls, and is asked on.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

MOST_PER_BATCH = 500
GROWTH_PAYS = 1.25
"""Doubling must bring so much, or it is undone (BBR's start-up: draft-ietf-ccwg-bbr 5.3.1.2)."""
HALVING_COSTS = 0.95
"""Halving stays if the site still does this share."""
HOLD_ROUNDS = 8
"""So many rounds pass after a trial that failed."""
LEAST_CALLS_PER_ROUND = 4
UNHURRIED_SECONDS = 5.0
"""Nothing grows while a call takes longer: providers have deadlines, and a lost answer costs more than it brings."""
LONG_SECONDS = 15.0
"""A batch that takes longer is halved."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is declared: items under way, and items of a call; both at least 1."""

    in_flight: int
    batch: int = MOST_PER_BATCH


@dataclass(frozen=True, slots=True)
class Setting:
    """Calls under way at once, and the items of each."""

    calls: int
    batch: int

    @property
    def in_flight(self) -> int:
        """Items under way at most."""
        return self.calls * self.batch

    def within(self, bounds: Bounds) -> Setting:
        """As near to it as the bounds permit: smaller batches rather than fewer calls, down to 4."""
        batch = min(self.batch, bounds.batch, max(1, bounds.in_flight // min(self.calls, START.calls)))
        return Setting(max(1, min(self.calls, bounds.in_flight // batch)), batch)


START = Setting(calls=4, batch=4)


class Move(enum.Enum):
    """What is tried."""

    LARGER_BATCHES = enum.auto()
    MORE_CALLS = enum.auto()
    FEWER_CALLS = enum.auto()
    SMALLER_BATCHES = enum.auto()

    def of(self, setting: Setting, bounds: Bounds) -> Setting:
        """The setting after the move; the same where it is not possible."""
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
        """It asks more of the site."""
        return self in _GROWTH


_GROWTH = (Move.LARGER_BATCHES, Move.MORE_CALLS)
_STEADY = (Move.FEWER_CALLS, Move.SMALLER_BATCHES, Move.LARGER_BATCHES, Move.MORE_CALLS)


@dataclass(frozen=True, slots=True)
class Answer:
    """A call that was answered.

    Attributes:
        round: :attr:`Tuner.round` when it was sent.
        items: how many it carried.
        seconds: how long it kept its place, with all that had to be done before and after it.
        full: it was as large as permitted, and neither pace nor a lack of work kept others from being under way.
        call_seconds: how long the site itself took.
    """

    round: int
    items: int
    seconds: float
    full: bool
    call_seconds: float


@dataclass(frozen=True, slots=True)
class Tuner:
    """Of one kind of call to one site.

    Attributes:
        base: the best setting known.
        base_rate: items per second that the site did with it; 0 when unknown.
        trial: the move that is being tried.
        growing: nothing has shown a limit yet, or a limit has gone.
        round: counts the settings; answers to calls of earlier rounds teach nothing.
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
        """Knowing nothing."""
        return cls(bounds, START.within(bounds))

    @property
    def setting(self) -> Setting:
        """What is permitted now."""
        return self.base if self.trial is None else self.trial.of(self.base, self.bounds)

    @property
    def is_bound(self) -> bool:
        """Only the declared bounds keep it from asking more."""
        return all(move.of(self.base, self.bounds).in_flight <= self.base.in_flight for move in _GROWTH)

    def bounded(self, bounds: Bounds) -> Tuner:
        """With other declared bounds."""
        if bounds == self.bounds:
            return self
        return replace(self._next_round(self.base.within(bounds), None), bounds=bounds, growing=True, _turn=0)

    def answered(self, answer: Answer) -> Tuner:
        """After an answer."""
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
        needed = max(self.setting.calls, LEAST_CALLS_PER_ROUND) * (1 if self.growing else 2)
        if tuner._counted < needed and tuner._call_seconds < needed * LONG_SECONDS:
            return tuner
        rate = self.setting.calls * tuner._items / max(tuner._seconds, 1e-9)
        return tuner._judged(rate, tuner._call_seconds / tuner._counted)

    def throttled(self, round_: int) -> Tuner:
        """After a refusal of a call as one too many: what was being tried is undone. Its rate is the pace's matter."""
        if round_ != self.round or (self.trial is None and not self.growing):
            return self
        return replace(self._next_round(self.base, None), growing=False, _hold=HOLD_ROUNDS)

    def failed(self, round_: int) -> Tuner:
        """After a call that the site could not answer: half as much, and growing again from there."""
        if round_ != self.round:
            return self
        move = Move.FEWER_CALLS if self.base.calls > 1 else Move.SMALLER_BATCHES
        return replace(self._next_round(move.of(self.base, self.bounds), None), growing=True, base_rate=0.0, _turn=0)

    def restarted(self) -> Tuner:
        """After the site could not be used for a while: as small as at first, or smaller where it bore less."""
        first = START.within(self.bounds)
        base = Setting(min(self.base.calls, first.calls), min(self.base.batch, first.batch))
        return replace(self._next_round(base, None), growing=True, base_rate=0.0, _turn=0, _hold=0)

    def _judged(self, rate: float, seconds: float) -> Tuner:
        """After a round, with the mean time that the site took for a call."""
        if seconds > LONG_SECONDS and self.setting.batch > 1:
            smaller = Move.SMALLER_BATCHES.of(self.setting, self.bounds)
            return replace(self._next_round(smaller, None), growing=False, base_rate=0.0)
        if self.trial is None:
            if self._hold:
                return replace(self._next_round(self.base, None), base_rate=rate, _hold=self._hold - 1)
            return replace(self, base_rate=rate)._tries(seconds)
        pays = rate >= self.base_rate * (GROWTH_PAYS if self.trial.grows else HALVING_COSTS)
        if pays and self.trial.grows:
            turn = _GROWTH.index(self.trial)
            return replace(self, base=self.setting, base_rate=rate, growing=True, _turn=turn)._tries(seconds)
        if pays:
            return self._next_round(self.setting, None)
        if self.growing and not self._doubts:
            return replace(self._next_round(self.base, self.trial), _doubts=1)
        if self.growing:
            return replace(self, _turn=self._turn + 1)._tries(seconds)
        return replace(self._next_round(self.base, None), _turn=self._turn + 1, _hold=HOLD_ROUNDS)

    def _tries(self, seconds: float) -> Tuner:
        """Begin the next trial, of those that are possible."""
        turn = self._turn
        if self.growing:
            while turn < len(_GROWTH):
                if self._possible(_GROWTH[turn], seconds):
                    return replace(self._next_round(self.base, _GROWTH[turn]), _turn=turn)
                turn += 1
            return replace(self._next_round(self.base, None), growing=False, _turn=0)
        for ahead in range(len(_STEADY)):
            move = _STEADY[(turn + ahead) % len(_STEADY)]
            if self._possible(move, seconds):
                return replace(self._next_round(self.base, move), _turn=(turn + ahead) % len(_STEADY))
        return self._next_round(self.base, None)

    def _possible(self, move: Move, seconds: float) -> bool:
        after = move.of(self.base, self.bounds)
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
