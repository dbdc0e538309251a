# SPDX-License-Identifier: Apache-2.0
"""A change affects only the entities that its request names, wherever it names them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from occi_memory import BASE, COMPUTE_LINE, START_LINE, TAG_LINE, Caller, MemoryBackend, compute, lines, network

from simyard.occi.standard import COMPUTE

NAMED = f"{BASE}/compute/c1"
JSON = {"content_type": "application/occi+json"}
ONE_OF_TWO = {"resources": [{"kind": COMPUTE, "id": "c1"}, {"kind": COMPUTE, "id": "c2"}]}
NAMING_C1 = [
    (f"X-OCCI-Location: {NAMED}", {}),
    ("", {"x_occi_location": NAMED}),
    ("", {"x_occi_location": NAMED, "content_type": "text/plain"}),
    ("", {"x_occi_location": NAMED, "content_type": "text/occi"}),
    (NAMED, {"content_type": "text/uri-list"}),
    (json.dumps([NAMED]), JSON),
    (json.dumps({"kind": COMPUTE, "id": "c1"}), JSON),
    (json.dumps({"resources": [{"kind": COMPUTE, "id": "c1"}]}), JSON),
    (json.dumps({"kind": COMPUTE, "location": NAMED}), JSON),
    (lines(COMPUTE_LINE, 'X-OCCI-Attribute: occi.core.id="c1"'), {}),
    ("", {"x_occi_attribute": 'occi.core.id="c1"', "content_type": "text/plain"}),
]
"""Bodies and headers that each name the first compute alone."""


@pytest.mark.parametrize(("body", "headers"), NAMING_C1)
@pytest.mark.parametrize("location", ["/compute/", "/"])
async def test_a_deletion_that_names_one_entity_deletes_that_one(
    call: Caller, location: str, body: str, headers: dict[str, str]
) -> None:
    await call.text("DELETE", location, body, **headers)
    assert sorted(call.backend.stored) == ["/compute/c2", "/network/n1"]


async def test_a_deletion_of_several_deletes_these(call: Caller) -> None:
    call.backend.put(compute(3))
    await call.text("DELETE", "/compute/", json.dumps(ONE_OF_TWO), **JSON)
    assert sorted(call.backend.stored) == ["/compute/c3", "/network/n1"]


@pytest.mark.parametrize(
    ("query", "left"), [("page=1&number=1", ["c2"]), ("page=2&number=1", ["c1"]), ("page=3", ["c1", "c2"])]
)
async def test_a_deletion_of_a_page_deletes_that_page(call: Caller, query: str, left: list[str]) -> None:
    await call.text("DELETE", f"/compute/?{query}")
    assert [path for path in call.backend.stored if "compute" in path] == [f"/compute/{name}" for name in left]


REFUSED = [
    ("?page=0", "", {}, 400),
    ("?number=10001", "", {}, 413),
    ("?fresh=true", "", {}, 400),
    ("?occi.core.id=c1", "", {}, 400),
    ("", "X-OCCI-Location: /compute/none", {}, 404),
    ("", "X-OCCI-Location: /network/n1", {}, 400),
    ("", "X-OCCI-Location: http://elsewhere/compute/c1", {}, 400),
    ("", f"X-OCCI-Location: {NAMED}", {"content_type": "text/occi"}, 400),
    ("", START_LINE, {"x_occi_location": NAMED}, 400),
    ("", "Link: </network/n1>; rel=\"http://schemas.ogf.org/occi/infrastructure#network\"", {}, 400),
    ("", "Link: </compute/c1?action=start>; rel=\"http://x#start\"", {}, 400),
    ("", json.dumps({"resources": [{"kind": COMPUTE, "id": "c1"}, {"kind": COMPUTE}]}), JSON, 400),
    ("", json.dumps({"action": "http://x#start"}), JSON, 400),
]  # fmt: skip


@pytest.mark.parametrize(("query", "body", "headers", "status"), REFUSED)
async def test_a_deletion_that_cannot_be_honoured_deletes_nothing(
    call: Caller, query: str, body: str, headers: dict[str, str], status: int
) -> None:
    response = await call("DELETE", f"/compute/{query}", body, **headers)
    assert (response.status, call.backend.changes) == (status, []), response.body


@pytest.mark.parametrize(("body", "headers"), NAMING_C1[:9])
async def test_a_mixin_is_taken_from_what_is_named(call: Caller, body: str, headers: dict[str, str]) -> None:
    await call.text("POST", "/-/", lines(TAG_LINE))
    await call.text("POST", "/tag/", f"{BASE}/compute/c1\n{BASE}/compute/c2", content_type="text/uri-list")
    await call.text("DELETE", "/tag/", body, **headers)
    assert call.backend.list_paths("/tag/") == ("/compute/c2",)


async def test_a_mixin_is_taken_from_a_page_of_its_members(call: Caller) -> None:
    await call.text("POST", "/-/", lines(TAG_LINE))
    await call.text("POST", "/tag/", f"{BASE}/compute/c1\n{BASE}/compute/c2", content_type="text/uri-list")
    for method, query in (("PUT", "page=1&number=1"), ("POST", "page=1"), ("DELETE", "full=true")):
        assert (await call(method, f"/tag/?{query}", "X-OCCI-Location: /compute/c1")).status == 400
    assert (await call("DELETE", "/tag/?page=1", "X-OCCI-Location: /compute/c1")).status == 400
    await call.text("DELETE", "/tag/?page=1&number=1")
    assert call.backend.list_paths("/tag/") == ("/compute/c2",)


@pytest.mark.parametrize(
    ("query", "body", "headers"),
    [
        ("&page=1&number=1", START_LINE, {}),
        ("", lines(START_LINE, f"X-OCCI-Location: {NAMED}"), {}),
        ("", lines(START_LINE, COMPUTE_LINE), {}),
        ("", START_LINE, {"x_occi_attribute": 'occi.core.id="c1"'}),
        ("&page=1&number=1", "", {}),
        ("", "", {"x_occi_location": NAMED}),
    ],
)
async def test_an_action_on_a_collection_that_names_some_members_is_done_on_none(
    call: Caller, query: str, body: str, headers: dict[str, str]
) -> None:
    response = await call("POST", f"/compute/?action=start{query}", body, **headers)
    assert (response.status, call.backend.changes) == (400, []), response.body


TARGETS = st.sampled_from(["/compute/", "/", "/network/", "/tag/"])
BODIES = st.sampled_from([(body, headers) for body, headers in NAMING_C1])


@given(TARGETS, BODIES, st.sampled_from(["", "?page=1&number=1", "?number=1", "?page=2&number=1"]))
async def test_no_deletion_that_says_something_deletes_more_than_one(
    target: str, said: tuple[str, dict[str, str]], query: str
) -> None:
    call = Caller(MemoryBackend())
    call.backend.put(*(compute(number) for number in (1, 2, 3)), network(1), network(2))
    await call.text("POST", "/-/", lines(TAG_LINE))
    await call.text("PUT", "/tag/", f"{BASE}/compute/c1\n{BASE}/compute/c2", content_type="text/uri-list")
    before, members = len(call.backend.stored), len(call.backend.list_paths("/tag/"))
    await call("DELETE", target + query, said[0], **said[1])
    assert before - len(call.backend.stored) + members - len(call.backend.list_paths("/tag/")) <= 1
