# SPDX-License-Identifier: Apache-2.0
"""Tests of power actions and of their refusals."""

from __future__ import annotations

import pytest

from simyard_sites.base import (
    ConflictError,
    ErrorScope,
    InvalidSpecError,
    MachineNotFoundError,
    MachineState,
    PowerAction,
    stop_ends,
)
from simyard_sites.conformance.observer import Observer
from simyard_sites.conformance.trial import Trial, failed_with, succeeded


@pytest.mark.asyncio(loop_scope="function")
class Acting:
    """The tests of power actions on machines."""

    @pytest.mark.parametrize("action", PowerAction)
    async def test_acting_on_an_absent_machine_finds_nothing_and_does_not_hold_up_the_rest(
        self, trial: Trial, action: PowerAction
    ) -> None:
        site = trial.site()
        observer = trial.observe(site)
        [gone, here] = await trial.running(site, "gone", "here")
        await trial.delete(site, gone.id)
        await observer.until(lambda machines: gone.name not in machines, "one machine is gone")
        absent, present = await trial.act(site, action, gone.id, here.id)
        failed_with(absent, MachineNotFoundError, InvalidSpecError)
        if present.error:
            assert failed_with(present, InvalidSpecError).scope is ErrorScope.ITEM

    async def test_starting_a_machine_that_runs_changes_nothing(self, trial: Trial) -> None:
        site = trial.site()
        [machine] = await trial.running(site, "a")
        assert succeeded((await trial.act(site, PowerAction.START, machine.id))[0])
        [found] = await trial.get(site, machine.id)
        assert found.machine and found.machine.state is MachineState.RUNNING

    async def test_a_machine_that_was_stopped_starts_again(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        await trial.running(site, "a")
        if stop_ends(site):
            await self._ends_and_is_made_anew(trial, observer, PowerAction.STOP)
        elif await self._rests(trial, observer, PowerAction.STOP, MachineState.STOPPED):
            [machine] = (await trial.owned(site)).values()
            again = await trial.act(site, PowerAction.STOP, machine.id)
            assert succeeded(again[0]), "stopping a machine that is stopped changes nothing"
            [refused] = await trial.act(site, PowerAction.SUSPEND, machine.id)
            if refused.error:
                failed_with(refused, ConflictError, InvalidSpecError)
            await self._starts(trial, observer)

    async def test_a_machine_that_was_suspended_goes_on(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        await trial.running(site, "a")
        if await self._rests(trial, observer, PowerAction.SUSPEND, MachineState.SUSPENDED):
            await self._starts(trial, observer)

    async def test_a_machine_that_restarts_runs_again_under_its_name(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        [machine] = await trial.running(site, "a")
        if stop_ends(site):
            await self._ends_and_is_made_anew(trial, observer, PowerAction.RESTART)
            return
        [outcome] = await trial.act(site, PowerAction.RESTART, machine.id)
        if outcome.error:
            assert failed_with(outcome, InvalidSpecError).scope is ErrorScope.ITEM
        await observer.until_all(MachineState.RUNNING)
        assert observer.machines[machine.name].id == machine.id

    async def _rests(self, trial: Trial, observer: Observer, action: PowerAction, state: MachineState) -> bool:
        """Apply an action; return True once the machine has this state, False if the site has no such action."""
        site = trial.site()
        [machine] = (await trial.owned(site)).values()
        [outcome] = await trial.act(site, action, machine.id)
        if outcome.error:
            assert failed_with(outcome, InvalidSpecError).scope is ErrorScope.ITEM
            await observer.until_all(MachineState.RUNNING)
            return False
        await observer.until_all(state)
        return True

    async def _starts(self, trial: Trial, observer: Observer) -> None:
        site = trial.site()
        [machine] = (await trial.owned(site)).values()
        assert succeeded((await trial.act(site, PowerAction.START, machine.id))[0])
        await observer.until_all(MachineState.RUNNING)

    async def _ends_and_is_made_anew(self, trial: Trial, observer: Observer, action: PowerAction) -> None:
        site = trial.site()
        [machine] = (await trial.owned(site)).values()
        assert succeeded((await trial.act(site, action, machine.id))[0])
        await observer.until_none()
        await trial.created(site, "a")
        await observer.until_all(MachineState.RUNNING)
