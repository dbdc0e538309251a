# SPDX-License-Identifier: Apache-2.0
"""Caches answers for a short time: reviews of rights and of tokens, and responses to repeated requests."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


class Kept(NamedTuple, Generic[A]):
    """An answer, and the time until which it is fresh."""

    answer: A
    until: float


class RecentAnswers(Generic[Q, A]):
    """A cache of answers by their questions. Equal questions at the same time share one request.

    Each answer is fresh for ``ttl_seconds``. If there are more than ``capacity`` answers, the cache drops the least
    recently used one.
    """

    def __init__(
        self, ttl_seconds: float, capacity: int, *, name: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ttl_seconds = ttl_seconds
        self._capacity = capacity
        self._name = name
        self._clock = clock
        self._kept: OrderedDict[Q, Kept[A]] = OrderedDict()
        self._pending: dict[Q, asyncio.Task[A]] = {}

    def get(self, question: Q) -> Kept[A] | None:
        """Return the fresh answer to a question; None if there is none."""
        kept = self._kept.get(question)
        if kept is None or kept.until <= self._clock():
            return None
        self._kept.move_to_end(question)
        return kept

    def get_last(self, question: Q) -> Kept[A] | None:
        """Return the last answer to a question, fresh or not; None if there is no answer."""
        return self._kept.get(question)

    def is_pending(self, question: Q) -> bool:
        """Return true if a request for this question is in progress."""
        return question in self._pending

    def keep(self, question: Q, answer: A) -> None:
        """Store an answer, which is fresh from now on."""
        self._kept[question] = Kept(answer, self._clock() + self._ttl_seconds)
        self._kept.move_to_end(question)
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)

    async def share(self, question: Q, ask: Callable[[], Coroutine[Any, Any, A]]) -> A:
        """Return the answer of the request in progress for this question; if there is none, call ``ask``.

        If a caller is cancelled, the request continues. All callers get its error. ``ask`` itself stores the answer, if
        the answer is to be cached.
        """
        task = self._pending.get(question)
        if task is None:
            task = self._pending[question] = asyncio.create_task(ask(), name=self._name or None)
            task.add_done_callback(lambda _: self._pending.pop(question))
        return await asyncio.shield(task)
