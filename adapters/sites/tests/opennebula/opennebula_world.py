# SPDX-License-Identifier: Apache-2.0
"""The world of the conformance suite for OpenNebula: a simulated oned for each test, with faults to switch on.

``pytest --pyargs simyard_sites.conformance --site opennebula_world:make_world``
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from simyard_dev.providers import complete_open_nebula
from simyard_simulators.oned import WIDE, Lcm, Oned, Settings, State
from simyard_sites.base import Machine, MachineRequest, Site, SiteConfig
from simyard_sites.conformance.world import World
from simyard_sites.opennebula import transport
from simyard_sites.opennebula.site import OpenNebulaSite

CHANGES = ("one.template.instantiate", "one.vm.action", "one.vm.recover")
_SILENCE_SECONDS = 0.2
CLOUD = Settings(time_scale=0.03, cost_scale=0, scheduler=WIDE)
_PROVIDER = {"template": "worker", "imageOwner": "oneadmin", "pollMilliseconds": 50, "quietPollSeconds": 1}


class OpenNebulaWorld(World):
    """A simulated oned. The account uses login tokens, so that they can expire."""

    kept_connections = 2
    """The connections of a poll that is under way; oned closes each connection after its answer."""

    def __init__(self, oned: Oned) -> None:
        self.oned = oned
        self.password = "secret"
        self._bytes = 0

    def site(self, installation: str = "default", name: str = "one", **provider: Any) -> Site:
        """Create a site for this installation and CloudSite."""
        given = {"endpoint": self.oned.url, "loginTokenSeconds": 600, **_PROVIDER, **provider}
        config = complete_open_nebula() | given
        credentials = {"username": "simyard", "password": self.password}
        return OpenNebulaSite(SiteConfig(name, config, credentials, installation))

    def connections(self) -> int:
        """Return the number of open connections."""
        return self.oned.counters.open_connections

    def is_own_task(self, task: asyncio.Task[object]) -> bool:
        """Return True if the task belongs to the world and not to the site."""
        return getattr(task.get_coro(), "__qualname__", "").startswith("Oned.")

    async def lose_answers(self, calls: int) -> None:
        """Lose the answers of the next calls."""
        self.oned.faults.lose_answers(calls, *CHANGES)

    async def throttle(self, calls: int, retry_after_seconds: float | None) -> None:
        """Refuse the next calls as a proxy in front of oned does, with a delay in whole seconds."""
        if retry_after_seconds is not None and retry_after_seconds != int(retry_after_seconds):
            pytest.skip("a proxy sends Retry-After in whole seconds")
        wait = None if retry_after_seconds is None else int(retry_after_seconds)
        self.oned.faults.throttle(calls, "one.template.instantiate", retry_after_seconds=wait)

    @asynccontextmanager
    async def quota_exhausted(self) -> AsyncIterator[None]:
        """Exhaust the quota while the block runs."""
        quota = next(user for user in self.oned.cloud.users.values() if user.name == "simyard").quota
        limits = dict(quota.limits)
        quota.limits["VMS"] = max(1, sum(vm.state is not State.DONE for vm in self.oned.cloud.vms.values()))
        yield
        quota.limits.clear()
        quota.limits.update(limits)

    @asynccontextmanager
    async def permission_denied(self) -> AsyncIterator[None]:
        """Deny the permission to create machines while the block runs."""
        self.oned.faults.deny("one.template.instantiate", "User [2] : Not authorized to perform CREATE VM Pool.")
        yield
        self.oned.faults.clear()

    async def expire_credentials(self) -> None:
        """Expire the credentials."""
        user = next(user for user in self.oned.cloud.users.values() if user.name == "simyard")
        user.tokens.clear()
        user.password = self.password = f"{self.password}-renewed"

    @asynccontextmanager
    async def unreachable(self) -> AsyncIterator[None]:
        """Refuse every connection while the block runs."""
        self.oned.faults.close(1_000_000)
        yield
        self.oned.faults.clear()

    @asynccontextmanager
    async def silent(self) -> AsyncIterator[None]:
        """Answer no request while the block runs."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transport, "READ_SECONDS", _SILENCE_SECONDS)
            patch.setattr(transport, "WRITE_SECONDS", _SILENCE_SECONDS)
            self.oned.faults.pause()
            try:
                yield
            finally:
                self.oned.faults.resume()

    async def leftovers(self) -> Collection[str]:
        """Return the objects beside machines that the site has left behind."""
        cloud = self.oned.cloud
        return [*(f"template {number}" for number in cloud.templates), *(f"image {number}" for number in cloud.images)]

    @asynccontextmanager
    async def events_lost(self) -> AsyncIterator[None]:
        """Fail the polls while the block runs."""
        self.oned.faults.close(1_000_000, "one.vmpool.infoset", "one.vmpool.info")
        yield
        self.oned.faults.clear()

    async def finish_machines(self, count: int) -> None:
        """Create machines that have ended."""
        self.oned.fill(finished=count)

    def cost(self) -> int:
        """Return the cost of the calls so far: table rows that queries read, and bytes."""
        return self.oned.counters.scanned_rows + self.oned.counters.bytes_out

    async def fail_machine(self, machine: Machine) -> None:
        """Fail a machine: it cannot be booted after a reboot of its host."""
        self.oned.cloud.index(self.oned.cloud.vms[int(machine.id)], State.ACTIVE, Lcm.BOOT_FAILURE)

    async def remove_machine(self, machine: Machine) -> None:
        """Remove a machine without the site."""
        self.oned.cloud.index(self.oned.cloud.vms[int(machine.id)], State.DONE, Lcm.LCM_INIT)

    def spoil(self, request: MachineRequest) -> MachineRequest:
        """Return a request that can never succeed."""
        return replace(request, image="no-such-image")

    def wrong_sites(self) -> Mapping[str, Callable[[], Site]]:
        """Return factories of sites with one wrong setting each, by the field's name."""
        wrong = {
            "spec.provider.openNebula.template": {"template": "no-such-template"},
            "spec.provider.openNebula.networks": {"networks": [{"name": "no-such-network"}]},
            "spec.provider.openNebula.userGroup": {"userGroup": "no-such-group"},
            "spec.provider.openNebula.endpoint": {"endpoint": self.oned.url.replace("RPC2", "")},
            "spec.provider.openNebula.proxy": {"proxy": "http://127.0.0.1:1"},
        }
        return {field: lambda provider=provider: self.site(**provider) for field, provider in wrong.items()}  # type: ignore[misc]


def make_world(settings: Settings = CLOUD) -> AbstractAsyncContextManager[World]:
    """Return a new world."""
    return _make_world(settings)


@asynccontextmanager
async def _make_world(settings: Settings) -> AsyncIterator[World]:
    async with Oned(settings) as oned:
        yield OpenNebulaWorld(oned)
