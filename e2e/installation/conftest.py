# SPDX-License-Identifier: Apache-2.0
"""Provide a control plane with cert-manager, a broker of other people, and a release of the chart that uses both."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simyard_dev.cert_manager import CertManager
from simyard_dev.controlplane import ControlPlane
from simyard_dev.local_broker import LocalBroker

sys.path.insert(0, str(Path(__file__).parents[2] / "charts" / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
from helm_release import NAMESPACE, Helm

from release import BROKER_SECRET, Release

VALUES = (
    "certificates.mode=certManager",
    "broker.mode=existing",
    f"broker.existing.secretName={BROKER_SECRET}",
    "operator.extraEnv[0].name=SIMYARD_EMULATED_DIR",
)


@pytest.fixture(scope="session")
def helm(simyard_directory: Path) -> Iterator[Helm]:
    """Provide Helm on a control plane of our own with a running cert-manager."""
    control_plane = ControlPlane(simyard_directory / "installation")
    control_plane.start()
    control_plane.kubectl("create", "namespace", NAMESPACE)
    cert_manager = CertManager(simyard_directory / "cert-manager", control_plane)
    cert_manager.start()
    yield Helm(control_plane)
    cert_manager.stop()


@pytest.fixture(scope="session")
def broker(simyard_directory: Path) -> LocalBroker:
    """Provide a broker that the release does not create."""
    broker = LocalBroker(simyard_directory / "their-broker")
    broker.start()
    return broker


@pytest.fixture(scope="session")
def release(helm: Helm, simyard_directory: Path) -> Iterator[Release]:
    """Provide the applied release; no process of it runs yet."""
    directory = simyard_directory / "release"
    emulated = directory / "emulated"
    release = Release(directory, helm, *VALUES, f"operator.extraEnv[0].value={emulated}")
    release.apply()
    yield release
    for pod in (release.apiserver, release.operator):
        pod.stop()
    for cloud in emulated.glob("*"):
        command = [sys.executable, "-m", "simyard_sites.emulated", "stop", "--directory", str(cloud)]
        subprocess.run(command, check=False)
