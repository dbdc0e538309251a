# SPDX-License-Identifier: Apache-2.0
"""Tests that a call cancelled at any moment leaves nothing behind, and that the next call works."""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import types
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import aclosing
from typing import Any

import pytest

from simyard_sites.base import MachineState, Outcome, PowerAction, Site
from simyard_sites.conformance.trial import Trial, succeeded

_WAITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 17, 22)
_TURNS = (1, 2, 3, 5, 8, 13, 24, 48, 96, 192, 384, 768)
_GIVEN_UP_SECONDS = 30.0
_INTERRUPTED_SECONDS = 60.0
"""The approximate time for which one test interrupts calls. At a slow cloud, it therefore interrupts fewer calls."""

Call = Callable[[Site, str], Awaitable[object]]


@pytest.mark.asyncio(loop_scope="function")
class Interrupting:
    """The tests of cancelled calls."""

    @pytest.mark.parametrize("call", ["probe", "list_owned", "get", "act", "events"])
    async def test_reading_and_acting_can_be_cancelled_at_any_moment(self, trial: Trial, call: str) -> None:
        site = trial.site()
        [machine] = await trial.running(site, "a")
        made = _CALLS[call]
        begun = _now()
        await made(site, machine.id)
        for interrupt in _interruptions(_now() - begun):
            await interrupt(made(site, machine.id))
            assert succeeded((await trial.get(site, machine.id))[0])
        await self._wait_until_clean(trial)

    async def test_creating_can_be_cancelled_at_any_moment_and_repeated(self, trial: Trial) -> None:
        site = trial.site()
        names = []
        begun = _now()
        await trial.created(site, "b")
        for number, interrupt in enumerate(_interruptions(_now() - begun)):
            name = f"a{number}"
            names.append(name)
            await interrupt(_drain(site.create([trial.request(name), trial.request("b")])))
            await trial.created(site, name, "b")
        assert (await trial.owned(site)).keys() == {trial.name(name) for name in (*names, "b")}
        await self._wait_until_clean(trial)

    async def test_deleting_can_be_cancelled_at_any_moment_and_repeated(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        begun = _now()
        await trial.created(site, "b")
        interruptions = _interruptions(_now() - begun)
        machines = await trial.created(site, "b", *(f"a{number}" for number in range(2 * len(interruptions) - 1)))
        for interrupt in interruptions:
            ids = [machines.pop().id, machines.pop().id]
            await interrupt(_drain(site.delete(ids)))
            for outcome in await trial.delete(site, *ids):
                assert succeeded(outcome)
        await observer.until_none()
        await self._wait_until_clean(trial)

    async def test_a_call_that_is_abandoned_can_be_made_again(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        names = [f"a{number}" for number in range(20)]
        call = site.create([trial.request(name) for name in names])
        assert (await anext(aiter(call))).key in {trial.name(name) for name in names}
        if isinstance(call, AsyncGenerator):
            await call.aclose()
        await trial.created(site, *names)
        await observer.until_all(MachineState.RUNNING, len(names))

    async def _wait_until_clean(self, trial: Trial) -> None:
        await trial.until(lambda: not trial.tasks(), "cancelled calls have left no task")
        gc.collect()  # An unclosed resource then becomes a ResourceWarning, which fails the test.
        kept = trial.world.kept_connections
        await trial.until(lambda: trial.connections() <= kept, f"at most {kept} connections are open")


def _now() -> float:
    return asyncio.get_running_loop().time()


def _interruptions(seconds: float) -> list[_Interruption]:
    """Return the moments at which calls are interrupted; ``seconds`` is the duration of one call."""
    every = [_Interruption(waits=waits) for waits in _WAITS] + [_Interruption(turns=turns) for turns in _TURNS]
    return every[:: max(1, math.ceil(2 * seconds * len(every) / _INTERRUPTED_SECONDS))]


async def _drain(outcomes: AsyncIterator[Outcome]) -> None:
    async for _ in outcomes:
        pass


async def _first_event(site: Site, _: str) -> None:
    async with aclosing(site.events()) as events:
        await anext(events)


_CALLS: dict[str, Call] = {
    "probe": lambda site, _: site.probe(),
    "list_owned": lambda site, _: site.list_owned(),
    "get": lambda site, machine_id: _drain(site.get([machine_id])),
    "act": lambda site, machine_id: _drain(site.act([machine_id], PowerAction.START)),
    "events": _first_event,
}


class _Interruption:
    """A call in a task that is cancelled at its n-th wait, or after n turns of the event loop."""

    def __init__(self, waits: int = 0, turns: int = 0) -> None:
        self._waits = waits
        self._turns = turns

    async def __call__(self, call: Awaitable[object]) -> None:
        task = asyncio.ensure_future(self._run(call))
        try:
            for _ in range(self._turns):
                if task.done():
                    break
                await asyncio.sleep(0)
            is_cancelled = bool(self._turns) and task.cancel()
            await asyncio.wait([task], timeout=_GIVEN_UP_SECONDS)
            assert task.done(), "a cancelled call continues"
        finally:
            task.cancel()  # A failed or cancelled test must not leave a pending task.
            await asyncio.wait([task], timeout=1.0)
        if not task.cancelled():
            assert not is_cancelled, "a call has ignored its cancellation"
            assert not task.result(), "a call has ignored its cancellation"

    async def _run(self, call: Awaitable[object]) -> bool:
        """Run a call; return True if it ended normally although it was cancelled."""
        task = asyncio.current_task()
        assert task is not None
        await _counted(call, self._waits, task.cancel)
        return task.cancelling() > 0


@types.coroutine
def _counted(call: Awaitable[object], waits: int, reached: Callable[[], object]) -> Generator[Any, Any, None]:
    """Await the call; call ``reached`` just before its n-th wait."""
    steps = call.__await__()
    count = 0
    step: Callable[[], Any] = functools.partial(next, steps)
    while True:
        try:
            awaited = step()
        except StopIteration:
            return
        count += 1
        if count == waits:
            reached()
        try:
            step = functools.partial(steps.send, (yield awaited))
        except BaseException as error:  # noqa: BLE001 - it is the call's to handle
            step = functools.partial(steps.throw, error)
