# SPDX-License-Identifier: Apache-2.0
"""Entities by absolute URIs that any of the frontends has returned."""

from __future__ import annotations

import pytest
from occi_memory import BASE, TAG_LINE, Caller, MemoryBackend, lines

from simyard.frontend.handlers import Handlers

OTHER = "https://other.example:8444/"


@pytest.mark.parametrize(
    ("uri", "status"),
    [
        (f"{BASE}/compute/c1", 200),
        ("https://seen.example/compute/c1", 200),
        (f"{OTHER}compute/c1", 200),
        ("https://foreign.example/compute/c1", 400),
    ],
)
async def test_a_uri_of_another_frontend_names_the_same_entity(memory: MemoryBackend, uri: str, status: int) -> None:
    call = Caller(memory, handlers=Handlers(memory, endpoints=(OTHER,)))
    await call.text("POST", "/-/", lines(TAG_LINE))
    answer = await call("POST", "/tag/", f"X-OCCI-Location: {uri}", host="seen.example")
    assert answer.status == status
    assert memory.list_paths("/tag/") == (("/compute/c1",) if status == 200 else ())
    await call("DELETE", "/tag/", f"X-OCCI-Location: {uri}", host="seen.example")
    assert memory.list_paths("/tag/") == ()
