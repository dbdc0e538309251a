# SPDX-License-Identifier: Apache-2.0
"""A simulated oned for each test, served on a free port."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pyone
import pytest

from simyard_simulators.oned import WIDE, Oned, Settings

FAST = Settings(time_scale=0.001, cost_scale=0.0, scheduler=WIDE)
Blocking = Callable[..., Awaitable[Any]]


@pytest.fixture
async def oned() -> AsyncIterator[Oned]:
    async with Oned(FAST) as server:
        yield server


@pytest.fixture
def client(oned: Oned) -> Any:
    """The well-known client, unmodified, as an ordinary user; its calls block, so they go through ``blocking``."""
    return pyone.OneServer(oned.url, session="simyard:secret")


@pytest.fixture
def admin(oned: Oned) -> Any:
    return pyone.OneServer(oned.url, session="oneadmin:opennebula")


@pytest.fixture
def blocking() -> Blocking:
    async def call(function: Callable[..., Any], *arguments: Any) -> Any:
        async with asyncio.timeout(240):
            return await asyncio.to_thread(function, *arguments)

    return call
