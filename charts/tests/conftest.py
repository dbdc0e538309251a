# SPDX-License-Identifier: Apache-2.0
"""One control plane for the tests of the chart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helm_release import NAMESPACE, Helm

from simyard_dev import foreign_kinds
from simyard_dev.controlplane import ControlPlane


@pytest.fixture(scope="session")
def helm(simyard_directory: Path) -> Iterator[Helm]:
    # A separate control plane, because the chart installs objects without a namespace.
    control_plane = ControlPlane(simyard_directory / "chart")
    control_plane.start()
    control_plane.kubectl("create", "namespace", NAMESPACE)
    control_plane.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/warn=restricted")
    foreign_kinds.install(control_plane)
    yield Helm(control_plane)
    control_plane.stop(0)
