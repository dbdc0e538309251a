"""The conformance suite on a simulated oned."""

from collections.abc import AsyncIterator

import pytest

from simyard_sites.conformance.suite import Conformance
from simyard_sites.conformance.world import World
from simyard_sites.opennebula.conformance import make_world


@pytest.mark.xdist_group("conformance-opennebula")
class TestOpenNebula(Conformance):
    """All that a site must do."""

    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        async with make_world() as world:
            yield world
