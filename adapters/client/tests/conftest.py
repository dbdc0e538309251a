# SPDX-License-Identifier: Apache-2.0
"""Fixtures: an API server of the test, and a client that is connected to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import simyard_client

sys.path.insert(0, str(Path(__file__).parent))

from fake_server import FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.stop()


@pytest.fixture
def client(server: FakeServer) -> Iterator[simyard_client.Client]:
    with simyard_client.connect(url=server.url, token="secret", patience_seconds=5) as client:
        yield client
