# SPDX-License-Identifier: Apache-2.0
"""GET of every path."""

from __future__ import annotations

import asyncio
import json

import pytest
from occi_memory import (
    BASE,
    BEAM_LINE,
    COMPUTE_LINE,
    NETWORK_LINE,
    PLAIN,
    TAG_LINE,
    Caller,
    MemoryBackend,
    compute,
    lines,
)

from simyard.frontend.handlers import Handlers
from simyard.occi.model import Entity
from simyard.occi.standard import COMPUTE, NETWORKINTERFACE

# The model


@pytest.mark.parametrize("path", ["/-/", "/-", "/.well-known/org/ogf/occi/-/"])
async def test_the_model_begins_with_the_core_kinds_wherever_it_is_asked_for(call: Caller, path: str) -> None:
    shown = (await call.text("GET", path)).splitlines()
    assert [line.split(";")[0] for line in shown[:3]] == ["Category: entity", "Category: resource", "Category: link"]
    assert shown == (await call.text("GET", "/-/")).splitlines()


async def test_the_model_is_filtered_by_a_category_in_headers_or_body(call: Caller) -> None:
    header = COMPUTE_LINE.removeprefix("Category: ")
    in_headers = await call.text("GET", "/-/", category=header)
    assert in_headers.startswith('Category: compute; scheme="') and in_headers.count("\n") == 1
    assert await call.text("GET", "/-/", lines(COMPUTE_LINE)) == in_headers


async def test_a_new_mixin_is_in_the_model_at_once(call: Caller) -> None:
    before = await call.text("GET", "/-/")
    await call.text("POST", "/-/", lines(TAG_LINE))
    assert set((await call.text("GET", "/-/")).splitlines()) - set(before.splitlines()) == {
        'Category: tag; scheme="http://example.org/tags#"; class="mixin"; location="/tag/"'
    }
    assert call.backend.changes == ["define tag"]
    await call.text("DELETE", "/-/", lines(TAG_LINE))
    assert await call.text("GET", "/-/") == before


async def test_a_mixin_of_the_provider_is_neither_replaced_nor_removed(call: Caller) -> None:
    located = f'{BEAM_LINE}; location="/os_tpl/beam/"'
    for method, expected in (("POST", 403), ("DELETE", 403)):
        assert (await call(method, "/-/", lines(located))).status == expected
    assert (await call("DELETE", "/-/", lines(TAG_LINE))).status == 404
    assert call.backend.changes == []


async def test_put_to_the_model_says_what_is_served(call: Caller) -> None:
    response = await call("PUT", "/-/", lines(TAG_LINE))
    assert response.status == 405 and ("Allow", "GET, HEAD, POST, DELETE, OPTIONS") in response.headers


# Collections


async def test_a_listing_has_absolute_uris_in_the_order_of_creation(call: Caller) -> None:
    uris = [f"{BASE}/compute/c1", f"{BASE}/compute/c2"]
    assert await call.text("GET", "/compute/") == lines(*(f"X-OCCI-Location: {uri}" for uri in uris))
    assert await call.text("GET", "/compute", accept="text/uri-list") == lines(*uris)
    header = dict((await call("GET", "/compute/", accept="text/occi")).headers)
    assert header["X-OCCI-Location"] == ", ".join(uris)


async def test_a_listing_in_json_and_on_request_in_text_is_in_full(call: Caller) -> None:
    body = json.loads(await call.text("GET", "/compute/", accept="application/json"))
    assert [item["id"] for item in body["resources"]] == ["c1", "c2"]
    text = await call.text("GET", "/compute/?full=true")
    assert text.count(COMPUTE_LINE) == 2 and text.count("\n\n") == 1
    assert json.loads(await call.text("GET", "/compute/?full=false", accept="application/json")) == [
        f"{BASE}/compute/c1",
        f"{BASE}/compute/c2",
    ]
    assert (await call("GET", "/compute/?full=true", accept="text/uri-list")).status == 406


async def test_everything_is_below_the_root_resources_apart_from_links(call: Caller) -> None:
    link = f'Link: </compute/c1>; rel="{COMPUTE}"; category="{NETWORKINTERFACE}"'
    await call.text("POST", "/network/", lines(NETWORK_LINE, link))
    body = json.loads(await call.text("GET", "/", accept="application/json"))
    assert [item["id"] for item in body["resources"]] == ["c1", "c2", "n1", "new1"]
    assert [item["source"]["location"] for item in body["links"]] == ["/network/new1"]
    assert (await call.text("GET", "/resource/")).count("\n") == 4
    assert (await call.text("GET", "/link/")).count("\n") == 1
    assert (await call.text("GET", "/entity/")).count("\n") == 5


@pytest.mark.parametrize("path", ["/storage/", "/networkinterface/", "/os_tpl/"])
async def test_an_empty_collection_is_no_error(call: Caller, path: str) -> None:
    response = await call("GET", path)
    assert (response.status, response.body, response.content_type) == (200, b"", PLAIN)


@pytest.mark.parametrize(("path", "key"), [("/storagelink/", "links"), ("/link/", "links"), ("/storage/", "resources")])
async def test_an_empty_collection_in_json_says_of_what(call: Caller, path: str, key: str) -> None:
    response = await call("GET", path, accept="application/json")
    assert (response.status, json.loads(response.body)) == (200, {key: []})


@pytest.mark.parametrize("path", ["/nope/", "/nothing/here/", "/nope", "/nope/x"])
async def test_a_path_that_nothing_is_below_is_not_found_and_no_place_to_put_anything(call: Caller, path: str) -> None:
    for method in ("GET", "HEAD", "DELETE"):
        assert (await call(method, path)).status == 404
    refused = await call("PUT", path, lines(COMPUTE_LINE))
    assert (refused.status, b"/compute/NAME" in refused.body) == (400, True)


async def test_pages_are_counted_from_one_and_end_empty(call: Caller) -> None:
    assert await call.text("GET", "/compute/?page=2&number=1", accept="text/uri-list") == f"{BASE}/compute/c2\n"
    assert await call.text("GET", "/compute/?page=3&number=1", accept="text/uri-list") == ""
    assert (await call("GET", "/compute/?page=1&number=10001")).status == 413
    assert (await call("GET", "/compute/?page=0")).status == 400


async def test_a_filter_by_attribute_or_category_narrows_a_listing(call: Caller) -> None:
    call.backend.put(compute(3, **{"occi.compute.cores": 8}))
    found = await call.text("GET", "/compute/", accept="text/uri-list", x_occi_attribute="occi.compute.cores=8")
    assert found == f"{BASE}/compute/c3\n"
    kind = NETWORK_LINE.removeprefix("Category: ")
    assert await call.text("GET", "/", accept="text/uri-list", category=kind) == f"{BASE}/network/n1\n"
    call.backend.put(compute(3, **{"occi.compute.cores": 2}))
    again = await call.text("GET", "/compute/", accept="text/uri-list", x_occi_attribute="occi.compute.cores=8")
    assert again == ""


async def test_an_unknown_category_in_a_filter_is_the_askers_fault(call: Caller) -> None:
    assert (await call("GET", "/compute/", category='x; scheme="http://x#"; class="kind"')).status == 400


async def test_more_locations_than_headers_hold_are_refused_with_the_remedy(call: Caller) -> None:
    call.backend.put(*(compute(f"{number:060}") for number in range(700)))
    response = await call("GET", "/compute/", accept="text/occi")
    assert response.status == 413 and b"number=100" in response.body
    assert (await call("GET", "/compute/?number=100", accept="text/occi")).status == 200


# Entities


async def test_an_entity_is_rendered_as_the_client_likes(call: Caller) -> None:
    assert (await call.text("GET", "/compute/c1")).startswith(f'{COMPUTE_LINE}; location="/compute/"\n')
    assert json.loads(await call.text("GET", "/compute/c1", accept="application/occi+json"))["id"] == "c1"
    headers = await call("GET", "/compute/c1", accept="text/occi")
    assert headers.body == b"OK" and dict(headers.headers)["Category"].startswith("compute; ")
    assert (await call("GET", "/compute/c1", accept="text/uri-list, text/plain;q=0.1")).content_type == PLAIN


@pytest.mark.parametrize("path", ["/compute/c1", "/-/"])
async def test_uri_list_is_for_listings_only(call: Caller, path: str) -> None:
    assert (await call("GET", path, accept="text/uri-list")).status == 400
    assert (await call("GET", path, accept="image/png")).status == 406


@pytest.mark.parametrize("path", ["/compute/none", "/nothing", "/a/b/c"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_what_is_not_there_is_not_found(call: Caller, path: str, method: str) -> None:
    assert (await call(method, path)).status == 404
    assert call.backend.changes == []


async def test_the_age_of_values_is_said_and_fresh_ones_are_asked_for(call: Caller) -> None:
    call.backend.age = 7.9
    assert ("Age", "7") in (await call("GET", "/compute/c1")).headers
    assert call.backend.changes == []
    assert 'hostname="fresh"' in await call.text("GET", "/compute/c1?fresh=true")
    assert 'hostname="fresh"' in await call.text("GET", "/compute/c2", cache_control="max-age=0, No-Cache")
    assert call.backend.changes == ["refresh 1", "refresh 1"]
    await call.text("GET", "/compute/?full=true&fresh", cache_control="no-cache")
    assert call.backend.changes[-1] == "refresh 2"
    assert (await call("GET", "/compute/c1?fresh=maybe")).status == 400


async def test_head_is_answered_like_get(call: Caller) -> None:
    for path in ("/-/", "/compute/", "/compute/c1"):
        assert (await call("HEAD", path)).status == 200
    assert (await call("HEAD", "/compute/none")).status == 404


async def test_an_api_server_that_does_not_answer_is_a_503_and_no_time_out_of_a_change() -> None:
    class SilentBackend(MemoryBackend):
        async def find(self, path: str) -> Entity | None:
            return await asyncio.get_running_loop().create_future()

    backend = SilentBackend()
    call = Caller(backend, handlers=Handlers(backend, find_seconds=0.01))
    response = await call("GET", "/compute/unknown")
    assert response.status == 503 and b"unknown if" in response.body and b"carried out" not in response.body


async def test_an_abstract_kind_s_location_never_shows_what_is_not_of_it(call: Caller) -> None:
    for target in ("/link/", "/link/?full=true"):
        assert await call.text("GET", target, category=COMPUTE_LINE.removeprefix("Category: ")) == ""


async def test_a_creation_is_answered_in_text_also_for_who_accepts_json(call: Caller) -> None:
    for accept in ("text/plain", "application/json", "application/occi+json"):
        response = await call("POST", "/compute/", COMPUTE_LINE, accept=accept)
        assert (response.status, response.content_type) == (201, "text/plain; charset=utf-8")
        assert response.body.decode().strip() == f"X-OCCI-Location: {dict(response.headers)['Location']}"
