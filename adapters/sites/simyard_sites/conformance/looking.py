# SPDX-License-Identifier: Apache-2.0
"""Tests that a site sees its machines."""

from __future__ import annotations

import pytest

from simyard_sites.base import MachineNotFoundError, PowerAction, Snapshot
from simyard_sites.conformance.trial import Trial, failed_with, succeeded


@pytest.mark.asyncio(loop_scope="function")
class Looking:
    """The tests of the answers about machines."""

    async def test_an_absent_machine_does_not_hold_up_the_rest(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        [gone, a, b] = await trial.created(site, "gone", "a", "b")
        await trial.delete(site, gone.id)
        await observer.until(lambda machines: gone.name not in machines, "one machine is gone")
        found = await trial.get(site, a.id, gone.id, b.id)
        failed_with(found[1], MachineNotFoundError)
        assert [outcome.machine and outcome.machine.name for outcome in (found[0], found[2])] == [a.name, b.name]

    async def test_machine_id_0_is_a_machine(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        [machine] = await trial.running(site, "a")
        if machine.id != "0":
            pytest.skip(f"the first id of this cloud is {machine.id}, not 0")
        assert succeeded((await trial.get(site, "0"))[0])
        assert succeeded((await trial.act(site, PowerAction.START, "0"))[0])
        assert succeeded((await trial.delete(site, "0"))[0])
        await observer.until_none()

    async def test_after_a_restart_the_machines_and_their_owners_are_known(self, trial: Trial) -> None:
        site = trial.site()
        before = {machine.name: (machine.id, machine.owner) for machine in await trial.created(site, "a", "b")}
        await site.aclose()
        site = trial.site()
        found = await trial.owned(site)
        assert {name: (machine.id, machine.owner) for name, machine in found.items()} == before
        observer = trial.observe(site)
        told = await observer.until(lambda machines: len(machines) == 2, "both machines are reported")
        assert {name: (machine.id, machine.owner) for name, machine in told.items()} == before
        assert [machine.id for machine in await trial.created(site, "a", "b")] == [key for key, _ in before.values()]
        await trial.delete(site, *(key for key, _ in before.values()))
        await observer.until_none()

    async def test_the_cost_of_looking_does_not_grow_with_machines_that_have_ended(self, trial: Trial) -> None:
        site = trial.site()
        await trial.running(site, "a", "b", "c")
        await self._cost(trial)  # The first round reads objects that are cached later.
        before = await self._cost(trial)
        await trial.world.finish_machines(10_000)
        await self._cost(trial)
        after = await self._cost(trial)
        assert after <= 1.1 * before + 100, f"the cost was {before}, but {after} with 10,000 machines that have ended"
        assert len(await trial.owned(site)) == 3

    async def _cost(self, trial: Trial) -> int:
        """Return the cost of a snapshot, of a list, and of reading each machine."""
        site = trial.site()
        before = trial.world.cost()
        observer = trial.observe(site)
        machines = await observer.until(lambda machines: len(machines) == 3, "three machines are reported")
        assert isinstance(observer.events[0], Snapshot)
        await trial.owned(site)
        await trial.get(site, *(machine.id for machine in machines.values()))
        return trial.world.cost() - before
