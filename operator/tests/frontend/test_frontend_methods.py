# SPDX-License-Identifier: Apache-2.0
"""Methods and statuses over HTTP."""

from __future__ import annotations

import pytest
from occi_memory import MemoryBackend, served

from simyard.occi.errors import OcciError


@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        ("/-/", "GET, HEAD, POST, DELETE, OPTIONS"),
        ("/compute/", "GET, HEAD, POST, DELETE, OPTIONS"),
        ("/compute", "GET, HEAD, POST, DELETE, OPTIONS"),
        ("/", "GET, HEAD, POST, DELETE, OPTIONS"),
        ("/compute/c1?x=1", "GET, HEAD, POST, PUT, DELETE, OPTIONS"),
        ("/some/mixin/", "GET, HEAD, POST, PUT, DELETE, OPTIONS"),
        ("/healthz", "GET, HEAD"),
    ],
)
async def test_methods_are_told_of_each_path_and_with_each_refusal(
    memory: MemoryBackend, target: str, allowed: str
) -> None:
    refused = ["PATCH", "TRACE", "FOO", *([] if "PUT" in allowed else ["PUT"])]
    async with served(memory) as http:
        for method in [*refused, *([] if target == "/healthz" else ["OPTIONS"])]:
            status, head, _ = await http.request(method, target, token="" if method == "OPTIONS" else "ada-token")
            assert status == (200 if method == "OPTIONS" else 405), (method, head)
            assert method == "FOO" or f"Allow: {allowed}\r\n" in f"{head}\r\n", (method, head)
            assert "\r\nAllow: " in head


async def test_refusals_have_the_standard_s_phrases_and_any_status_is_sent(memory: MemoryBackend) -> None:
    async with served(memory) as http:
        _, head, _ = await http.request("POST", "/compute/", f"Content-Length: {2**30}")
        assert head.startswith("HTTP/1.1 413 Content Too Large\r\n")
        memory.failure = OcciError(499, "an adapter's own status")
        _, head, body = await http.request("DELETE", "/compute/c1")
        assert head.startswith("HTTP/1.1 500 ") and "an adapter's own status" in body
