# SPDX-License-Identifier: Apache-2.0
"""Tests with hundreds of machines at once."""

from __future__ import annotations

import asyncio

import pytest

from simyard_sites.base import Outcome, ThrottledError
from simyard_sites.conformance.trial import Trial, failed_with, succeeded

_BATCH = 50
_MAX_CONNECTIONS = 250
_PAUSE_SECONDS = 0.2


@pytest.mark.asyncio(loop_scope="function")
class Bursting:
    """The tests of a large burst of machines."""

    async def test_hundreds_of_machines_are_created_and_deleted_in_one_burst(self, trial: Trial) -> None:
        site = trial.site()
        observer = trial.observe(site)
        names = [f"a{number}" for number in range(trial.world.burst)]
        batches = [names[start : start + _BATCH] for start in range(0, len(names), _BATCH)]
        peak = 0

        async def create(batch: list[str]) -> list[str]:
            nonlocal peak
            outcomes = await trial.create(site, *batch)
            peak = max(peak, trial.connections())
            refused = await _refused(batch, outcomes)
            ids = [outcome.machine.id for outcome in outcomes if outcome.machine]
            return ids + (await create(refused) if refused else [])

        async def delete(batch: list[str]) -> None:
            if refused := await _refused(batch, await trial.delete(site, *batch)):
                await delete(refused)

        created = [key for batch in await asyncio.gather(*map(create, batches)) for key in batch]
        assert len(set(created)) == len(names)
        wanted = {trial.name(name) for name in names}
        await observer.until(lambda machines: machines.keys() == wanted, f"{len(wanted)} machines are reported")
        assert (await trial.owned(site)).keys() == wanted
        for outcome in await trial.get(site, *created):
            assert succeeded(outcome)
        await asyncio.gather(*(delete(created[start : start + _BATCH]) for start in range(0, len(created), _BATCH)))
        await observer.until_none()
        assert peak <= _MAX_CONNECTIONS, f"{peak} connections were open at once: limit their number"


async def _refused(asked: list[str], outcomes: list[Outcome]) -> list[str]:
    """Wait for the delay that the site asked for, and return the keys of the throttled items."""
    errors = {key: outcome.error for key, outcome in zip(asked, outcomes, strict=True) if outcome.error}
    for outcome in outcomes:
        if outcome.error:
            failed_with(outcome, ThrottledError)
    if errors:
        await asyncio.sleep(max(error.retry_after_seconds or _PAUSE_SECONDS for error in errors.values()))
    return list(errors)
