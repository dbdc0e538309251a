# SPDX-License-Identifier: Apache-2.0
"""The conformance suite on a simulated oned."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from opennebula_world import CLOUD, make_world

from simyard_sites.conformance.interrupting import Interrupting
from simyard_sites.conformance.suite import Conformance
from simyard_sites.conformance.trial import Trial
from simyard_sites.conformance.world import World


@pytest.mark.xdist_group("conformance-opennebula")
class TestOpenNebula(Conformance):
    """All that a site must do."""

    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        async with make_world() as world:
            yield world


@pytest.mark.slow
@pytest.mark.xdist_group("conformance-opennebula-slow")
@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
class TestSlowOpenNebula(Interrupting):
    """What cancelled calls leave behind while oned takes long to answer."""

    @pytest.fixture
    async def trial(self, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Trial]:
        async with make_world(replace(CLOUD, answer_seconds=0.1)) as world:
            trial = Trial(world)
            yield trial
            await trial.finish(caplog.get_records("call"))
            assert not [record for record in caplog.get_records("call") if "was destroyed" in record.getMessage()]
