"""What an adapter tells of itself is told although a session broke while it was told."""

import asyncio
from typing import Any

import pytest

from simyard_adapter import news as module
from simyard_adapter.link import Link
from simyard_adapter.news import News
from simyard_adapter.transport import BrokerError
from simyard_adapter.wire import Event


class Attributes:
    def listen(self, _: Any) -> None:
        """Nothing changes."""

    def take_changes(self) -> dict[str, Any]:
        return {}


class Session:
    def __init__(self, breaks: bool = False) -> None:
        self.breaks = breaks
        self.closed = asyncio.Event()
        self.told = asyncio.Event()
        self.kinds: list[str] = []

    async def publish(self, exchange: str, key: str, kind: str, body: bytes, **_: Any) -> None:
        self.kinds.append(kind)
        self.told.set()
        if self.breaks:
            raise BrokerError("the connection closed")


async def test_that_it_is_active_is_told_on_the_next_session_when_the_first_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    link: Any = Link()
    news = News(link, Attributes(), lambda kind: kind.value, "worker")  # type: ignore[arg-type]
    running = asyncio.ensure_future(news.run())
    broken, whole = Session(breaks=True), Session()
    link.attach(broken)
    news.serving(1)
    await asyncio.wait_for(broken.told.wait(), 10)
    link.detach(broken)
    link.attach(whole)
    await asyncio.wait_for(whole.told.wait(), 10)
    assert whole.kinds == [Event.ACTIVE.value]
    running.cancel()
    await asyncio.wait({running})


async def test_that_it_is_active_is_told_again_while_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACTIVE_SECONDS", 0.05)
    link: Any = Link()
    news = News(link, Attributes(), lambda kind: kind.value, "worker")  # type: ignore[arg-type]
    running = asyncio.ensure_future(news.run())
    session = Session()
    link.attach(session)
    news.serving(1)
    for _ in range(3):
        await asyncio.wait_for(session.told.wait(), 10)
        session.told.clear()
    running.cancel()
    await asyncio.wait({running})
