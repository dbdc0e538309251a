# SPDX-License-Identifier: Apache-2.0
"""Runs the suite for the site that ``--site`` names."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from simyard_sites.conformance.plugin import make_world_of
from simyard_sites.conformance.suite import Conformance
from simyard_sites.conformance.world import World


class TestSite(Conformance):
    """The suite for the site that ``--site`` names."""

    @pytest_asyncio.fixture(loop_scope="function")
    async def world(self, request: pytest.FixtureRequest) -> AsyncIterator[World]:
        """Yield the world of one test."""
        async with make_world_of(request.config)() as world:
            yield world
