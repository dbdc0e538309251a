# SPDX-License-Identifier: Apache-2.0
"""What an adapter tells of itself is told although a session broke while it was told."""

import asyncio
from typing import Any

from simyard_adapter.current_session import CurrentSession
from simyard_adapter.transport import BrokerError
from simyard_adapter.updates import Updates
from simyard_adapter.wire import Event


class Attributes:
    def add_listener(self, _: Any) -> None:
        """Nothing changes."""

    def collect_changes(self) -> dict[str, Any]:
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


async def test_that_it_is_active_is_told_on_the_next_session_when_the_first_breaks() -> None:
    current: Any = CurrentSession()
    updates = Updates(current, Attributes(), lambda kind: kind.value, "worker", retry_seconds=0.01)  # type: ignore[arg-type]
    running = asyncio.ensure_future(updates.run())
    broken, whole = Session(breaks=True), Session()
    current.attach(broken)
    updates.count_serving(1)
    await asyncio.wait_for(broken.told.wait(), 240)
    current.detach(broken)
    current.attach(whole)
    await asyncio.wait_for(whole.told.wait(), 240)
    assert whole.kinds == [Event.ACTIVE.value]
    running.cancel()
    await asyncio.wait({running})


async def test_that_it_is_active_is_told_again_while_it_is() -> None:
    current: Any = CurrentSession()
    updates = Updates(current, Attributes(), lambda kind: kind.value, "worker", active_seconds=0.05)  # type: ignore[arg-type]
    running = asyncio.ensure_future(updates.run())
    session = Session()
    current.attach(session)
    updates.count_serving(1)
    for _ in range(3):
        await asyncio.wait_for(session.told.wait(), 240)
        session.told.clear()
    running.cancel()
    await asyncio.wait({running})
