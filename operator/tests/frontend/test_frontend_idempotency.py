# SPDX-License-Identifier: Apache-2.0
"""Requests over HTTP that their sender repeats."""

from __future__ import annotations

import occi_memory
import pytest
from occi_memory import COMPUTE_LINE, MemoryBackend, Served, served

BODY = f"{COMPUTE_LINE}\n".encode()


async def key_of(http: Served, method: str, target: str, *headers: str, body: bytes = b"", token: str) -> str:
    """Return the key under which an entity was created."""
    await http.request(method, target, *headers, body=body, token=token)
    return http.backend.changes[-1].removeprefix("create compute").strip()


async def test_the_same_request_with_the_same_key_has_one_key_and_any_other_another(memory: MemoryBackend) -> None:
    async with served(memory) as http:
        given = ("POST", "/compute/", "Idempotency-Key: mine")
        first = await key_of(http, *given, body=BODY, token="ada-token")
        again = await key_of(http, *given, "User-Agent: other", body=BODY, token="ada-token")
        others = [
            await key_of(http, "POST", "/compute/", "Idempotency-Key: other", body=BODY, token="ada-token"),
            await key_of(http, *given, body=BODY + b"X-OCCI-Attribute: occi.compute.cores=2\n", token="ada-token"),
            await key_of(http, "POST", "/", "Idempotency-Key: mine", body=BODY, token="ada-token"),
            await key_of(http, *given, f"Category: {COMPUTE_LINE.removeprefix('Category: ')}", token="ada-token"),
        ]
        assert first and again == first
        assert all(others) and len({first, *others}) == 5
        assert await key_of(http, "POST", "/compute/", body=BODY, token="ada-token") == ""


async def test_two_users_have_not_one_key(memory: MemoryBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(memory) as http:
        monkeypatch.setitem(occi_memory.RIGHTS, "eve", None)
        keys = {
            await key_of(http, "POST", "/compute/", "Idempotency-Key: mine", body=BODY, token=token)
            for token in ("ada-token", "eve-token")
        }
        assert len(keys) == 2 and all(keys)
