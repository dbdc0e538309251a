# SPDX-License-Identifier: Apache-2.0
"""The complete suite. A provider's own test class is a subclass with a fixture ``world``."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from simyard_sites.conformance.acting import Acting
from simyard_sites.conformance.bursting import Bursting
from simyard_sites.conformance.creating import Creating
from simyard_sites.conformance.ending import Ending
from simyard_sites.conformance.interrupting import Interrupting
from simyard_sites.conformance.looking import Looking
from simyard_sites.conformance.neighbours import Neighbours
from simyard_sites.conformance.refusing import Refusing
from simyard_sites.conformance.trial import Trial
from simyard_sites.conformance.watching import Watching
from simyard_sites.conformance.world import World


@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
class Conformance(Bursting, Interrupting, Refusing, Neighbours, Ending, Acting, Watching, Looking, Creating):
    """The suite. A subclass has an asynchronous fixture ``world`` that yields the world of the test."""

    @pytest_asyncio.fixture(loop_scope="function")
    async def trial(self, world: World, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Trial]:
        """Yield the trial of the test; then close its sites, and check for leftovers and for secrets in the log."""
        caplog.set_level(logging.DEBUG)
        trial = Trial(world)
        yield trial
        await trial.finish([record for phase in ("call", "teardown") for record in caplog.get_records(phase)])
