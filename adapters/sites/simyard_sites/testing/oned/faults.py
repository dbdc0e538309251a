"""What can be made to go wrong, and what was counted."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from simyard_sites.testing.oned.states import Code


@dataclass(slots=True)
class _Rule:
    """For the next ``left`` requests that hold a call of one of the methods (none: of any)."""

    left: int
    methods: frozenset[str]

    def strikes(self, names: Iterable[str]) -> bool:
        if self.left <= 0 or (self.methods and not self.methods.intersection(names)):
            return False
        self.left -= 1
        return True


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer that no oned gives: a proxy's, or another server's."""

    status: int
    reason: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Denial:
    """An error that every call of the methods gets, without anything being done."""

    code: Code
    message: str


class Faults:
    """Faults to come; each is switched on here and ends after so many requests, or when it is cleared.

    A request is one HTTP request; it is struck if it holds a call of one of the methods named, alone or in a multicall.
    """

    def __init__(self) -> None:
        self._lost = _Rule(0, frozenset())
        self._refused: tuple[_Rule, HttpAnswer | None] = (_Rule(0, frozenset()), None)
        self._denied: dict[str, tuple[_Rule, Denial]] = {}
        self._crash_after: int | None = None
        self._running = asyncio.Event()
        self._running.set()
        self.tls_broken = False

    def lose_answers(self, requests: int, *methods: str) -> None:
        """Do the next requests, and cut the connection instead of answering."""
        self._lost = _Rule(requests, frozenset(methods))

    def crash_in_multicall(self, after_calls: int) -> None:
        """In the next multicall do so many calls, then cut the connection without doing the rest."""
        self._crash_after = after_calls

    def throttle(self, requests: int, *methods: str, retry_after_seconds: int | None = None) -> None:
        """Answer the next requests 503, as a proxy before oned does, and do nothing."""
        headers = () if retry_after_seconds is None else (("Retry-After", str(retry_after_seconds)),)
        self.answer(requests, HttpAnswer(503, "Service Unavailable", b"<html>busy</html>", headers), *methods)

    def answer(self, requests: int, answer: HttpAnswer, *methods: str) -> None:
        """Give the next requests this answer, and do nothing."""
        self._refused = (_Rule(requests, frozenset(methods)), answer)

    def close(self, requests: int, *methods: str) -> None:
        """Close the connections of the next requests without doing anything."""
        self._refused = (_Rule(requests, frozenset(methods)), None)

    def deny(self, method: str, message: str, code: Code = Code.AUTHORIZATION, calls: int = 1_000_000_000) -> None:
        """Answer calls of a method with an error; the message stands as it is, without ``[method]``."""
        self._denied[method] = (_Rule(calls, frozenset()), Denial(code, message))

    def pause(self) -> None:
        """Take connections and requests, and answer none until :meth:`resume`."""
        self._running.clear()

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._running.set()

    def clear(self) -> None:
        """No faults any more."""
        self._lost = _Rule(0, frozenset())
        self._refused = (_Rule(0, frozenset()), None)
        self._denied.clear()
        self._crash_after = None
        self.tls_broken = False
        self.resume()

    # Asked by the server

    async def running(self) -> None:
        """Wait while paused."""
        await self._running.wait()

    def refuses(self, names: Iterable[str]) -> tuple[bool, HttpAnswer | None]:
        """Whether a request is not to be done, and what it is answered (None: the connection is closed)."""
        rule, answer = self._refused
        return (True, answer) if rule.strikes(names) else (False, None)

    def loses(self, names: Iterable[str]) -> bool:
        """Whether the answer to a request that was done is lost."""
        return self._lost.strikes(names)

    def denial(self, method: str) -> Denial | None:
        """What a call is denied with."""
        rule, denial = self._denied.get(method, (None, None))
        return denial if rule is not None and rule.strikes((method,)) else None

    def crash_after(self) -> int | None:
        """After how many calls the multicall that begins now crashes."""
        after, self._crash_after = self._crash_after, None
        return after


@dataclass(slots=True)
class Counters:
    """What the server was asked.

    Attributes:
        requests: HTTP requests.
        calls: calls by method, those in a multicall and ``system.multicall`` itself too.
        cost_milliseconds: what the calls cost by method, in the model, whatever the cost scale.
        scanned_rows: rows that queries looked at.
        most_writers: the most requests that wanted to write at one time.
        connections, open_connections, most_connections: accepted in all, now open, the most at one time.
        bytes_out: bytes of answers.
    """

    requests: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    cost_milliseconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    scanned_rows: int = 0
    most_writers: int = 0
    connections: int = 0
    open_connections: int = 0
    most_connections: int = 0
    bytes_out: int = 0

    def reset(self) -> None:
        """Count from 0 again; connections that are open stay counted."""
        self.requests = self.scanned_rows = self.most_writers = self.connections = self.bytes_out = 0
        self.calls.clear()
        self.cost_milliseconds.clear()
        self.most_connections = self.open_connections
