"""The world of the conformance suite for emulated clouds: a cloud for each test, and what can go wrong in it.

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
from simyard_sites.emulated.files import DIRECTORY_VARIABLE, cloud_files
from simyard_sites.emulated.protocol import Disturb, Forget
from simyard_sites.emulated.site import EmulatedSite

_NAME = "site"
_CLOUDS = (("default", _NAME), ("other", _NAME), ("default", "other"))
_MANY = 1_000_000
_UNUSABLE = "3"
_GUEST = ("sh", "-c", "mkfifo end 2>&-; read code < end; exit $code", "guest")
"""Runs until an exit code is written into the pipe ``end`` in the directory of its machine."""
_CLOUD = {
    "timeScalePercent": 1,
    "latencies": {"bootMilliseconds": 1000},
    "hosts": {"count": 1, "machinesPerHost": 50},  # in a burst the others wait: each that runs is a process
}


class EmulatedWorld(World):
    """Emulated clouds in a directory of their own. They need no credentials, and keep no machine that has ended."""

    def site(self, installation: str = "default", name: str = _NAME) -> Site:
        """See :class:`World`."""
        return _site(_CLOUD, installation, name)

    async def lose_answers(self, calls: int) -> None:
        """See :class:`World`."""
        await _inject(Disturb(calls))

    async def throttle(self, calls: int, retry_after_seconds: float | None) -> None:
        """See :class:`World`."""
        error = ThrottledError("too many requests", retry_after_seconds=retry_after_seconds)
        await _inject(Disturb(calls, error))

    def quota_exhausted(self) -> AbstractAsyncContextManager[None]:
        """See :class:`World`."""
        return _while(Disturb(_MANY, QuotaExhaustedError("the quota is used up")))

    def permission_denied(self) -> AbstractAsyncContextManager[None]:
        """See :class:`World`."""
        return _while(Disturb(_MANY, PermissionDeniedError("no machine may be created")))

    async def leftovers(self) -> Collection[str]:
        """See :class:`World`: such a cloud keeps nothing but machines."""
        return ()

    def events_lost(self) -> AbstractAsyncContextManager[None]:
        """See :class:`World`: they are made up for by a snapshot, 0.3 s later."""
        return _while(Disturb(loses_events=True))

    async def fail_machine(self, machine: Machine) -> None:
        """See :class:`World`: its guest says that it can never work."""
        end = cloud_files("default", _NAME).machines / machine.id / "end"
        async with asyncio.timeout(self.deadline_seconds):
            while not end.exists():  # noqa: ASYNC110 - the guest says nothing
                await asyncio.sleep(0.01)
        await asyncio.to_thread(end.write_text, _UNUSABLE)

    async def remove_machine(self, machine: Machine) -> None:
        """See :class:`World`: nobody is told."""
        await _inject(Forget([machine.id]))

    def wrong_sites(self) -> Mapping[str, Callable[[], Site]]:
        """See :class:`World`."""
        return {
            "spec.provider.emulated.guests": lambda: _site({"guests": "people"}),
            "spec.provider.emulated.hosts.count": lambda: _site({"hosts": {"count": -1}}),
        }


@asynccontextmanager
async def make_world() -> AsyncIterator[World]:
    """A world of its own; its clouds end with it."""
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as environment:
        environment.setenv(DIRECTORY_VARIABLE, root)
        try:
            yield EmulatedWorld()
        finally:
            for installation, name in _CLOUDS:
                await client.shut_down(cloud_files(installation, name))


def _site(provider: Mapping[str, Any], installation: str = "default", name: str = _NAME) -> Site:
    return EmulatedSite(SiteConfig(name, provider, installation=installation), _GUEST)


async def _inject(fault: Forget | Disturb) -> None:
    async with contextlib.aclosing(_site(_CLOUD)) as site:
        await site.probe()  # starts the cloud
    await client.inject(cloud_files("default", _NAME), fault)


@asynccontextmanager
async def _while(fault: Disturb) -> AsyncIterator[None]:
    await _inject(fault)
    yield
    await _inject(Disturb())
