# SPDX-License-Identifier: Apache-2.0
"""Defines the faults that tests can switch on, and the counters of requests."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from simyard_simulators.oned.states import Code


@dataclass(slots=True)
class _Rule:
    """A fault for the next ``left`` requests that contain a call of one of the methods (no methods: any call)."""

    left: int
    methods: frozenset[str]

    def strikes(self, names: Iterable[str]) -> bool:
        if self.left <= 0 or (self.methods and not self.methods.intersection(names)):
            return False
        self.left -= 1
        return True


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer that does not come from oned, but from a proxy or another server."""

    status: int
    reason: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Denial:
    """An error that every call of the methods receives, without any effect."""

    code: Code
    message: str


class Faults:
    """The faults of a server. Each method switches on one fault, which ends after some requests or by :meth:`clear`.

    A request is one HTTP request. A fault affects a request that contains a call of one of the named methods, alone or
    in a multicall; without names, it affects every request.
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
        """Carry out the next requests, but cut the connection instead of answering."""
        self._lost = _Rule(requests, frozenset(methods))

    def crash_in_multicall(self, after_calls: int) -> None:
        """In the next multicall, carry out this many calls, then cut the connection."""
        self._crash_after = after_calls

    def throttle(self, requests: int, *methods: str, retry_after_seconds: int | None = None) -> None:
        """Answer the next requests with 503, as a proxy in front of oned does, without any effect."""
        headers = () if retry_after_seconds is None else (("Retry-After", str(retry_after_seconds)),)
        self.answer(requests, HttpAnswer(503, "Service Unavailable", b"<html>busy</html>", headers), *methods)

    def answer(self, requests: int, answer: HttpAnswer, *methods: str) -> None:
        """Give the next requests this answer, without any effect."""
        self._refused = (_Rule(requests, frozenset(methods)), answer)

    def close(self, requests: int, *methods: str) -> None:
        """Close the connections of the next requests, without any effect."""
        self._refused = (_Rule(requests, frozenset(methods)), None)

    def deny(self, method: str, message: str, code: Code = Code.AUTHORIZATION, calls: int = 1_000_000_000) -> None:
        """Answer calls of a method with an error; the message is used unchanged, without ``[method]``."""
        self._denied[method] = (_Rule(calls, frozenset()), Denial(code, message))

    def pause(self) -> None:
        """Accept connections and requests, but answer none until :meth:`resume`."""
        self._running.clear()

    def resume(self) -> None:
        """Answer again after :meth:`pause`."""
        self._running.set()

    def clear(self) -> None:
        """Switch off all faults."""
        self._lost = _Rule(0, frozenset())
        self._refused = (_Rule(0, frozenset()), None)
        self._denied.clear()
        self._crash_after = None
        self.tls_broken = False
        self.resume()

    # Calls of the server

    async def running(self) -> None:
        """Wait until the server is not paused."""
        await self._running.wait()

    def refuses(self, names: Iterable[str]) -> tuple[bool, HttpAnswer | None]:
        """Return True and the answer if a request is to be refused (None: the connection is closed)."""
        rule, answer = self._refused
        return (True, answer) if rule.strikes(names) else (False, None)

    def loses(self, names: Iterable[str]) -> bool:
        """Return True if the answer to a completed request is lost."""
        return self._lost.strikes(names)

    def denial(self, method: str) -> Denial | None:
        """Return the error for a call, or None."""
        rule, denial = self._denied.get(method, (None, None))
        return denial if rule is not None and rule.strikes((method,)) else None

    def crash_after(self) -> int | None:
        """Return the number of calls after which the multicall that begins now crashes, or None."""
        after, self._crash_after = self._crash_after, None
        return after


@dataclass(slots=True)
class Counters:
    """The counters of a server.

    Attributes:
        requests: HTTP requests.
        calls: Calls by method, including those in a multicall, and ``system.multicall`` itself.
        cost_milliseconds: The cost of the calls by method, in the model, regardless of the cost scale.
        scanned_rows: Rows that queries read.
        most_writers: The maximum number of requests that waited to write at one time.
        connections, open_connections, most_connections: Connections accepted so far, open now, and open at most.
        bytes_out: The bytes of the answers.
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
        """Set all counters to 0, except the number of open connections."""
        self.requests = self.scanned_rows = self.most_writers = self.connections = self.bytes_out = 0
        self.calls.clear()
        self.cost_milliseconds.clear()
        self.most_connections = self.open_connections
