# SPDX-License-Identifier: Apache-2.0
"""Tests that refusals of a cloud become errors with a remedy."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

import pytest

from simyard_sites.base import (
    ErrorScope,
    MachineState,
    PermissionDeniedError,
    QuotaExhaustedError,
    Site,
    SiteError,
    Snapshot,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
    UnknownOutcomeError,
)
from simyard_sites.conformance.trial import Trial, failed_with, succeeded

_SECONDS = 2.0


@pytest.mark.asyncio(loop_scope="function")
class Refusing:
    """The tests of a cloud that refuses requests or does not answer."""

    async def test_a_throttled_create_makes_nothing_and_can_be_repeated(self, trial: Trial) -> None:
        await trial.world.throttle(1, None)
        await self._refused_then_created(trial, ThrottledError)

    async def test_a_throttled_create_says_when_to_come_again(self, trial: Trial) -> None:
        await trial.world.throttle(1, _SECONDS)
        errors = await self._refused_then_created(trial, ThrottledError)
        assert {error.retry_after_seconds for error in errors} == {_SECONDS}

    async def test_an_exhausted_quota_is_said_and_machines_are_made_when_there_is_some(self, trial: Trial) -> None:
        site = trial.site()
        [machine] = await trial.created(site, "a")
        async with trial.world.quota_exhausted():
            adopted, refused = await trial.create(site, "a", "b")
            assert succeeded(adopted) and adopted.machine and adopted.machine.id == machine.id
            assert failed_with(refused, QuotaExhaustedError).retryable
            assert (await trial.owned(site)).keys() == {machine.name}
            capacity = (await site.probe()).capacity
            assert capacity is None or capacity <= 1, (
                f"the quota allows one machine, but the site reports capacity for {capacity}"
            )
        await trial.created(site, "b")

    async def test_a_missing_permission_is_said_and_what_is_permitted_goes_on(self, trial: Trial) -> None:
        site = trial.site()
        [machine] = await trial.created(site, "a")
        async with trial.world.permission_denied():
            [refused] = await trial.create(site, "b")
            assert not failed_with(refused, PermissionDeniedError).retryable
            assert (await trial.owned(site)).keys() == {machine.name}
        await trial.created(site, "b")

    async def test_credentials_that_expire_are_renewed_or_said_to_be_wrong(self, trial: Trial) -> None:
        site = trial.site()
        [machine] = await trial.created(site, "a")
        await trial.world.expire_credentials()
        [outcome] = await trial.create(site, "b")
        if outcome.error:
            assert failed_with(outcome, UnauthenticatedError).scope is ErrorScope.SITE
            with pytest.raises(UnauthenticatedError) as raised:
                await site.probe()
            trial.check(raised.value)
        await self._nothing_is_hidden(site, machine.name)
        renewed = trial.site()
        assert machine.name in await trial.owned(renewed)
        await trial.created(renewed, "b")

    async def test_while_a_cloud_cannot_be_reached_calls_say_so_and_afterwards_go_on(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        [machine] = await trial.running(site, "a")
        async with trial.world.unreachable():
            for call in (site.probe, site.list_owned):
                with pytest.raises(UnavailableError) as raised:
                    async with asyncio.timeout(trial.world.deadline_seconds):
                        await call()
                trial.check(raised.value)
            [created] = await trial.create(site, "b")
            failed_with(created, UnavailableError, UnknownOutcomeError)
            [deleted] = await trial.delete(site, machine.id)
            failed_with(deleted, UnavailableError, UnknownOutcomeError)
            [found] = await trial.get(site, machine.id)
            failed_with(found, UnavailableError)
        assert (await site.probe()).version
        await trial.created(site, "b")
        await observer.until_all(MachineState.RUNNING, 2)

    async def test_a_cloud_that_never_answers_is_given_up(self, trial: Trial) -> None:
        site = trial.site()
        [machine, other] = await trial.running(site, "a", "b")
        async with trial.world.silent():
            for call in (site.probe, site.list_owned):
                with pytest.raises(UnavailableError) as raised:
                    async with asyncio.timeout(trial.world.deadline_seconds):
                        await call()
                trial.check(raised.value)
            failed_with((await trial.get(site, machine.id))[0], UnavailableError)
            failed_with((await trial.create(site, "c"))[0], UnknownOutcomeError, UnavailableError)
            failed_with((await trial.delete(site, machine.id))[0], UnknownOutcomeError, UnavailableError)
        await trial.created(site, "b", "c")
        assert other.name in await trial.owned(site)

    async def test_a_wrong_setting_is_named(self, trial: Trial) -> None:
        for field, make in trial.world.wrong_sites().items():
            with pytest.raises(SiteError) as raised:
                site = make()
                try:
                    await site.probe()
                finally:
                    await site.aclose()
            trial.check(raised.value)
            assert field in str(raised.value), f"the error does not name {field}: {raised.value}"

    async def _nothing_is_hidden(self, site: Site, name: str) -> None:
        """Check that with expired credentials, the site either reports all machines or raises an error."""
        with suppress(UnauthenticatedError):
            assert name in {machine.name for machine in await site.list_owned()}
        with suppress(UnauthenticatedError):
            async with aclosing(site.events()) as events:
                first = await anext(events)
                assert isinstance(first, Snapshot) and name in {machine.name for machine in first.machines}

    async def _refused_then_created(self, trial: Trial, kind: type[SiteError]) -> list[SiteError]:
        """Create three machines, and repeat the refused requests until all exist; return the errors."""
        site = trial.site()
        names = ("a", "b", "c")
        outcomes = await trial.create(site, *names)
        errors = [failed_with(outcome, kind) for outcome in outcomes if outcome.error]
        assert errors, "no request was refused: a provider must leave retries to the control plane"
        there = (await trial.owned(site)).keys()
        assert there == {outcome.key for outcome in outcomes if outcome.machine}
        await trial.created(site, *names)
        assert len(await trial.owned(site)) == 3
        return errors
