# SPDX-License-Identifier: Apache-2.0
from collections.abc import AsyncIterator

import pytest_asyncio
from toy_world import make_world

from simyard_sites.conformance.suite import Conformance
from simyard_sites.conformance.world import World


class TestToySite(Conformance):
    @pytest_asyncio.fixture(loop_scope="function")
    async def world(self) -> AsyncIterator[World]:
        async with make_world() as world:
            yield world
