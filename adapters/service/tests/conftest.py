# SPDX-License-Identifier: Apache-2.0
"""Fixtures of a pool on a real broker, and of the work that its adapters do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from adapter_service import DEADLINE, Service, installed

from simyard_dev.broker import Broker


@pytest.fixture
async def service(broker: Broker, tmp_path: Path) -> AsyncIterator[Service]:
    """A pool without workers on the broker of the run."""
    async with installed(broker, tmp_path) as made:
        yield made


@pytest.fixture
def install() -> Callable[[Broker, Path], contextlib.AbstractAsyncContextManager[Service]]:
    """Makes a pool without workers on a broker of the test's own."""
    return installed


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[], list[str]]:
    """The lines that runs of actions have left in the file `runs`."""
    return lambda: (tmp_path / "runs").read_text().splitlines() if (tmp_path / "runs").exists() else []


@pytest.fixture
def work(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The parameters of an action that leaves its line in the file `runs`."""
    return lambda number=3, **more: {"number": number, "runs": str(tmp_path / "runs"), **more}


@pytest.fixture
def gated(work: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """The same for an action that then waits for the file `gate`."""
    return lambda: work(gate=str(tmp_path / "gate"))


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """Whether a process runs."""

    def is_alive(pid: int) -> bool:
        stat = Path(f"/proc/{pid}/stat")
        return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"

    return is_alive


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Awaitable[None]]:
    """Waits for a condition that nobody announces: a file, the end of a process."""

    async def wait(condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    return wait
