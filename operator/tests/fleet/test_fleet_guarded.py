"""What a provider does that no provider may do is said in the condition of its site, and nothing secret with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from scripted_site import SITE, ScriptedSite, owner, quick

from simyard.api.base import find_condition
from simyard.api.cloud_site import CloudSite, SiteWorkers
from simyard.fleet.guarded import Guarded
from simyard.fleet.registry import now
from simyard.fleet.site_calls import carry_out
from simyard.fleet.site_health import SiteHealth
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

__all__ = ["quick"]
SECRET = "a-token-that-nobody-may-read"


@dataclass
class Defective(ScriptedSite):
    """Raises what it is given, from the calls that are named."""

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


CALLS: dict[str, Callable[[Guarded], Any]] = {
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
        await CALLS[call](Guarded("site", Defective()))
    assert raised.value.reason == "Internal"
    assert raised.value.retryable
    assert f"KeyError in {call}" in caplog.text
    assert __file__ in caplog.text, "the log says where"
    assert SECRET not in f"{raised.value!r} {raised.value}"
    assert SECRET not in "".join(logging.Formatter().format(record) for record in caplog.records)


async def test_errors_of_the_interface_cancellations_and_outcomes_pass() -> None:
    site = Guarded("site", Defective(error=UnavailableError("nobody answers")))
    with pytest.raises(UnavailableError, match="nobody answers"):
        await site.probe()
    outcomes = Guarded("site", Defective()).get(["1", "2"])
    assert (await anext(outcomes)).key == "1"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), asyncio.TaskGroup() as group:
            group.create_task(drained(Guarded("site", Defective(defects=(), mute=True)).events()))


async def test_the_types_within_a_group_are_named() -> None:
    group = ExceptionGroup("of tasks", [ValueError(SECRET), ExceptionGroup("within", [KeyError(SECRET)])])
    with pytest.raises(DefectError, match="ExceptionGroup of ValueError, ExceptionGroup of KeyError"):
        await Guarded("site", Defective(error=group)).probe()


async def test_closing_a_provider_that_has_a_defect_succeeds() -> None:
    await Guarded("site", Defective()).aclose()


@pytest.mark.parametrize("call", ["probe", "create"])
async def test_the_ready_condition_says_it(call: str) -> None:
    site = CloudSite.model_validate(SITE)
    told = asyncio.Event()
    guarded = Guarded("site", Defective(defects=(call,)))
    health = SiteHealth("site", guarded, changed=told.set, permitted_changed=lambda: None, waits=lambda: False)
    probing = asyncio.create_task(health.probe())

    def ready() -> Any:
        return find_condition(plan_site(site, health.observation(SiteWorkers(), 0, ()), now()).conditions, "Ready")

    try:
        async with asyncio.timeout(60):
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
