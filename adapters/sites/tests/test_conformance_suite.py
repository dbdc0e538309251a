"""The suite finds what is wrong with a site, and is run from anywhere."""

import asyncio
import logging
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simyard_sites import base
from simyard_sites.base import (
    Changed,
    ConflictError,
    ErrorScope,
    Gone,
    InternalError,
    Machine,
    MachineNotFoundError,
    Outcome,
    SiteError,
    Snapshot,
    ThrottledError,
    UnavailableError,
    UnknownOutcomeError,
)
from simyard_sites.conformance import world as world_module
from simyard_sites.conformance.suite import Conformance
from simyard_sites.conformance.trial import Trial
from simyard_sites.conformance.world import World

TOY = Path(__file__).resolve().parents[3] / "examples" / "toy-site"
sys.path.append(str(TOY))

import toy_cloud  # noqa: E402
import toy_site  # noqa: E402
import toy_world  # noqa: E402

ToySite = toy_site.ToySite
LEFT: list[Any] = []
DOCUMENT = TOY.parents[1] / "docs" / "sites" / "writing-a-site.md"


class RefusesWhatIsThere(ToySite):
    async def _create(self, request: Any) -> Any:
        if request.name in {machine.name for machine in await self.list_owned()}:
            raise ConflictError("there is one")
        return await super()._create(request)


class ForgetsThePool(ToySite):
    async def list_owned(self) -> Any:
        return [replace(machine, owner=replace(machine.owner, pool="")) for machine in await super().list_owned()]


class SeesAllInstallations(ToySite):
    async def list_owned(self) -> Any:
        return [toy_site.to_machine(machine) for machine in self._cloud.machines.values()]


class TellsNoSnapshot(ToySite):
    async def events(self) -> Any:
        async for event in super().events():
            if not isinstance(event, Snapshot):
                yield event
            else:
                for machine in event.machines:
                    yield Changed(machine)


class TellsNoEnd(ToySite):
    async def events(self) -> Any:
        async for event in super().events():
            if not isinstance(event, Gone):
                yield event


class EndsItsEvents(ToySite):
    async def events(self) -> Any:
        async for event in super().events():
            yield event
            return


class NeverListsAgain(ToySite):
    async def events(self) -> Any:
        seen = 0
        async for event in super().events():
            seen += isinstance(event, Snapshot)
            if not isinstance(event, Snapshot) or seen == 1:
                yield event


class LeavesTasks(ToySite):
    async def _get(self, machine_id: str) -> Any:
        LEFT.append(asyncio.create_task(asyncio.sleep(60)))
        return await super()._get(machine_id)


class LeavesConnections(ToySite):
    async def _get(self, machine_id: str) -> Any:
        LEFT.append(socket.socketpair())
        return await super()._get(machine_id)


class LeavesConnectionsOfCancelledCalls(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        one, other = socket.socketpair()
        LEFT.append((one, other))
        answer = await super()._ask(verb, *arguments)
        one.close()
        other.close()
        return answer


class SwallowsCancellation(ToySite):
    async def probe(self) -> Any:
        try:
            return await super().probe()
        except asyncio.CancelledError:
            return None


class StaysLockedWhenCancelled(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        while LEFT:
            await LEFT[0].wait()
        LEFT.append(asyncio.Event())
        answer = await super()._ask(verb, *arguments)
        LEFT.pop().set()
        return answer


class DeletesOnlyWhatIsThere(ToySite):
    async def _delete(self, machine_id: str) -> None:
        await self._ask("delete", machine_id)


class DoesNotDeleteWhatBoots(ToySite):
    async def _delete(self, machine_id: str) -> None:
        if (await self._ask("get", machine_id))["state"] == "pending":
            raise ConflictError("it boots")
        await super()._delete(machine_id)


class TakesIdZeroForNone(ToySite):
    async def _get(self, machine_id: str) -> Any:
        if not int(machine_id):
            raise MachineNotFoundError("none")
        return await super()._get(machine_id)


class AnswersUnderWrongKeys(ToySite):
    async def _each(self, keys: Any, do: Any) -> Any:
        async for outcome in super()._each(keys, do):
            yield replace(outcome, key=outcome.machine.id if outcome.machine else outcome.key)


class AnswersForSome(ToySite):
    def get(self, ids: Any) -> Any:
        return super().get(ids[:-1])


class FailsAsAWhole(ToySite):
    async def _each(self, keys: Any, do: Any) -> Any:
        for outcome in [Outcome(key, await do(key)) for key in keys]:
            yield outcome


class TriesAgainByItself(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            return await super()._ask(verb, *arguments)
        except ThrottledError:
            return await super()._ask(verb, *arguments)


class ForgetsWhenToComeAgain(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            return await super()._ask(verb, *arguments)
        except ThrottledError as error:
            raise ThrottledError(str(error)) from error


class TakesALostAnswerForNothingDone(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            return await super()._ask(verb, *arguments)
        except UnknownOutcomeError as error:
            raise UnavailableError(str(error)) from error


class TakesEverythingForInternal(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            return await super()._ask(verb, *arguments)
        except SiteError as error:
            if isinstance(error, MachineNotFoundError | ConflictError):
                raise
            raise InternalError(str(error), scope=ErrorScope.SITE) from error


class SaysUnavailableOfOneMachine(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            return await super()._ask(verb, *arguments)
        except UnavailableError as error:
            raise UnavailableError(str(error), scope=ErrorScope.ITEM) from error


class NamesNoField(ToySite):
    async def probe(self) -> Any:
        try:
            return await super().probe()
        except SiteError as error:
            raise type(error)("something is wrong") from error


class LogsTheDocument(ToySite):
    async def _create(self, request: Any) -> Any:
        logging.getLogger("toy").debug("creating %s", request.bootstrap)
        return await super()._create(request)


class ShowsTheDocument(ToySite):
    async def _create(self, request: Any) -> Machine:
        made = await super()._create(request)
        assert made is not None
        return replace(made, message=request.bootstrap.decode())


class HasNamesTwice(toy_cloud.Cloud):
    async def create(self, name: str, *asked: Any) -> Any:
        made = await super().create(f"{name} {len(self.log)}", *asked)
        self.machines[made["id"]]["name"] = name
        return await self.get(made["id"])


class LooksAtWhatHasEnded(toy_cloud.Cloud):
    async def machines_of(self, owner: str) -> Any:
        self.looked_at += len(self.ended)
        return await super().machines_of(owner)


FOUND_BY: list[tuple[type[Any], str]] = [
    (RefusesWhatIsThere, "creating_it_again_adopts_it"),
    (HasNamesTwice, "creating_it_again_adopts_it"),
    (HasNamesTwice, "calls_beside_each_other_create_one_machine_of_a_name"),
    (HasNamesTwice, "two_control_planes_that_create_the_same_leave_one_machine_of_a_name"),
    (HasNamesTwice, "a_lost_answer_leaves_one_machine_and_the_call_can_be_repeated"),
    (ForgetsThePool, "a_machine_that_was_created_is_there_with_its_owner"),
    (SeesAllInstallations, "two_installations_do_not_see_each_others_machines"),
    (TellsNoSnapshot, "a_snapshot_comes_first_even_if_there_is_nothing"),
    (TellsNoSnapshot, "all_who_watch_are_told"),
    (TellsNoEnd, "a_deleted_machine_ends_and_is_gone"),
    (EndsItsEvents, "a_snapshot_comes_first_even_if_there_is_nothing"),
    (NeverListsAgain, "what_was_not_told_is_made_up_for"),
    (LeavesTasks, "an_absent_machine_does_not_hold_up_the_rest"),
    (LeavesConnections, "an_absent_machine_does_not_hold_up_the_rest"),
    (LeavesConnectionsOfCancelledCalls, "creating_can_be_cancelled_at_any_moment_and_repeated"),
    (SwallowsCancellation, "reading_and_acting_can_be_cancelled_at_any_moment"),
    (StaysLockedWhenCancelled, "deleting_can_be_cancelled_at_any_moment_and_repeated"),
    (DeletesOnlyWhatIsThere, "deleting_an_absent_machine_succeeds_and_looking_at_it_finds_nothing"),
    (DoesNotDeleteWhatBoots, "machines_that_still_boot_can_be_deleted"),
    (TakesIdZeroForNone, "machine_id_0_is_a_machine"),
    (AnswersUnderWrongKeys, "creating_it_again_adopts_it"),
    (AnswersForSome, "an_absent_machine_does_not_hold_up_the_rest"),
    (FailsAsAWhole, "a_bad_item_is_refused_for_good_and_does_not_hold_up_the_rest"),
    (TriesAgainByItself, "a_throttled_create_makes_nothing_and_can_be_repeated"),
    (ForgetsWhenToComeAgain, "a_throttled_create_says_when_to_come_again"),
    (TakesALostAnswerForNothingDone, "a_lost_answer_leaves_one_machine_and_the_call_can_be_repeated"),
    (TakesALostAnswerForNothingDone, "a_lost_answer_to_a_delete_leaves_no_machine"),
    (TakesEverythingForInternal, "an_exhausted_quota_is_said_and_machines_are_made_when_there_is_some"),
    (TakesEverythingForInternal, "a_missing_permission_is_said_and_what_is_permitted_goes_on"),
    (TakesEverythingForInternal, "credentials_that_expire_are_renewed_or_said_to_be_wrong"),
    (SaysUnavailableOfOneMachine, "while_a_cloud_cannot_be_reached_calls_say_so_and_afterwards_go_on"),
    (NamesNoField, "a_wrong_setting_is_named"),
    (LogsTheDocument, "creating_it_again_adopts_it"),
    (ShowsTheDocument, "creating_it_again_adopts_it"),
    (LooksAtWhatHasEnded, "the_cost_of_looking_does_not_grow_with_machines_that_have_ended"),
]


@pytest.mark.parametrize(("defect", "case"), FOUND_BY)
async def test_what_is_wrong_with_a_site_is_found(
    defect: type[Any], case: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = toy_world.ToyWorld()
    world.deadline_seconds = 0.3
    if issubclass(defect, toy_cloud.Cloud):
        world.cloud = toy_site.CLOUDS["here"] = defect()
    else:
        world.make_site = defect
    with pytest.raises((AssertionError, SiteError, TimeoutError, pytest.fail.Exception)):
        await carry_out(case, world, caplog)


@pytest.mark.parametrize("case", sorted({case for _, case in FOUND_BY}))
async def test_nothing_is_found_where_nothing_is_wrong(case: str, caplog: pytest.LogCaptureFixture) -> None:
    await carry_out(case, toy_world.ToyWorld(), caplog)


async def carry_out(case: str, world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Run a test of the suite."""
    caplog.set_level(logging.DEBUG)
    LEFT.clear()
    trial = Trial(world)
    arguments = ["probe"] if "reading_and_acting" in case else []
    await getattr(Conformance(), f"test_{case}")(trial, *arguments)
    await trial.finish(caplog.records)


def test_the_document_says_of_each_error_what_is_true() -> None:
    rows = dict(re.findall(r"^\| `(\w+Error)` \| (\w+ \| \w+) \|", DOCUMENT.read_text(), re.MULTILINE))
    kinds = [kind for kind in vars(base).values() if isinstance(kind, type) and issubclass(kind, SiteError)]
    assert rows == {
        kind.__name__: f"{kind.scope} | {'yes' if kind.retryable else 'no'}" for kind in kinds if kind is not SiteError
    }


def test_the_document_says_which_switches_there_are() -> None:
    table = DOCUMENT.read_text().partition("| switch |")[2].partition("\n\n")[0]
    lacking = re.findall(r"_lacks\(\"(\w+)\"\)", Path(str(world_module.__file__)).read_text())
    assert set(re.findall(r"`(\w+)`", table)) == set(lacking)


def test_the_manifest_of_the_document_is_that_of_the_example() -> None:
    assert (TOY / "site.yaml").read_text() in DOCUMENT.read_text()


def test_the_world_of_the_document_runs_anywhere_and_lacks_switches(tmp_path: Path) -> None:
    [world] = re.findall(r"^```python\n(.*?class SmallWorld.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "small_world.py").write_text(world)
    [options] = re.findall(r"^pytest (.*)$", DOCUMENT.read_text(), re.MULTILINE)
    command = [sys.executable, "-m", "pytest", "-k", "probe_says or lost_answer_leaves or throttled_create_makes"]
    environment = {**os.environ, "PYTHONPATH": str(TOY)}
    ran = run([*command, *options.split()], tmp_path, environment)
    assert ran.returncode == 0, ran.stdout
    assert "2 passed, 1 skipped" in ran.stdout
    assert "this world has no switch throttle" in ran.stdout
    ran = run([*command, "--pyargs", "simyard_sites.conformance"], tmp_path, environment)
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--site is missing" in ran.stderr


def run(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
