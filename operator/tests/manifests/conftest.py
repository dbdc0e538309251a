# SPDX-License-Identifier: Apache-2.0
"""A control plane with Simyard installed in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from kube_api import Api
from simyard.manifests import install
from simyard_dev.controlplane import ControlPlane


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Api:
    """The API server with everything of :mod:`simyard.manifests.install` in it."""
    api = Api(control_plane.kubeconfig)
    api.install(install.build_objects())
    return api


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A namespace of the test's own."""
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"test-{uuid.uuid4().hex[:8]}"}}
    answer = api.create(manifest)
    assert answer.accepted, answer
    name: str = answer.body["metadata"]["name"]
    yield name
    api.request("DELETE", f"/api/v1/namespaces/{name}")
