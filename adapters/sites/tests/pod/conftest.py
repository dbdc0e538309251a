# SPDX-License-Identifier: Apache-2.0
"""A cluster with nodes: the control plane that tests share, a real scheduler, and kwok for the kubelets."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simyard_dev.controlplane import ControlPlane

sys.path.insert(0, str(Path(__file__).parent))
from pod_world import Nodes, PodWorld, pod_world


@pytest.fixture(scope="session")
def nodes(control_plane: ControlPlane, simyard_directory: Path) -> ControlPlane:
    """The control plane, whose pods are placed and said to run."""
    Nodes(simyard_directory / "nodes", control_plane).start()
    return control_plane


@pytest.fixture
async def world(nodes: ControlPlane) -> AsyncIterator[PodWorld]:
    """A world of this test."""
    async with pod_world(nodes) as world:
        yield world
