# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a frontend with a backend in memory."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from occi_memory import Caller, MemoryBackend, compute, network


@pytest.fixture
def memory() -> MemoryBackend:
    backend = MemoryBackend()
    backend.put(compute(1), compute(2), network(1))
    return backend


@pytest.fixture
def call(memory: MemoryBackend) -> Caller:
    return Caller(memory)
