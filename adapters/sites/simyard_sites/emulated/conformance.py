# SPDX-License-Identifier: Apache-2.0
"""Defines the world of the conformance suite for emulated clouds: a cloud for each test, with switches for its faults.

``pytest --pyargs simyard_sites.conformance --site simyard_sites.emulated.conformance:make_world``
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from simyard_sites.base import Machine, PermissionDeniedError, QuotaExhaustedError, Site, SiteConfig, ThrottledError
from simyard_sites.conformance.world import World
from simyard_sites.emulated import client
from simyard_sites.emulated.files import DIRECTORY_VARIABLE, get_cloud_files
from simyard_sites.emulated.protocol import Disturb, Forget
from simyard_sites.emulated.site import EmulatedSite

_NAME = "site"
_CLOUDS = (("default", _NAME), ("other", _NAME), ("default", "other"))
_MANY = 1_000_000
_UNUSABLE = "3"
_GUEST = ("sh", "-c", "mkfifo end 2>&-; read code < end; exit $code", "guest")
"""A guest that runs until an exit code is written into the pipe ``end`` in its machine's directory."""
_CLOUD = {
    "guests": "process",
    "profile": "instant",
    "timeScalePercent": 1,
    "latencies": {"bootMilliseconds": 1000},
    "hosts": {"count": 1, "machinesPerHost": 50},  # In a burst most machines wait: each running one is a process.
}


class EmulatedWorld(World):
    """The emulated clouds of one test, in a separate directory.

    They need no credentials, and keep no ended machines.
    """

    def site(self, installation: str = "default", name: str = _NAME) -> Site:
        """Create a site for this installation and CloudSite."""
        return _site(_CLOUD, installation, name)

    async def lose_answers(self, calls: int) -> None:
        """Lose the answers of the next calls."""
        await _inject(Disturb(calls))

    async def throttle(self, calls: int, retry_after_seconds: float | None) -> None:
        """Refuse the next calls as too many."""
        error = ThrottledError("too many requests", retry_after_seconds=retry_after_seconds)
        await _inject(Disturb(calls, error))

    def quota_exhausted(self) -> AbstractAsyncContextManager[None]:
        """Exhaust the quota while the block runs."""
        return _while(Disturb(_MANY, QuotaExhaustedError("the quota is used up")))

    def permission_denied(self) -> AbstractAsyncContextManager[None]:
        """Deny the permission to create machines while the block runs."""
        return _while(Disturb(_MANY, PermissionDeniedError("no machine may be created")))

    async def leftovers(self) -> Collection[str]:
        """Return nothing: an emulated cloud stores only machines."""
        return ()

    def events_lost(self) -> AbstractAsyncContextManager[None]:
        """Lose all events while the block runs. The cloud sends a snapshot 0.3 s later."""
        return _while(Disturb(loses_events=True))

    async def fail_machine(self, machine: Machine) -> None:
        """Make a machine fail: its guest reports that it can never work."""
        end = get_cloud_files("default", _NAME).machines / machine.id / "end"
        async with asyncio.timeout(self.deadline_seconds):
            while not end.exists():  # noqa: ASYNC110 - the guest says nothing
                await asyncio.sleep(0.01)
        await asyncio.to_thread(end.write_text, _UNUSABLE)

    async def remove_machine(self, machine: Machine) -> None:
        """Remove a machine without an event."""
        await _inject(Forget([machine.id]))

    def wrong_sites(self) -> Mapping[str, Callable[[], Site]]:
        """Return factories of sites with one wrong setting each, by the field's name."""
        return {
            "spec.provider.emulated.guests": lambda: _site(_CLOUD | {"guests": "people"}),
            "spec.provider.emulated.hosts.count": lambda: _site(_CLOUD | {"hosts": {"count": -1}}),
        }


@asynccontextmanager
async def make_world() -> AsyncIterator[World]:
    """Yield a new world, and end its clouds afterwards."""
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as environment:
        environment.setenv(DIRECTORY_VARIABLE, root)
        try:
            yield EmulatedWorld()
        finally:
            for installation, name in _CLOUDS:
                await client.shut_down(get_cloud_files(installation, name))


def _site(provider: Mapping[str, Any], installation: str = "default", name: str = _NAME) -> Site:
    return EmulatedSite(SiteConfig(name, provider, installation=installation), _GUEST)


async def _inject(fault: Forget | Disturb) -> None:
    async with contextlib.aclosing(_site(_CLOUD)) as site:
        await site.probe()  # The probe starts the cloud.
    await client.inject(get_cloud_files("default", _NAME), fault)


@asynccontextmanager
async def _while(fault: Disturb) -> AsyncIterator[None]:
    await _inject(fault)
    yield
    await _inject(Disturb())
