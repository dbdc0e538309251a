"""The world of the conformance suite for OpenNebula: a simulated oned for each test, and what can go wrong in it.

``pytest --pyargs simyard_sites.conformance --site simyard_sites.opennebula.conformance:make_world``

With ``make_daemon_world`` it is the cloud that the environment names, as docs/sites/opennebula.md tells.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from simyard_sites.base import Machine, MachineRequest, Site, SiteConfig
from simyard_sites.conformance.world import World
from simyard_sites.opennebula import transport
from simyard_sites.opennebula.site import OpenNebulaSite
from simyard_sites.testing.oned import WIDE, Lcm, Oned, Settings, State

CHANGES = ("one.template.instantiate", "one.vm.action", "one.vm.recover")
_SILENCE_SECONDS = 0.2
CLOUD = Settings(time_scale=0.03, cost_scale=0, scheduler=WIDE)
_PROVIDER = {"template": "worker", "imageOwner": "oneadmin", "pollMilliseconds": 50, "quietPollSeconds": 1}


class OpenNebulaWorld(World):
    """A simulated oned. The account uses login tokens, so that they can expire."""

    kept_connections = 2
    """oned closes each after its answer: those of a poll that is under way."""

    def __init__(self, oned: Oned) -> None:
        self.oned = oned
        self.password = "secret"  # noqa: S105 - of the simulated cloud
        self._bytes = 0

    def site(self, installation: str = "default", name: str = "one", **provider: Any) -> Site:
        """See :class:`World`."""
        config = {"endpoint": self.oned.url, "loginTokenSeconds": 600, **_PROVIDER, **provider}
        credentials = {"username": "simyard", "password": self.password}
        return OpenNebulaSite(SiteConfig(name, config, credentials, installation))

    def connections(self) -> int:
        """See :class:`World`."""
        return self.oned.counters.open_connections

    def is_own_task(self, task: asyncio.Task[object]) -> bool:
        """See :class:`World`."""
        return getattr(task.get_coro(), "__qualname__", "").startswith("Oned.")

    async def lose_answers(self, calls: int) -> None:
        """See :class:`World`."""
        self.oned.faults.lose_answers(calls, *CHANGES)

    async def throttle(self, calls: int, retry_after_seconds: float | None) -> None:
        """See :class:`World`: a proxy before oned does so, in whole seconds."""
        if retry_after_seconds is not None and retry_after_seconds != int(retry_after_seconds):
            pytest.skip("a proxy says Retry-After in whole seconds")
        wait = None if retry_after_seconds is None else int(retry_after_seconds)
        self.oned.faults.throttle(calls, "one.template.instantiate", retry_after_seconds=wait)

    @asynccontextmanager
    async def quota_exhausted(self) -> AsyncIterator[None]:
        """See :class:`World`."""
        quota = next(user for user in self.oned.cloud.users.values() if user.name == "simyard").quota
        limits = dict(quota.limits)
        quota.limits["VMS"] = max(1, sum(vm.state is not State.DONE for vm in self.oned.cloud.vms.values()))
        yield
        quota.limits.clear()
        quota.limits.update(limits)

    @asynccontextmanager
    async def permission_denied(self) -> AsyncIterator[None]:
        """See :class:`World`."""
        self.oned.faults.deny("one.template.instantiate", "User [2] : Not authorized to perform CREATE VM Pool.")
        yield
        self.oned.faults.clear()

    async def expire_credentials(self) -> None:
        """See :class:`World`."""
        user = next(user for user in self.oned.cloud.users.values() if user.name == "simyard")
        user.tokens.clear()
        user.password = self.password = f"{self.password}-renewed"

    @asynccontextmanager
    async def unreachable(self) -> AsyncIterator[None]:
        """See :class:`World`."""
        self.oned.faults.close(1_000_000)
        yield
        self.oned.faults.clear()

    @asynccontextmanager
    async def silent(self) -> AsyncIterator[None]:
        """See :class:`World`."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transport, "READ_SECONDS", _SILENCE_SECONDS)
            patch.setattr(transport, "WRITE_SECONDS", _SILENCE_SECONDS)
            self.oned.faults.pause()
            try:
                yield
            finally:
                self.oned.faults.resume()

    async def leftovers(self) -> Collection[str]:
        """See :class:`World`."""
        cloud = self.oned.cloud
        return [*(f"template {number}" for number in cloud.templates), *(f"image {number}" for number in cloud.images)]

    @asynccontextmanager
    async def events_lost(self) -> AsyncIterator[None]:
        """See :class:`World`: polls fail."""
        self.oned.faults.close(1_000_000, "one.vmpool.infoset", "one.vmpool.info")
        yield
        self.oned.faults.clear()

    async def finish_machines(self, count: int) -> None:
        """See :class:`World`."""
        self.oned.fill(finished=count)

    def cost(self) -> int:
        """See :class:`World`: rows that queries looked at, and bytes."""
        return self.oned.counters.scanned_rows + self.oned.counters.bytes_out

    async def fail_machine(self, machine: Machine) -> None:
        """See :class:`World`: it cannot be booted after its host was rebooted, say."""
        self.oned.cloud.index(self.oned.cloud.vms[int(machine.id)], State.ACTIVE, Lcm.BOOT_FAILURE)

    async def remove_machine(self, machine: Machine) -> None:
        """See :class:`World`."""
        self.oned.cloud.index(self.oned.cloud.vms[int(machine.id)], State.DONE, Lcm.LCM_INIT)

    def spoil(self, request: MachineRequest) -> MachineRequest:
        """See :class:`World`."""
        return replace(request, image="no-such-image")

    def wrong_sites(self) -> Mapping[str, Callable[[], Site]]:
        """See :class:`World`."""
        wrong = {
            "spec.provider.openNebula.template": {"template": "no-such-template"},
            "spec.provider.openNebula.networks": {"networks": [{"name": "no-such-network"}]},
            "spec.provider.openNebula.userGroup": {"userGroup": "no-such-group"},
            "spec.provider.openNebula.endpoint": {"endpoint": self.oned.url.replace("RPC2", "")},
            "spec.provider.openNebula.proxy": {"proxy": "http://127.0.0.1:1"},
        }
        return {field: lambda provider=provider: self.site(**provider) for field, provider in wrong.items()}  # type: ignore[misc]


class DaemonWorld(World):
    """A real oned, which has no switches to misbehave: tests that need one are skipped."""

    kept_connections = 2
    deadline_seconds = 120.0
    burst = 100

    def __init__(self) -> None:
        self._unique = uuid.uuid4().hex[:8]

    def site(self, installation: str = "default", name: str = "one", **provider: Any) -> Site:
        """See :class:`World`."""
        username, _, password = os.environ["SIMYARD_ONE_AUTH"].partition(":")
        config = {
            "endpoint": os.environ["SIMYARD_ONE_ENDPOINT"],
            "template": os.environ.get("SIMYARD_ONE_TEMPLATE", "worker"),
            **provider,
        }
        credentials = {"username": username, "password": password}
        return OpenNebulaSite(SiteConfig(name, config, credentials, f"{installation}-{self._unique}"))

    def spoil(self, request: MachineRequest) -> MachineRequest:
        """See :class:`World`."""
        return replace(request, image="no-such-image")

    def wrong_sites(self) -> Mapping[str, Callable[[], Site]]:
        """See :class:`World`."""
        return {"spec.provider.openNebula.template": lambda: self.site(template="no-such-template")}


@asynccontextmanager
async def make_daemon_world() -> AsyncIterator[World]:
    """Give the cloud of ``SIMYARD_ONE_ENDPOINT``, ``SIMYARD_ONE_AUTH`` (user:password), ``SIMYARD_ONE_TEMPLATE``."""
    yield DaemonWorld()


def make_world(settings: Settings = CLOUD) -> AbstractAsyncContextManager[World]:
    """Return a world of its own."""
    return _make_world(settings)


@asynccontextmanager
async def _make_world(settings: Settings) -> AsyncIterator[World]:
    async with Oned(settings) as oned:
        yield OpenNebulaWorld(oned)
