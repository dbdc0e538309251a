# SPDX-License-Identifier: Apache-2.0
"""The world of the conformance suite for the toy cloud, with all faults."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import toy_cloud
import toy_site

from simyard_sites.base import Machine, MachineRequest, Site, SiteConfig
from simyard_sites.conformance.world import World


class ToyWorld(World):
    """A toy cloud per test."""

    make_site = toy_site.ToySite
    deadline_seconds = 60.0

    def __init__(self) -> None:
        self.cloud = toy_site.CLOUDS["here"] = toy_cloud.Cloud()
        self.token = "good"

    def site(self, installation: str = "default", name: str = "toy") -> Site:
        return self.site_with("here", self.token, installation, name)

    def site_with(self, cloud: str, token: str, installation: str = "default", name: str = "toy") -> Site:
        provider = {"name": "toy", "settings": {"cloud": cloud}}
        return self.make_site(SiteConfig(name, provider, {"token": token}, installation))

    async def lose_answers(self, calls: int) -> None:
        self.cloud.answers_to_lose = calls

    async def throttle(self, calls: int, retry_after_seconds: float | None) -> None:
        self.cloud.refusals.extend([toy_cloud.RefusedError(429, "too many requests", retry_after_seconds)] * calls)

    @asynccontextmanager
    async def changed(self, **what: Any) -> AsyncIterator[None]:
        before = {name: getattr(self.cloud, name) for name in what}
        vars(self.cloud).update(what)
        yield
        vars(self.cloud).update(before)

    def quota_exhausted(self) -> Any:
        return self.changed(creates_refused=toy_cloud.RefusedError(507, "3 of 3 machines are used"))

    def permission_denied(self) -> Any:
        return self.changed(creates_refused=toy_cloud.RefusedError(403, "this token may not create machines"))

    def unreachable(self) -> Any:
        return self.changed(is_down=True)

    def held(self) -> Any:
        return self.changed(is_held=True)

    @asynccontextmanager
    async def silent(self) -> AsyncIterator[None]:
        before, toy_site.DEADLINE_SECONDS = toy_site.DEADLINE_SECONDS, 0.05
        try:
            async with self.changed(answers_nobody=True):
                yield
        finally:
            toy_site.DEADLINE_SECONDS = before

    async def leftovers(self) -> Collection[str]:
        return self.cloud.files

    @asynccontextmanager
    async def events_lost(self) -> AsyncIterator[None]:
        async with self.changed(is_silent=True):
            yield
        self.cloud.forgotten += len(self.cloud.log)
        self.cloud.log.clear()

    async def expire_credentials(self) -> None:
        self.token = "better"
        self.cloud.tokens = {self.token}

    async def finish_machines(self, count: int) -> None:
        self.cloud.ended.extend({"id": f"old-{number}", "state": "gone"} for number in range(count))

    def cost(self) -> int:
        return self.cloud.looked_at

    async def fail_machine(self, machine: Machine) -> None:
        self.cloud.enter(self.cloud.machines[machine.id], "failed")

    async def remove_machine(self, machine: Machine) -> None:
        self.cloud.enter(self.cloud.machines[machine.id], "gone")

    def spoil(self, request: MachineRequest) -> MachineRequest:
        return replace(request, memory_mib=0)

    def wrong_sites(self) -> Mapping[str, Callable[[], Site]]:
        return {
            "spec.provider.other.settings.cloud": lambda: self.site_with("nowhere", "good"),
            "spec.provider.other.credentialsSecretRef": lambda: self.site_with("here", "bad"),
        }


@asynccontextmanager
async def make_world() -> AsyncIterator[World]:
    yield ToyWorld()
