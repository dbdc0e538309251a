# SPDX-License-Identifier: Apache-2.0
"""Provide KubeVirt's own control plane to the run, and a namespace with a site to each test."""

from __future__ import annotations

import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from simyard_dev.controlplane import ControlPlane
from simyard_dev.virt_control_plane import VirtControlPlane

sys.path.insert(0, str(Path(__file__).parent))
from virt_stage import Stage, stage


@pytest.fixture(scope="session")
def control_plane(simyard_directory: Path) -> ControlPlane:
    """Provide a control plane of our own: KubeVirt's webhooks would affect other tests."""
    control_plane = ControlPlane(simyard_directory / "virt-controlplane")
    control_plane.start()
    return control_plane


@pytest.fixture(scope="session")
def virt(control_plane: ControlPlane, simyard_directory: Path) -> Iterator[VirtControlPlane]:
    """Provide a working virt-api and virt-controller."""
    virt = VirtControlPlane(simyard_directory / "virt", control_plane, disks=True)
    virt.start()
    yield virt
    virt.stop()


@pytest.fixture
async def there(control_plane: ControlPlane, virt: VirtControlPlane) -> AsyncIterator[Stage]:
    """Provide a namespace that accepts machines, and the played virt-handler."""
    certificate = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.load_cert_chain(virt.handler_certificate.certificate, virt.handler_certificate.key)
    async with stage(control_plane, virt, certificate) as made:
        yield made
