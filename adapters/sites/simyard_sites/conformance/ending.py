# SPDX-License-Identifier: Apache-2.0
"""Tests that machines end in any state."""

from __future__ import annotations

import asyncio

import pytest

from simyard_sites.base import MachineNotFoundError, UnknownOutcomeError
from simyard_sites.conformance.trial import Trial, failed_with, succeeded


@pytest.mark.asyncio(loop_scope="function")
class Ending:
    """The tests of the deletion of machines."""

    async def test_a_deleted_machine_ends_and_is_gone(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        [machine] = await trial.running(site, "a")
        assert succeeded((await trial.delete(site, machine.id))[0])
        await observer.until_none()
        failed_with((await trial.get(site, machine.id))[0], MachineNotFoundError)
        assert await trial.owned(site) == {}

    async def test_machines_that_still_boot_can_be_deleted(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        machines = await trial.created(site, *"abcdefgh")
        for outcome in await trial.delete(site, *(machine.id for machine in machines)):
            assert succeeded(outcome)
        await observer.until_none()
        assert await trial.owned(site) == {}

    async def test_deleting_an_absent_machine_succeeds_and_looking_at_it_finds_nothing(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        [gone, here] = await trial.created(site, "gone", "here")
        await trial.delete(site, gone.id)
        await observer.until(lambda machines: gone.name not in machines, "one machine is gone")
        for outcome in await trial.delete(site, gone.id, here.id):
            assert succeeded(outcome)
        found = await trial.get(site, gone.id)
        assert not failed_with(found[0], MachineNotFoundError).retryable
        await observer.until_none()

    async def test_deleting_it_again_while_it_ends_succeeds(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        [machine] = await trial.running(site, "a")
        for call in await asyncio.gather(*(trial.delete(site, machine.id) for _ in range(3))):
            assert succeeded(call[0])
        assert succeeded((await trial.delete(site, machine.id))[0])
        await observer.until_none()

    async def test_a_lost_answer_to_a_delete_leaves_no_machine(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        machines = await trial.created(site, "a", "b")
        ids = [machine.id for machine in machines]
        await trial.world.lose_answers(1)
        for outcome in await trial.delete(site, *ids):
            if outcome.error:
                failed_with(outcome, UnknownOutcomeError)
        for outcome in await trial.delete(site, *ids):
            assert succeeded(outcome)
        await observer.until_none()
