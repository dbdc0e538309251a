# SPDX-License-Identifier: Apache-2.0
"""What sites can do wrong in answering: outcomes, events, errors, deadlines, cancellation."""

import asyncio
import logging
import socket
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from defects import LEFT, ToySite, found_by, toy_cloud

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
    Stage,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
    UnknownOutcomeError,
)


@found_by("creating_it_again_adopts_it")
class MixesUpTheOrder(ToySite):
    async def _each(self, keys: Any, do: Any) -> Any:
        outcomes = [outcome async for outcome in super()._each(keys, do)]
        for key, outcome in zip(reversed(keys), outcomes, strict=True):
            yield replace(outcome, key=key)


@found_by("a_machine_is_told_from_its_start_to_its_end_with_its_stages")
class ChangesTheTimesOfStages(ToySite):
    async def events(self) -> Any:
        async for event in super().events():
            if isinstance(event, Changed):
                yield Changed(replace(event.machine, entered={Stage.PENDING: time.time()}))
            else:
                yield event


@found_by("a_machine_that_fails_is_told_with_the_reason")
class SaysNotWhyAMachineFailed(ToySite):
    async def events(self) -> Any:
        async for event in super().events():
            yield Changed(replace(event.machine, reason="")) if isinstance(event, Changed) else event


@found_by("an_exhausted_quota_is_said_and_machines_are_made_when_there_is_some")
class SaysThatThereIsRoom(ToySite):
    async def probe(self) -> Any:
        return replace(await super().probe(), capacity=1000)


@found_by("a_cloud_that_never_answers_is_given_up")
class IgnoresTheDeadline(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        if verb == "changes":
            return await super()._ask(verb, *arguments)
        return await self._cloud.request(self._token, verb, *arguments)


@found_by("while_a_cloud_cannot_be_reached_calls_say_so_and_afterwards_go_on")
class TriesForEver(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        while True:
            try:
                return await super()._ask(verb, *arguments)
            except UnavailableError:
                await asyncio.sleep(0)


@found_by("credentials_that_expire_are_renewed_or_said_to_be_wrong")
class ListsNothingWhenCredentialsExpire(ToySite):
    async def list_owned(self) -> Any:
        with suppress(UnauthenticatedError):
            return await super().list_owned()
        return []


@found_by("credentials_that_expire_are_renewed_or_said_to_be_wrong")
class TellsNothingWhenCredentialsExpire(ToySite):
    async def events(self) -> Any:
        try:
            async for event in super().events():
                yield event
        except UnauthenticatedError:
            yield Snapshot([])


@found_by("creating_can_be_cancelled_at_any_moment_and_repeated")
class LeavesTasksOfCancelledCalls(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        LEFT.append(asyncio.create_task(asyncio.sleep(60)))
        answer = await super()._ask(verb, *arguments)
        LEFT.pop().cancel()
        return answer


@found_by("a_snapshot_comes_first_even_if_there_is_nothing", "all_who_watch_are_told")
class TellsNoSnapshot(ToySite):
    async def events(self) -> Any:
        async for event in super().events():
            if not isinstance(event, Snapshot):
                yield event
            else:
                for machine in event.machines:
                    yield Changed(machine)


@found_by("a_deleted_machine_ends_and_is_gone")
class TellsNoEnd(ToySite):
    async def events(self) -> Any:
        async for event in super().events():
            if not isinstance(event, Gone):
                yield event


@found_by("a_snapshot_comes_first_even_if_there_is_nothing")
class EndsItsEvents(ToySite):
    async def events(self) -> Any:
        async for event in super().events():
            yield event
            return


@found_by("what_was_not_told_is_made_up_for")
class NeverListsAgain(ToySite):
    async def events(self) -> Any:
        seen = 0
        async for event in super().events():
            seen += isinstance(event, Snapshot)
            if not isinstance(event, Snapshot) or seen == 1:
                yield event


@found_by("an_absent_machine_does_not_hold_up_the_rest")
class LeavesTasks(ToySite):
    async def _get(self, machine_id: str) -> Any:
        LEFT.append(asyncio.create_task(asyncio.sleep(60)))
        return await super()._get(machine_id)


@found_by("an_absent_machine_does_not_hold_up_the_rest")
class LeavesConnections(ToySite):
    async def _get(self, machine_id: str) -> Any:
        LEFT.append(socket.socketpair())
        return await super()._get(machine_id)


@found_by("creating_can_be_cancelled_at_any_moment_and_repeated")
class LeavesConnectionsOfCancelledCalls(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        one, other = socket.socketpair()
        LEFT.append((one, other))
        answer = await super()._ask(verb, *arguments)
        one.close()
        other.close()
        return answer


@found_by("reading_and_acting_can_be_cancelled_at_any_moment")
class SwallowsCancellation(ToySite):
    async def probe(self) -> Any:
        try:
            return await super().probe()
        except asyncio.CancelledError:
            return None


@found_by("deleting_can_be_cancelled_at_any_moment_and_repeated")
class StaysLockedWhenCancelled(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        while LEFT:
            await LEFT[0].wait()
        LEFT.append(asyncio.Event())
        answer = await super()._ask(verb, *arguments)
        LEFT.pop().set()
        return answer


@found_by("creating_it_again_adopts_it")
class AnswersUnderWrongKeys(ToySite):
    async def _each(self, keys: Any, do: Any) -> Any:
        async for outcome in super()._each(keys, do):
            yield replace(outcome, key=outcome.machine.id if outcome.machine else outcome.key)


@found_by("an_absent_machine_does_not_hold_up_the_rest")
class AnswersForSome(ToySite):
    def get(self, ids: Any) -> Any:
        return super().get(ids[:-1])


@found_by("a_bad_item_is_refused_for_good_and_does_not_hold_up_the_rest")
class FailsAsAWhole(ToySite):
    async def _each(self, keys: Any, do: Any) -> Any:
        for outcome in [Outcome(key, await do(key)) for key in keys]:
            yield outcome


@found_by("a_throttled_create_makes_nothing_and_can_be_repeated")
class TriesAgainByItself(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            return await super()._ask(verb, *arguments)
        except ThrottledError:
            return await super()._ask(verb, *arguments)


@found_by("a_throttled_create_says_when_to_come_again")
class ForgetsWhenToComeAgain(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            return await super()._ask(verb, *arguments)
        except ThrottledError as error:
            raise ThrottledError(str(error)) from error


@found_by(
    "a_lost_answer_leaves_one_machine_and_the_call_can_be_repeated", "a_lost_answer_to_a_delete_leaves_no_machine"
)
class TakesALostAnswerForNothingDone(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            return await super()._ask(verb, *arguments)
        except UnknownOutcomeError as error:
            raise UnavailableError(str(error)) from error


@found_by(
    "an_exhausted_quota_is_said_and_machines_are_made_when_there_is_some",
    "a_missing_permission_is_said_and_what_is_permitted_goes_on",
    "credentials_that_expire_are_renewed_or_said_to_be_wrong",
)
class TakesEverythingForInternal(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            return await super()._ask(verb, *arguments)
        except SiteError as error:
            if isinstance(error, MachineNotFoundError | ConflictError):
                raise
            raise InternalError(str(error), scope=ErrorScope.SITE) from error


@found_by("while_a_cloud_cannot_be_reached_calls_say_so_and_afterwards_go_on")
class SaysUnavailableOfOneMachine(ToySite):
    async def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            return await super()._ask(verb, *arguments)
        except UnavailableError as error:
            raise UnavailableError(str(error), scope=ErrorScope.ITEM) from error


@found_by("a_wrong_setting_is_named")
class NamesNoField(ToySite):
    async def probe(self) -> Any:
        try:
            return await super().probe()
        except SiteError as error:
            raise type(error)("something is wrong") from error


@found_by("creating_it_again_adopts_it")
class LogsTheDocument(ToySite):
    async def _create(self, request: Any) -> Any:
        logging.getLogger("toy").debug("creating %s", request.bootstrap)
        return await super()._create(request)


@found_by("creating_it_again_adopts_it")
class ShowsTheDocument(ToySite):
    async def _create(self, request: Any) -> Machine:
        made = await super()._create(request)
        assert made is not None
        return replace(made, message=request.bootstrap.decode())


@found_by("the_cost_of_looking_does_not_grow_with_machines_that_have_ended")
class LooksAtWhatHasEnded(toy_cloud.Cloud):
    async def machines_of(self, owner: str) -> Any:
        self.looked_at += len(self.ended)
        return await super().machines_of(owner)
