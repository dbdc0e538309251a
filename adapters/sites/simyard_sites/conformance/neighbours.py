# SPDX-License-Identifier: Apache-2.0
"""Tests with several CloudSites and several installations in one account."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from simyard_sites.base import (
    ConflictError,
    ErrorScope,
    InvalidSpecError,
    MachineNotFoundError,
    MachineState,
    PowerAction,
    Site,
)
from simyard_sites.conformance.trial import Trial, failed_with, succeeded

_NEIGHBOURS = {"of another installation": ("other", "site"), "of another CloudSite": ("default", "other")}


@pytest.mark.asyncio(loop_scope="function")
class Neighbours:
    """The tests that a site does not touch machines of other sites."""

    @pytest.mark.parametrize("whose", _NEIGHBOURS)
    async def test_the_machines_of_a_neighbour_are_not_seen(self, trial: Trial, whose: str) -> None:
        site, other = trial.site(), trial.site(*_NEIGHBOURS[whose])
        await trial.created(site, "a")
        await trial.created(other, "b")
        assert (await trial.owned(site)).keys() == {trial.name("a")}
        assert (await trial.owned(other)).keys() == {trial.name("b")}
        observer, neighbour = trial.observe(site), trial.observe(other)
        await observer.until(lambda machines: machines.keys() == {trial.name("a")}, "one sees its own machine")
        await neighbour.until(lambda machines: machines.keys() == {trial.name("b")}, "the other sees its own machine")
        [more] = await trial.created(other, "c")
        await neighbour.until(lambda machines: more.name in machines, "the other sees its second machine")
        assert not any(more.name in repr(event) for event in observer.events)

    @pytest.mark.parametrize("whose", _NEIGHBOURS)
    async def test_nothing_is_done_to_the_machines_of_a_neighbour(self, trial: Trial, whose: str) -> None:
        site, other = trial.site(), trial.site(*_NEIGHBOURS[whose])
        [machine] = await trial.running(site, "a")
        failed_with((await trial.get(other, machine.id))[0], MachineNotFoundError)
        for action in PowerAction:
            failed_with((await trial.act(other, action, machine.id))[0], MachineNotFoundError, InvalidSpecError)
        assert succeeded((await trial.delete(other, machine.id))[0]), "the machine must count as absent for this site"
        await _unharmed(trial, site, machine.id)

    @pytest.mark.parametrize("whose", _NEIGHBOURS)
    async def test_a_machine_of_a_neighbour_is_not_adopted(self, trial: Trial, whose: str) -> None:
        site, other = trial.site(), trial.site(*_NEIGHBOURS[whose])
        [machine] = await trial.running(site, "a")
        [outcome] = await trial.create(other, "a")
        if outcome.error:
            assert failed_with(outcome, InvalidSpecError, ConflictError).scope is ErrorScope.ITEM
        if outcome.machine:  # Names are not unique at this site: the request gets a machine of its own.
            assert (await trial.owned(other)).keys() == {trial.name("a")}
            assert succeeded((await trial.delete(other, outcome.machine.id))[0])
            await trial.observe(other).until_none()
        assert await trial.owned(other) == {}
        await _unharmed(trial, site, machine.id)

    async def test_a_machine_of_that_name_that_is_of_another_worker_is_not_adopted(self, trial: Trial) -> None:
        site = trial.site()
        [machine] = await trial.running(site, "a")
        asked = trial.request("a")
        theirs = replace(asked, owner=replace(asked.owner, worker_uid=str(uuid.uuid4())))
        [outcome] = [outcome async for outcome in site.create([theirs])]
        error = failed_with(outcome, InvalidSpecError, ConflictError)
        trial.check(error)
        assert error.scope is ErrorScope.ITEM
        await _unharmed(trial, site, machine.id)

    async def test_what_was_kept_beside_machines_goes_when_the_site_is_cleared_and_that_of_neighbours_stays(
        self, trial: Trial
    ) -> None:
        neighbours = [trial.site(*_NEIGHBOURS[whose]) for whose in _NEIGHBOURS]
        for number, other in enumerate(neighbours):
            await trial.created(other, f"b{number}")
        theirs = sorted(await trial.world.leftovers())
        site = trial.site()
        observer = trial.observe(site)
        [machine] = await trial.running(site, "a")
        await trial.delete(site, machine.id)
        await observer.until_none()
        await site.clear()
        assert sorted(await trial.world.leftovers()) == theirs
        await trial.created(site, "c")  # An earlier process created this object.
        [machine] = (await trial.owned(site)).values()
        await trial.delete(site, machine.id)
        await observer.until_none()
        later = trial.site()
        await later.clear()
        await later.clear()
        assert sorted(await trial.world.leftovers()) == theirs
        for number, other in enumerate(neighbours):
            assert (await trial.owned(other)).keys() == {trial.name(f"b{number}")}


async def _unharmed(trial: Trial, site: Site, machine_id: str) -> None:
    [found] = await trial.get(site, machine_id)
    assert succeeded(found) and found.machine and found.machine.state is MachineState.RUNNING
    assert [machine.id for machine in (await trial.owned(site)).values()] == [machine_id]
