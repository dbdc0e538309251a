# SPDX-License-Identifier: Apache-2.0
"""Defects of a provider: the condition of its site reports them, without secrets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from scripted_site import SITE, TIMING, ScriptedSite, owner

from simyard.api.base import find_condition
from simyard.api.cloud_site import CloudSite, SiteWorkers
from simyard.fleet.registry import get_time
from simyard.fleet.sites.batch_queue import BatchQueue
from simyard.fleet.sites.calls import carry_out
from simyard.fleet.sites.guarded import GuardedSite
from simyard.fleet.sites.health import SiteHealth
from simyard.plan.breaker import DefectError
from simyard.plan.machine import Step
from simyard.plan.site import plan_site
from simyard_sites.base import (
    Machine,
    MachineRequest,
    Outcome,
    PowerAction,
    SiteEvent,
    SiteInfo,
    UnavailableError,
)

SECRET = "a-token-that-nobody-may-read"


@dataclass
class Defective(ScriptedSite):
    """A site whose named calls raise the given error."""

    error: Exception = field(default_factory=lambda: KeyError(SECRET))
    defects: tuple[str, ...] = ("probe", "create", "delete", "get", "act", "list_owned", "events", "clear", "aclose")

    def _raise(self, call: str) -> None:
        if call in self.defects:
            raise self.error

    async def probe(self) -> SiteInfo:
        self._raise("probe")
        return await super().probe()

    def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        self._raise("create")
        return super().create(requests)

    def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        self._raise("delete")
        return super().delete(ids)

    async def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        for number, machine_id in enumerate(ids):
            if number:
                self._raise("get")
            yield Outcome(machine_id)

    def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        self._raise("act")
        return super().act(ids, action)

    async def list_owned(self) -> Sequence[Machine]:
        self._raise("list_owned")
        return await super().list_owned()

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        self._raise("events")
        async for event in super().events():
            yield event

    async def clear(self) -> None:
        self._raise("clear")

    async def aclose(self) -> None:
        self._raise("aclose")


def request() -> MachineRequest:
    return MachineRequest("pool-0", owner("pool-0"), b"{}")


async def drained(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


CALLS: dict[str, Callable[[GuardedSite], Any]] = {
    "probe": lambda site: site.probe(),
    "create": lambda site: drained(site.create([request()])),
    "delete": lambda site: drained(site.delete(["1"])),
    "get": lambda site: drained(site.get(["1", "2"])),
    "act": lambda site: drained(site.act(["1"], PowerAction.START)),
    "list_owned": lambda site: site.list_owned(),
    "events": lambda site: drained(site.events()),
    "clear": lambda site: site.clear(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_an_exception_that_is_no_site_error_becomes_one_that_says_its_type_and_no_more(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(DefectError, match=f"KeyError in {call}") as raised:
        await CALLS[call](GuardedSite("site", Defective()))
    assert raised.value.reason == "Internal"
    assert raised.value.retryable
    assert f"KeyError in {call}" in caplog.text
    assert __file__ in caplog.text, "the log says where"
    assert SECRET not in f"{raised.value!r} {raised.value}"
    assert SECRET not in "".join(logging.Formatter().format(record) for record in caplog.records)


async def test_errors_of_the_interface_cancellations_and_outcomes_pass() -> None:
    site = GuardedSite("site", Defective(error=UnavailableError("nobody answers")))
    with pytest.raises(UnavailableError, match="nobody answers"):
        await site.probe()
    outcomes = GuardedSite("site", Defective()).get(["1", "2"])
    assert (await anext(outcomes)).key == "1"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), asyncio.TaskGroup() as group:
            group.create_task(drained(GuardedSite("site", Defective(defects=(), mute=True)).events()))


async def test_the_types_within_a_group_are_named() -> None:
    group = ExceptionGroup("of tasks", [ValueError(SECRET), ExceptionGroup("within", [KeyError(SECRET)])])
    with pytest.raises(DefectError, match="ExceptionGroup of ValueError, ExceptionGroup of KeyError"):
        await GuardedSite("site", Defective(error=group)).probe()


async def test_closing_a_provider_that_has_a_defect_succeeds() -> None:
    await GuardedSite("site", Defective()).aclose()


@pytest.mark.parametrize("call", ["probe", "create"])
async def test_the_ready_condition_says_it(call: str) -> None:
    site = CloudSite.model_validate(SITE)
    told = asyncio.Event()
    guarded = GuardedSite("site", Defective(defects=(call,)))
    health = SiteHealth(
        "site", guarded, BatchQueue("site", site.spec.limits, told.set), told.set, TIMING.site_retry_first_seconds
    )
    probing = asyncio.create_task(health.probe())

    def ready() -> Any:
        return find_condition(plan_site(site, health.observe(SiteWorkers(), 0, ()), get_time()).conditions, "Ready")

    try:
        async with asyncio.timeout(240):
            await told.wait()
        if call == "create":
            assert ready().status == "True"
            asked = guarded.create([request()])
            await carry_out("site", health, Step.CREATE, ["pool-0"], asked, lambda outcome: None)
    finally:
        probing.cancel()
        await asyncio.wait([probing])
    assert (ready().status, ready().reason) == ("False", "Internal")
    assert f"KeyError in {call}" in ready().message
    assert SECRET not in ready().message
