# SPDX-License-Identifier: Apache-2.0
"""Tests that a machine is created exactly once."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from simyard_sites.base import (
    ConflictError,
    InvalidSpecError,
    MachineState,
    Owner,
    UnavailableError,
    UnknownOutcomeError,
)
from simyard_sites.conformance.trial import Trial, failed_with, succeeded

_AWKWARD = "#!/bin/sh\necho \"$HOME\" 'it''s' `id` ${x} [ ] ]]> <&> \\ % äöü €\n"


@pytest.mark.asyncio(loop_scope="function")
class Creating:
    """The tests of the creation of machines."""

    async def test_probe_says_what_answers(self, trial: Trial) -> None:
        info = await trial.site().probe()
        assert info.version
        assert info.capacity is None or info.capacity > 0

    async def test_a_machine_that_was_created_is_there_with_its_owner(self, trial: Trial) -> None:
        site = trial.site()
        [machine] = await trial.created(site, "a")
        assert machine.owner == trial.request("a").owner
        [found] = await trial.get(site, machine.id)
        # Each answer may show the machine in a later state.
        seen = [found.machine, *(await trial.owned(site)).values()]
        assert [(item.id, item.name, item.owner) for item in seen if item] == [
            (machine.id, machine.name, machine.owner)
        ] * 2

    async def test_creating_it_again_adopts_it(self, trial: Trial) -> None:
        site = trial.site()
        [machine] = await trial.created(site, "a")
        again = await trial.created(site, "b", "a")
        assert again[1].id == machine.id
        assert (await trial.owned(site)).keys() == {trial.name("a"), trial.name("b")}

    async def test_calls_beside_each_other_create_one_machine_of_a_name(self, trial: Trial) -> None:
        site = trial.site()
        calls = await asyncio.gather(*(trial.create(site, "a") for _ in range(5)))
        ids = {outcome.machine.id for [outcome] in calls if succeeded(outcome) and outcome.machine}
        assert len(ids) == 1
        assert [machine.id for machine in (await trial.owned(site)).values()] == list(ids)

    async def test_two_control_planes_that_create_the_same_leave_one_machine_of_a_name(self, trial: Trial) -> None:
        one, other = trial.site(), trial.site()
        observer = trial.observe(one)
        await asyncio.gather(trial.created(one, "a", "b"), trial.created(other, "b", "a"))
        await trial.created(one, "a", "b")
        await observer.until_all(MachineState.RUNNING, 2)
        assert len(await trial.owned(other)) == 2

    async def test_no_call_waits_for_a_machine(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        async with trial.world.held():
            [a, b] = await trial.created(site, "a", "b")
            assert MachineState.RUNNING not in (a.state, b.state), "nothing runs yet"
            assert succeeded((await trial.delete(site, a.id))[0])
            assert observer.machines.get(b.name, b).state is not MachineState.RUNNING
        await observer.until(lambda machines: a.name not in machines, "the deleted machine is gone")
        await observer.until_all(MachineState.RUNNING)

    async def test_calls_for_nothing_do_nothing(self, trial: Trial) -> None:
        site = trial.site()
        assert await trial.create(site) == []
        assert await trial.get(site) == []
        assert await trial.delete(site) == []
        assert await trial.owned(site) == {}

    async def test_names_of_the_greatest_length_and_any_user_data_are_taken(self, trial: Trial) -> None:
        site = trial.site()
        names = {"namespace": "n" * 63, "worker": f"w{'-0' * 26}", "pool": f"p{'-0' * 26}"}
        owner = Owner(worker_uid=str(uuid.uuid4()), **names)
        keys = ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDq9o0H0 someone@example.org",)
        trial.put_request("a", owner, hostname="a-host", user_data=_AWKWARD, ssh_public_keys=keys)
        alone = Owner("conformance", "alone", str(uuid.uuid4()))
        trial.put_request("alone", alone, cores=2, memory_mib=768, user_data=_AWKWARD)
        await trial.created(site, "a", "alone")
        owned = await trial.owned(site)
        assert {machine.owner for machine in owned.values()} == {owner, alone}

    async def test_a_lost_answer_leaves_one_machine_and_the_call_can_be_repeated(self, trial: Trial) -> None:
        site = trial.site()
        await trial.world.lose_answers(1)
        for outcome in await trial.create(site, "a", "b", "c"):
            if outcome.error:  # The provider may have looked at the machine itself.
                failed_with(outcome, UnknownOutcomeError)
        before = await trial.owned(site)
        assert before, "the call whose answer was lost was carried out"
        after = await trial.created(site, "a", "b", "c")
        assert {machine.id for machine in before.values()} <= {machine.id for machine in after}
        assert len(await trial.owned(site)) == 3

    async def test_a_bad_item_is_refused_for_good_and_does_not_hold_up_the_rest(self, trial: Trial) -> None:
        site = trial.site()
        trial.spoil("bad")
        a, bad, b = await trial.create(site, "a", "bad", "b")
        assert succeeded(a) and succeeded(b)
        assert not failed_with(bad, InvalidSpecError).retryable
        assert (await trial.owned(site)).keys() == {trial.name("a"), trial.name("b")}

    async def test_creating_it_again_while_it_ends_adopts_it_or_is_refused_until_it_is_gone(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        [machine] = await trial.running(site, "a")
        succeeded((await trial.delete(site, machine.id))[0])
        [outcome] = await trial.create(site, "a")
        if outcome.error:
            failed_with(outcome, ConflictError, UnavailableError)
        elif outcome.machine and outcome.machine.state is MachineState.TERMINATING:
            await observer.until_none()
