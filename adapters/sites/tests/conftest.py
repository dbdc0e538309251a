# SPDX-License-Identifier: Apache-2.0
"""Emulated sites for tests: each test has its own clouds, which end with it."""

import asyncio
import os
import select
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from simyard_dev.providers import complete_emulated
from simyard_sites.base import (
    MachineRequest,
    Outcome,
    Owner,
    Site,
    SiteConfig,
)
from simyard_sites.conformance.observer import Observer
from simyard_sites.emulated import EmulatedSite, client
from simyard_sites.emulated.child import MARK
from simyard_sites.emulated.files import DIRECTORY_VARIABLE, CloudFiles

DEADLINE_SECONDS = 240.0
SLEEPING_GUEST = ("sh", "-c", "exec sleep 600", "guest")


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def read(process_id: int, name: str) -> bytes:
    """A file of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{process_id}/{name}").read_bytes()
    except OSError:
        return b""


def marked_processes(directory: Path) -> set[int]:
    """The processes that run in machines below a directory."""
    mark = f"{MARK}={directory}/".encode()
    return {process for process in processes() if mark in read(process, "environ")}


@dataclass
class Clouds:
    """Makes sites whose clouds are below one directory of the test."""

    directory: Path
    sites: list[EmulatedSite] = field(default_factory=list)

    def site(self, guest: Sequence[str] = SLEEPING_GUEST, name: str = "here", **provider: Any) -> EmulatedSite:
        site = EmulatedSite(SiteConfig(name, complete_emulated(**provider)), guest)
        self.sites.append(site)
        return site

    def files(self, name: str = "here") -> CloudFiles:
        return CloudFiles(self.directory / f"default-{name}")

    def process_id(self) -> int:
        return int(self.files().process_id.read_text())

    def serving(self) -> set[int]:
        """The processes that are, or become, the cloud."""
        directory = str(self.files().directory).encode()
        return {process for process in processes() if directory in read(process, "cmdline").split(b"\0")}

    def guests(self) -> set[int]:
        """The processes that run in the machines."""
        return marked_processes(self.files().machines)

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Wait until it is so."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not wanted():  # noqa: ASYNC110 - /proc and files send no events
                await asyncio.sleep(0.02)

    async def until_guests(self, wanted: Callable[[set[int]], bool]) -> set[int]:
        """Wait until the processes in all machines are as wanted."""
        await self.until(lambda: wanted(self.guests()))
        return self.guests()


@pytest.fixture
async def clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Clouds]:
    """Emulated clouds of this test alone; at its end they are shut down, and nothing of them may be left."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    made = Clouds(tmp_path)
    yield made
    for site in made.sites:
        await site.aclose()
    for directory in made.directory.glob("default-*"):
        await client.shut_down(CloudFiles(directory))
    assert not made.guests()


@pytest.fixture
async def observe() -> AsyncIterator[Callable[[Site], Observer]]:
    """Gives an Observer that watches a site until the test ends."""
    observers = []

    def start(site: Site) -> Observer:
        observers.append(Observer(site, lambda seen: None, DEADLINE_SECONDS))
        return observers[-1]

    yield start
    for observer in observers:
        await observer.aclose()


@pytest.fixture
def requests_for() -> Callable[..., list[MachineRequest]]:
    """Gives requests for machines of these names."""

    def requests(*names: str, bootstrap: bytes = b"{}") -> list[MachineRequest]:
        return [MachineRequest(name, Owner("default", name, f"uid-{name}", "pool"), bootstrap) for name in names]

    return requests


@pytest.fixture
def outcomes() -> Callable[[AsyncIterator[Outcome]], Any]:
    """Gives all outcomes of a call."""

    async def collect(call: AsyncIterator[Outcome]) -> list[Outcome]:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return [outcome async for outcome in call]

    return collect


@pytest.fixture
def marked() -> Callable[[Path], set[int]]:
    """Gives the processes that run in machines below a directory."""
    return marked_processes


@pytest.fixture
def death_of() -> Callable[[int], None]:
    """Waits for the end of a process."""

    def wait(process_id: int) -> None:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(process_id)
            end = select.poll()
            end.register(descriptor, select.POLLIN)
            started = time.monotonic()
            assert end.poll(DEADLINE_SECONDS * 1000), f"{process_id} runs after {time.monotonic() - started} s"
            os.close(descriptor)

    return wait
