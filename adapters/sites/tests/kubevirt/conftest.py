# SPDX-License-Identifier: Apache-2.0
"""The definitions of KubeVirt in the control plane that tests share, and a world for each test."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simyard_dev import kubevirt
from simyard_dev.controlplane import ControlPlane

sys.path.insert(0, str(Path(__file__).parent))
from kubevirt_world import KubevirtWorld, kubevirt_world


@pytest.fixture(scope="session")
def kubevirt_control_plane(control_plane: ControlPlane) -> ControlPlane:
    """The control plane, with the definitions of KubeVirt."""
    kubevirt.install(control_plane)
    return control_plane


@pytest.fixture
async def world(kubevirt_control_plane: ControlPlane) -> AsyncIterator[KubevirtWorld]:
    """A world of this test."""
    async with kubevirt_world(kubevirt_control_plane) as world:
        yield world
