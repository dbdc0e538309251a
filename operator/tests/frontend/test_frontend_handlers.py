# SPDX-License-Identifier: Apache-2.0
"""Rights, refusals and failures in the handlers."""

from __future__ import annotations

import asyncio
import json

import pytest
from occi_memory import (
    BASE,
    COMPUTE_LINE,
    NETWORK_LINE,
    PLAIN,
    READER,
    START_LINE,
    TAG_LINE,
    Caller,
    MemoryBackend,
    lines,
)

from simyard.frontend.handlers import Handlers
from simyard.occi.errors import OcciError
from simyard.occi.standard import COMPUTE, INFRASTRUCTURE_SCHEME, NETWORKINTERFACE
from simyard.serving.status import StatusError, StatusReason

# Rights


async def test_whoever_may_nothing_learns_nothing(call: Caller) -> None:
    eve = call.as_user("eve")
    for method, target, body in (
        ("GET", "/-/", ""),
        ("GET", "/compute/", ""),
        ("GET", "/", ""),
        ("GET", "/compute/c1", ""),
        ("GET", "/compute/none", ""),
        ("POST", "/compute/", lines(COMPUTE_LINE)),
        ("POST", "/", lines(COMPUTE_LINE)),
        ("PUT", "/compute/c1", lines(COMPUTE_LINE)),
        ("PUT", "/compute/none", lines(COMPUTE_LINE)),
        ("POST", "/compute/c1", "X-OCCI-Attribute: occi.compute.cores=1"),
        ("POST", "/compute/none", "X-OCCI-Attribute: occi.compute.cores=1"),
        ("DELETE", "/compute/c1", ""),
        ("DELETE", "/compute/none", ""),
        ("DELETE", "/compute/", ""),
        ("DELETE", "/", ""),
        ("POST", "/compute/c1?action=start", START_LINE),
        ("POST", "/compute/none?action=start", START_LINE),
        ("POST", "/compute/none?action=start", ""),
        ("POST", "/-/", lines(TAG_LINE)),
        ("DELETE", "/-/", lines(TAG_LINE)),
        ("POST", "/os_tpl/beam/", "X-OCCI-Location: /compute/c1"),
        ("DELETE", "/os_tpl/beam/", ""),
    ):
        response = await eve(method, target, body)
        assert response.status == 403, (method, target)
        assert b"Worker" not in response.body
    assert call.backend.changes == []


async def test_whoever_may_only_read_changes_nothing(call: Caller) -> None:
    await call.text("POST", "/-/", lines(TAG_LINE))
    call.backend.changes.clear()
    bob = call.as_user(READER)
    for method, target, body in (
        ("POST", "/compute/", lines(COMPUTE_LINE)),
        ("POST", "/", lines(COMPUTE_LINE)),
        ("PUT", "/compute/new", lines(COMPUTE_LINE)),
        ("PUT", "/compute/c1", lines(COMPUTE_LINE)),
        ("POST", "/compute/c1", "X-OCCI-Attribute: occi.compute.cores=1"),
        ("DELETE", "/compute/c1", ""),
        ("DELETE", "/compute/", ""),
        ("DELETE", "/storage/", ""),
        ("DELETE", "/", ""),
        ("POST", "/compute/c1?action=start", START_LINE),
        ("POST", "/compute/c1?action=start", ""),
        ("POST", "/compute/?action=start", START_LINE),
        ("POST", "/-/", lines(TAG_LINE)),
        ("DELETE", "/-/", lines(TAG_LINE)),
        ("POST", "/tag/", "X-OCCI-Location: /compute/c1"),
        ("PUT", "/tag/", "X-OCCI-Location: /compute/c1"),
        ("DELETE", "/tag/", ""),
    ):
        assert (await bob(method, target, body)).status == 403, (method, target)
    assert call.backend.changes == []
    assert (await bob("GET", "/", accept="text/uri-list")).body.count(b"\n") == 3


async def test_two_users_never_share_what_only_one_may_see(call: Caller) -> None:
    net = call.as_user("net")
    for _ in range(2):  # the second time from the cache
        assert (await call.text("GET", "/", accept="text/uri-list")).count("\n") == 3
        assert await net.text("GET", "/", accept="text/uri-list") == f"{BASE}/network/n1\n"
        assert "c1" in await call.text("GET", "/?full=true")
        assert "Worker" not in await net.text("GET", "/?full=true")
        assert (await net("GET", "/compute/", accept="text/uri-list")).status == 403
        assert (await net("GET", "/compute/c1")).status == 403
    assert (await net("DELETE", "/")).status == 200
    assert sorted(call.backend.stored) == ["/compute/c1", "/compute/c2"]


async def test_a_batch_needs_the_right_to_create_each_of_its_kinds(call: Caller) -> None:
    net = call.as_user("net")
    body = json.dumps({"resources": [{"kind": f"{INFRASTRUCTURE_SCHEME}network"}, {"kind": COMPUTE}]})
    assert (await net("POST", "/anything/", body, content_type="application/json")).status == 403
    link = f'Link: </network/n1>; rel="{COMPUTE}"; category="{NETWORKINTERFACE}"'
    assert (await net("POST", "/network/", lines(NETWORK_LINE, link))).status == 403
    assert call.backend.changes == []


# Failures


async def test_errors_are_one_line_or_json_where_that_was_asked_for(call: Caller) -> None:
    text = await call("GET", "/compute/none")
    assert (text.content_type, text.body) == (PLAIN, b'there is no entity at "/compute/none"\n')
    data = await call("GET", "/compute/none", accept="application/json")
    assert json.loads(data.body) == {"code": 404, "message": 'there is no entity at "/compute/none"'}


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (RuntimeError("secret in a traceback"), 500),
        (StatusError(StatusReason.SERVICE_UNAVAILABLE, "the broker went away meanwhile"), 504),
        (StatusError(StatusReason.SERVICE_UNAVAILABLE, "the broker is away", retry_after_seconds=1), 503),
        (OcciError(503, "no site can take it"), 503),
        (StatusError(StatusReason.TIMEOUT, "no answer"), 504),
        (StatusError(StatusReason.TOO_MANY_REQUESTS, "too many"), 503),
        (StatusError(StatusReason.INVALID, "does not fit"), 400),
        (StatusError("ActionFailed", "the program refused", code=422), 400),
    ],
)
async def test_failures_behind_have_the_status_of_occi(call: Caller, failure: Exception, status: int) -> None:
    call.backend.failure = failure
    response = await call("DELETE", "/compute/c1")
    assert response.status == status
    assert dict(response.headers).get("Retry-After") == ("1" if status == 503 else None)
    assert b"secret" not in response.body


async def test_what_takes_too_long_ends_with_504(memory: MemoryBackend) -> None:
    memory.slow = asyncio.Event()
    call = Caller(memory, handlers=Handlers(memory, request_seconds=0.05))
    assert (await call("DELETE", "/compute/c1")).status == 504


@pytest.mark.parametrize(
    ("agent", "status"),
    [
        ("curl/7.88", 200),
        ("rOCCI OCCI/1.1", 200),
        ("x OCCI/1.2 OCCI/1.1", 200),
        ("x OCCI/2.0 OCCI/1.2", 200),
        ("x OCCI/1.3", 501),
        ("OCCI/10.0", 501),
    ],
)
async def test_a_client_that_speaks_only_a_later_occi_is_told_so(call: Caller, agent: str, status: int) -> None:
    assert (await call("GET", "/compute/c1", user_agent=agent)).status == status
