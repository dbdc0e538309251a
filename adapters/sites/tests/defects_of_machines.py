# SPDX-License-Identifier: Apache-2.0
"""What sites can do wrong to machines: whose they are, that there is one of each, and that they end."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

from defects import CLEARED, LEFT, ToySite, found_by, toy_cloud, toy_site

from simyard_sites.base import (
    ConflictError,
    Machine,
    MachineNotFoundError,
    MachineState,
    Owner,
    PowerAction,
    SiteError,
)


@found_by("creating_it_again_adopts_it")
class RefusesWhatIsThere(ToySite):
    async def _create(self, request: Any) -> Any:
        if request.name in {machine.name for machine in await self.list_owned()}:
            raise ConflictError("there is one")
        return await super()._create(request)


@found_by("a_machine_that_was_created_is_there_with_its_owner")
class ForgetsThePool(ToySite):
    async def list_owned(self) -> Any:
        return [replace(machine, owner=replace(machine.owner, pool="")) for machine in await super().list_owned()]


@found_by("the_machines_of_a_neighbour_are_not_seen")
class SeesAllMachines(ToySite):
    async def list_owned(self) -> Any:
        return [toy_site.to_machine(machine) for machine in self._cloud.machines.values()]


@found_by(
    "the_machines_of_a_neighbour_are_not_seen",
    "nothing_is_done_to_the_machines_of_a_neighbour",
    "a_machine_of_a_neighbour_is_not_adopted",
)
class TakesAllSitesOfAnInstallationForOne(ToySite):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._owner = config.installation


@found_by("nothing_is_done_to_the_machines_of_a_neighbour")
class DeletesForNeighbours(ToySite):
    async def _delete(self, machine_id: str) -> None:
        with suppress(MachineNotFoundError):
            await self._ask("delete", machine_id)


@found_by("nothing_is_done_to_the_machines_of_a_neighbour")
class ActsForNeighbours(ToySite):
    async def _act(self, machine_id: str, action: Any) -> Any:
        return toy_site.to_machine(await self._ask("power", machine_id, "stopped"))


@found_by("a_machine_of_a_neighbour_is_not_adopted", "a_machine_of_that_name_that_is_of_another_worker_is_not_adopted")
class AdoptsWhateverHasTheName(ToySite):
    async def _create(self, request: Any) -> Any:
        for machine in self._cloud.machines.values():
            if machine["name"] == request.name:
                return toy_site.to_machine(machine)
        return await super()._create(request)


@found_by("creating_it_again_adopts_it")
class ForgetsTheOwnerOfWhatItAdopts(ToySite):
    async def _create(self, request: Any) -> Any:
        there = {machine.name for machine in await self.list_owned()}
        made = await super()._create(request)
        return replace(made, owner=Owner("", "", "")) if made.name in there else made


class Keeps(ToySite):
    """Nothing is wrong with it: it keeps something beside its machines, and removes it in the end."""

    async def _create(self, request: Any) -> Any:
        self._cloud.files.add(self._owner)
        return await super()._create(request)

    async def clear(self) -> None:
        self._cloud.files.discard(self._owner)


@found_by(CLEARED)
class LeavesWhatItKept(Keeps):
    async def clear(self) -> None:
        pass


@found_by(CLEARED)
class LeavesWhatAnEarlierProcessKept(Keeps):
    async def _create(self, request: Any) -> Any:
        LEFT.append(self)
        return await super()._create(request)

    async def clear(self) -> None:
        if self in LEFT:
            await super().clear()


@found_by(CLEARED)
class ClearsForNeighbours(Keeps):
    async def clear(self) -> None:
        self._cloud.files.clear()


@found_by("after_a_restart_the_machines_and_their_owners_are_known")
class EndsMachinesWhenClosed(ToySite):
    async def aclose(self) -> None:
        for machine in await self.list_owned():
            await self._delete(machine.id)


@found_by("a_deleted_machine_ends_and_is_gone")
class ListsWhatHasEnded(ToySite):
    async def list_owned(self) -> Any:
        ended = [toy_site.to_machine({**machine, "state": "failed"}) for machine in self._cloud.ended]
        return [*await super().list_owned(), *ended]


@found_by("no_call_waits_for_a_machine")
class WaitsUntilItRuns(ToySite):
    async def _create(self, request: Any) -> Any:
        made = await super()._create(request)
        while made.state is not MachineState.RUNNING:
            await asyncio.sleep(0.001)
            made = await self._get(made.id)
        return made


@found_by("no_call_waits_for_a_machine")
class EndsOneAfterTheOther(ToySite):
    async def _delete(self, machine_id: str) -> None:
        await super()._delete(machine_id)
        while machine_id in self._cloud.machines:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@found_by("an_absent_machine_does_not_hold_up_the_rest")
class DeletesWhatItWasNotAskedTo(ToySite):
    async def _delete(self, machine_id: str) -> None:
        for machine in await self.list_owned():
            await super()._delete(machine.id)


@found_by("deleting_it_again_while_it_ends_succeeds")
class DeletesOnce(ToySite):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._deleted: set[str] = set()

    async def _delete(self, machine_id: str) -> None:
        if machine_id in self._deleted:
            raise ConflictError("it ends already")
        self._deleted.add(machine_id)
        await super()._delete(machine_id)


@found_by("starting_a_machine_that_runs_changes_nothing")
class StartsOnlyWhatHasStopped(ToySite):
    async def _act(self, machine_id: str, action: Any) -> Any:
        if action is PowerAction.START and (await self._get(machine_id)).state is MachineState.RUNNING:
            raise ConflictError("it runs")
        return await super()._act(machine_id, action)


@found_by("creating_it_again_adopts_it")
class GivesAnIdTwice(ToySite):
    async def _create(self, request: Any) -> Any:
        return replace(await super()._create(request), id="0")


@found_by(
    "an_exhausted_quota_is_said_and_machines_are_made_when_there_is_some",
    "a_bad_item_is_refused_for_good_and_does_not_hold_up_the_rest",
)
class AnswersBeforeItIsAccepted(ToySite):
    async def _create(self, request: Any) -> Any:
        try:
            return await super()._create(request)
        except SiteError:
            return Machine(request.name, request.name, request.owner, MachineState.PENDING)


@found_by("deleting_an_absent_machine_succeeds_and_looking_at_it_finds_nothing")
class DeletesOnlyWhatIsThere(ToySite):
    async def _delete(self, machine_id: str) -> None:
        await self._ask("delete", machine_id)


@found_by("machines_that_still_boot_can_be_deleted")
class DoesNotDeleteWhatBoots(ToySite):
    async def _create(self, request: Any) -> Any:
        self._cloud.is_held = True  # the machine still boots when it is deleted, however busy the computer is
        return await super()._create(request)

    async def _delete(self, machine_id: str) -> None:
        if (await self._ask("get", machine_id))["state"] == "pending":
            raise ConflictError("it boots")
        await super()._delete(machine_id)


@found_by("machine_id_0_is_a_machine")
class TakesIdZeroForNone(ToySite):
    async def _get(self, machine_id: str) -> Any:
        if not int(machine_id):
            raise MachineNotFoundError("none")
        return await super()._get(machine_id)


@found_by(
    "creating_it_again_adopts_it",
    "calls_beside_each_other_create_one_machine_of_a_name",
    "two_control_planes_that_create_the_same_leave_one_machine_of_a_name",
    "a_lost_answer_leaves_one_machine_and_the_call_can_be_repeated",
)
class HasNamesTwice(toy_cloud.Cloud):
    async def create(self, name: str, *asked: Any) -> Any:
        made = await super().create(f"{name} {len(self.log)}", *asked)
        self.machines[made["id"]]["name"] = name
        return await self.get(made["id"])
