# SPDX-License-Identifier: Apache-2.0
"""The emulated site passes the suite that every provider runs."""

from collections.abc import AsyncIterator

import pytest

from simyard_sites.conformance.suite import Conformance
from simyard_sites.conformance.world import World
from simyard_sites.emulated.conformance import make_world


class TestEmulated(Conformance):
    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        async with make_world() as world:
            yield world
