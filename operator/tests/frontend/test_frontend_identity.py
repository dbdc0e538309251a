# SPDX-License-Identifier: Apache-2.0
"""Users behind tokens."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from simyard.frontend import identity
from simyard.frontend.exchange import Identity
from simyard.frontend.identity import CAPACITY, TTL_SECONDS, Authenticator, Authorization, read_token
from simyard.occi.errors import OcciError
from simyard.serving.answers import RecentAnswers
from simyard_sites.kubernetes.errors import UnavailableError


class Api:
    """An API server that knows one token and counts the reviews."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.most = 0
        self.under_way = 0
        self.down = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def request(self, method: str, path: str, *, body: Any, resource: Any) -> Any:
        assert (method, path) == ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
        token = body["spec"]["token"]
        self.asked.append(token)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.gate.wait()
        self.under_way -= 1
        if self.down:
            raise UnavailableError(0, "", f"connection lost while sending {token}")
        if token != "good":
            return {"status": {"error": "unknown"}}
        user = {"username": "ada", "uid": "1", "groups": ["a", "b"], "extra": {"k": ["v"]}}
        return {"status": {"authenticated": True, "user": user}}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def api() -> Api:
    return Api()


def authenticator(api: Api, clock: Clock, refused_seconds: float = identity.REFUSED_SECONDS) -> Authenticator:
    answers: RecentAnswers[bytes, Identity | None] = RecentAnswers(TTL_SECONDS, CAPACITY, clock=clock)
    return Authenticator(api, answers, refused_seconds)  # type: ignore[arg-type]


async def test_a_token_is_asked_about_once_in_ten_seconds(api: Api) -> None:
    clock = Clock()
    ask = authenticator(api, clock)
    for _ in range(3):
        known = await ask.identify_header(Authorization("bearer good"))
    assert (known.user, known.uid, known.groups, known.extra) == ("ada", "1", ("a", "b"), (("k", ("v",)),))
    assert api.asked == ["good"]
    clock.now += identity.TTL_SECONDS + 1
    await ask.identify_token("good")
    assert api.asked == ["good", "good"]


async def test_a_token_of_nobody_is_remembered_too(api: Api) -> None:
    ask = authenticator(api, Clock())
    for _ in range(3):
        with pytest.raises(OcciError) as refused:
            await ask.identify_token("bad")
        assert refused.value.status == 401
    assert api.asked == ["bad"]


async def test_requests_at_the_same_time_share_one_question(api: Api) -> None:
    api.gate.clear()
    ask = authenticator(api, Clock())
    waiting = [asyncio.create_task(ask.identify_token("good")) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    api.gate.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError) and api.asked == ["good"]
    assert {result.user for result in results[1:] if not isinstance(result, BaseException)} == {"ada"}


async def test_a_flood_of_made_up_tokens_asks_few_questions_at_a_time(api: Api) -> None:
    api.gate.clear()
    ask = authenticator(api, Clock())
    waiting = [asyncio.create_task(ask.identify_token(f"bad{number}")) for number in range(100)]
    for _ in range(5):
        await asyncio.sleep(0)
    api.gate.set()
    assert all(isinstance(item, OcciError) for item in await asyncio.gather(*waiting, return_exceptions=True))
    assert api.most == identity.MAX_UNKNOWN_TOKEN_REVIEWS


async def test_whoever_is_known_does_not_wait_for_strangers(api: Api) -> None:
    clock = Clock()
    ask = authenticator(api, clock, refused_seconds=1000.0)
    await ask.identify_token("good")
    clock.now += identity.TTL_SECONDS + 1
    waiting = range(identity.MAX_WAITING_UNKNOWN_TOKENS)
    strangers = [asyncio.create_task(ask.identify_token(f"bad{number}")) for number in waiting]
    await asyncio.sleep(0)
    assert (await ask.identify_token("good")).user == "ada"
    with pytest.raises(OcciError) as refused:
        await ask.identify_token("one more")
    assert refused.value.status == 503
    assert len(api.asked) <= 2 + identity.MAX_UNKNOWN_TOKEN_REVIEWS
    for stranger in strangers:
        stranger.cancel()


async def test_a_header_s_text_is_no_token(api: Api) -> None:
    ask = authenticator(api, Clock())
    assert (await ask.identify_header(Authorization("Bearer good"))).user == "ada"
    for token in ("Bearer good", ""):
        with pytest.raises(OcciError) as refused:
            await ask.identify_token(token)
        assert refused.value.status == 401
    assert "auth is required" in refused.value.message


async def test_a_failure_is_503_not_remembered_and_never_says_the_token(api: Api) -> None:
    api.down = True
    ask = authenticator(api, Clock())
    with pytest.raises(OcciError) as refused:
        await ask.identify_token("good")
    assert refused.value.status == 503 and "good" not in refused.value.message
    api.down = False
    assert (await ask.identify_token("good")).user == "ada"


async def test_what_is_remembered_is_bounded_and_holds_no_token(api: Api) -> None:
    questions: list[bytes] = []

    class Recorded(RecentAnswers[bytes, Identity | None]):
        def keep(self, question: bytes, answer: Identity | None) -> None:
            questions.append(question)
            super().keep(question, answer)

    ask = Authenticator(api, Recorded(TTL_SECONDS, 3, clock=Clock()))  # type: ignore[arg-type]
    tokens = [f"bad{number}" for number in range(10)]
    for token in (*tokens, *tokens[-3:], tokens[0]):
        with pytest.raises(OcciError):
            await ask.identify_token(token)
    assert api.asked == [*tokens, tokens[0]], "the last three are remembered, and the first is not"
    assert len(questions) == 11
    assert not any(b"bad" in question for question in questions)


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_a_token_comes_as_bearer_or_as_password() -> None:
    assert read_token("Bearer abc ") == "abc"
    assert read_token(basic("anybody:a:b")) == "a:b"


@pytest.mark.parametrize("header", ["", "abc", "Digest abc", "Basic !!!", "Basic \udcff"])
def test_anything_else_is_refused(header: str) -> None:
    with pytest.raises(OcciError) as refused:
        read_token(header)
    assert refused.value.status == 401


async def test_an_empty_or_endless_token_is_not_asked_about(api: Api) -> None:
    ask = authenticator(api, Clock())
    for header in ("Bearer ", basic("user:"), basic("user"), "Bearer " + "x" * 20_000):
        with pytest.raises(OcciError):
            await ask.identify_header(Authorization(header))
    assert api.asked == []
