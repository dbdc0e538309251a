# SPDX-License-Identifier: Apache-2.0
"""Tests that a site reports changes."""

from __future__ import annotations

from contextlib import aclosing
from itertools import pairwise

import pytest

from simyard_sites.base import Changed, Gone, MachineNotFoundError, MachineState, Snapshot, Stage
from simyard_sites.conformance.trial import Trial, failed_with


@pytest.mark.asyncio(loop_scope="function")
class Watching:
    """The tests of a site's events."""

    async def test_a_snapshot_comes_first_even_if_there_is_nothing(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        await observer.until(lambda _: True, "there is a snapshot")
        assert isinstance(observer.events[0], Snapshot) and not observer.events[0].machines
        await trial.created(site, "a", "b")
        later = trial.observe(site)
        machines = await later.until(lambda machines: len(machines) == 2, "both machines are reported")
        assert machines.keys() == {trial.name("a"), trial.name("b")}

    async def test_a_machine_is_told_from_its_start_to_its_end_with_its_stages(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        await observer.until(lambda _: True, "there is a snapshot")
        [machine] = await trial.created(site, "a")
        running = (await observer.until_all(MachineState.RUNNING))[machine.name]
        assert {Stage.PENDING, Stage.RUNNING} <= running.entered.keys()
        await trial.delete(site, machine.id)
        await observer.until_none()
        told = [event for event in observer.events if isinstance(event, Changed) and event.machine.id == machine.id]
        entered = [event.machine.entered for event in told]
        for earlier, later in pairwise(entered):
            assert later.items() >= earlier.items(), f"the time of a stage has changed: {earlier}, then {later}"
        assert {event for event in observer.events if isinstance(event, Gone)} <= {Gone(machine.id, machine.name)}

    async def test_all_who_watch_are_told(self, trial: Trial) -> None:
        site, other = trial.site(), trial.site()
        observers = [trial.observe(site), trial.observe(site), trial.observe(other)]
        [machine] = await trial.created(site, "a")
        for observer in observers:
            await observer.until_all(MachineState.RUNNING)
        await trial.delete(other, machine.id)
        for observer in observers:
            await observer.until_none()

    async def test_a_stream_that_is_closed_leaves_nothing(self, trial: Trial) -> None:
        site = trial.site()
        await trial.owned(site)
        for _ in range(20):
            async with aclosing(site.events()) as events:
                assert isinstance(await anext(events), Snapshot)
        await trial.until(lambda: not trial.tasks(), "closed streams have left no task")
        await trial.until(lambda: trial.connections() < 20, "the connections of closed streams are closed")

    async def test_what_was_not_told_is_made_up_for(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        [gone, _] = await trial.running(site, "gone", "a")
        await observer.until(lambda machines: len(machines) == 2, "both machines are reported")
        async with trial.world.events_lost():
            await trial.delete(site, gone.id)
            await trial.create(site, "b")
        await trial.created(site, "b")
        await observer.until(
            lambda machines: machines.keys() == {trial.name("a"), trial.name("b")}, "both changes are reported"
        )
        await observer.until_all(MachineState.RUNNING, 2)

    async def test_a_machine_that_fails_is_told_with_the_reason(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        [machine, other] = await trial.running(site, "a", "b")
        await trial.world.fail_machine(machine)

        def has_failed() -> bool:
            seen = observer.machines.get(machine.name)
            return seen is not None and seen.state is MachineState.FAILED

        await observer.until(lambda _: has_failed(), "the machine has failed")
        assert observer.machines[machine.name].reason
        assert observer.machines[other.name].state is MachineState.RUNNING
        await trial.delete(site, machine.id)
        await observer.until(lambda machines: machine.name not in machines, "the failed machine is gone")

    async def test_a_machine_that_vanishes_is_told_to_be_gone_or_to_have_failed(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        [machine, other] = await trial.running(site, "a", "b")
        await observer.until(lambda machines: len(machines) == 2, "both machines are reported")
        await trial.world.remove_machine(machine)

        def has_ended() -> bool:
            seen = observer.machines.get(machine.name)
            return seen is None or seen.state is MachineState.FAILED

        await observer.until(lambda _: has_ended(), "the machine has ended")
        if machine.name not in observer.machines:
            failed_with((await trial.get(site, machine.id))[0], MachineNotFoundError)
        assert other.name in observer.machines
