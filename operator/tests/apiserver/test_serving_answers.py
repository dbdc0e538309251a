# SPDX-License-Identifier: Apache-2.0
"""Recent answers: fresh for a time, bounded in number, and one request for equal questions at the same time."""

from __future__ import annotations

import asyncio

import pytest

from simyard.serving.answers import RecentAnswers


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_an_answer_is_fresh_for_its_time_and_remembered_after_it() -> None:
    clock = Clock()
    answers: RecentAnswers[str, int] = RecentAnswers(10, 5, clock=clock)
    answers.keep("a", 1)
    clock.now = 9.9
    kept = answers.get("a")
    assert kept is not None
    assert kept.answer == 1
    clock.now = 10
    assert answers.get("a") is None
    assert answers.get_last("a") == (1, 10)


async def test_the_answer_that_was_not_used_for_the_longest_time_is_dropped() -> None:
    answers: RecentAnswers[str, int] = RecentAnswers(10, 2, clock=Clock())
    answers.keep("a", 1)
    answers.keep("b", 2)
    answers.get("a")
    answers.keep("c", 3)
    assert [answers.get_last(key) is not None for key in "abc"] == [True, False, True]


async def test_equal_questions_at_the_same_time_share_one_request_even_if_a_caller_is_cancelled() -> None:
    answers: RecentAnswers[str, int] = RecentAnswers(10, 5, clock=Clock())
    requests = 0
    answered = asyncio.Event()

    async def ask() -> int:
        nonlocal requests
        requests += 1
        await answered.wait()
        return requests

    callers = [asyncio.create_task(answers.share("a", ask)) for _ in range(3)]
    while not answers.is_pending("a"):  # noqa: ASYNC110 - the first caller begins when the loop turns
        await asyncio.sleep(0)
    callers[0].cancel()
    answered.set()
    assert await asyncio.gather(*callers[1:]) == [1, 1]
    with pytest.raises(asyncio.CancelledError):
        await callers[0]
    assert not answers.is_pending("a")
    assert await answers.share("a", ask) == 2


async def test_an_error_reaches_all_callers_and_the_next_question_is_asked_again() -> None:
    answers: RecentAnswers[str, int] = RecentAnswers(10, 5, clock=Clock())

    async def fail() -> int:
        raise ValueError("no")

    async def succeed() -> int:
        return 1

    results = await asyncio.gather(*(answers.share("a", fail) for _ in range(2)), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, ValueError]
    assert await answers.share("a", succeed) == 1
