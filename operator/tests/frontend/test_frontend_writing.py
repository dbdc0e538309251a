# SPDX-License-Identifier: Apache-2.0
"""POST, PUT and DELETE of every path."""

from __future__ import annotations

import dataclasses
import json

import pytest
from occi_memory import (
    BASE,
    BEAM_LINE,
    COMPUTE_LINE,
    NETWORK_LINE,
    PLAIN,
    START,
    START_LINE,
    TAG_LINE,
    Caller,
    compute,
    lines,
    network,
)

from simyard.occi.standard import COMPUTE, INFRASTRUCTURE_SCHEME, NETWORKINTERFACE

# Creation


async def test_creation_gives_the_location_that_listings_have(call: Caller) -> None:
    body = lines(COMPUTE_LINE, BEAM_LINE, "X-OCCI-Attribute: occi.compute.cores=4")
    response = await call("POST", "/compute/", body)
    uri = dict(response.headers)["Location"]
    assert (response.status, response.content_type) == (201, PLAIN)
    assert response.body == f"X-OCCI-Location: {uri}\n".encode()
    assert uri in (await call.text("GET", "/compute/", accept="text/uri-list")).splitlines()
    shown = await call.text("GET", uri.removeprefix(BASE))
    assert "occi.compute.cores=4" in shown and f'{BEAM_LINE}; location="/os_tpl/beam/"' in shown


@pytest.mark.parametrize("path", ["/", "/compute/", "/anything/", "/resource/"])
async def test_creation_is_accepted_wherever_the_kind_may_be(call: Caller, path: str) -> None:
    assert (await call("POST", path, lines(COMPUTE_LINE))).status == 201


async def test_what_is_in_the_headers_alone_needs_no_content_type(call: Caller) -> None:
    response = await call("POST", "/compute/", category=COMPUTE_LINE.removeprefix("Category: "))
    assert response.status == 201
    assert (await call("POST", "/compute/", content_type="text/plain", category="compute")).status == 400


async def test_creation_at_another_kinds_location_is_refused(call: Caller) -> None:
    response = await call("POST", "/network/", lines(COMPUTE_LINE))
    assert response.status == 400 and b"/compute/" in response.body
    assert call.backend.changes == []


async def test_the_clients_id_is_honoured_where_it_can_be(call: Caller) -> None:
    response = await call("POST", "/compute/", lines(COMPUTE_LINE, 'X-OCCI-Attribute: occi.core.id="mine"'))
    assert dict(response.headers)["Location"] == f"{BASE}/compute/mine"


async def test_a_link_names_its_ends_by_uris_of_ours_or_paths(call: Caller) -> None:
    kind = f'Category: networkinterface; scheme="{INFRASTRUCTURE_SCHEME}"; class="kind"'
    for source, target in ((f"{BASE}/compute/c1", f"{BASE}/network/n1"), ("/compute/c1", "/network/n1")):
        ends = [f'X-OCCI-Attribute: occi.core.source="{source}"', f'X-OCCI-Attribute: occi.core.target="{target}"']
        made = await call("POST", "/networkinterface/", lines(kind, *ends))
        shown = await call.text("GET", dict(made.headers)["Location"].removeprefix(BASE))
        assert 'occi.core.source="/compute/c1"' in shown and 'occi.core.target="/network/n1"' in shown


def batch(*ids: str) -> str:
    return json.dumps({"resources": [{"kind": COMPUTE, "id": name} for name in ids]})


async def test_a_batch_is_created_in_its_order(call: Caller) -> None:
    response = await call("POST", "/compute/", batch("b", "a"), content_type="application/occi+json", key="k")
    assert response.body == lines(*(f"X-OCCI-Location: {BASE}/compute/{name}" for name in "ba")).encode()
    assert call.backend.changes == ["create compute k", "create compute k-1"]


async def test_of_a_batch_that_fails_nothing_remains(call: Caller) -> None:
    call.backend.refused_at = 2
    response = await call("POST", "/compute/", batch("a", "b", "c"), content_type="application/occi+json")
    assert response.status == 409
    assert call.backend.changes == [
        "create compute",
        "create compute",
    ]  # the third creation and its deletion are refused
    call.backend.remove("/compute/a")
    call.backend.remove("/compute/b")
    call.backend.changes.clear()
    call.backend.refused_at = 1
    taken_back = []
    delete = call.backend.delete

    async def undo(*arguments: object) -> None:
        call.backend.refused_at = -1
        taken_back.append(True)
        await delete(*arguments)  # type: ignore[arg-type]

    call.backend.delete = undo  # type: ignore[method-assign]
    await call("POST", "/compute/", batch("a", "b", "c"), content_type="application/occi+json")
    assert taken_back and call.backend.changes == ["create compute", "delete /compute/a"]
    assert "/compute/a" not in call.backend.stored


async def test_of_a_batch_with_one_bad_member_nothing_is_begun(call: Caller) -> None:
    body = json.dumps({"resources": [{"kind": COMPUTE}, {"kind": "http://unknown#kind"}]})
    assert (await call("POST", "/compute/", body, content_type="application/occi+json")).status == 400
    assert call.backend.changes == []


@pytest.mark.parametrize(
    "body",
    [
        "",
        "Category: nonsense",
        lines(COMPUTE_LINE, NETWORK_LINE),
        lines(COMPUTE_LINE, "X-OCCI-Attribute: no.such.thing=1"),
        lines(COMPUTE_LINE, 'X-OCCI-Attribute: occi.compute.cores="many"'),
        lines(COMPUTE_LINE, 'Category: none; scheme="http://none#"; class="mixin"'),
        "\x00\x01",
    ],
)
async def test_what_cannot_be_created_is_a_4xx_and_changes_nothing(call: Caller, body: str) -> None:
    response = await call("POST", "/compute/", body)
    assert 400 <= response.status < 500
    assert response.body.strip() and response.body.count(b"\n") == 1
    assert call.backend.changes == []


@pytest.mark.parametrize("count", [100, 101])
async def test_a_request_makes_so_many_and_no_more(call: Caller, count: int) -> None:
    body = batch(*(f"n{number}" for number in range(count)))
    response = await call("POST", "/compute/", body, content_type="application/occi+json")
    assert (response.status, len(call.backend.changes)) == ((201, count) if count <= 100 else (413, 0))
    link = f'Link: </network/n1>; rel="{INFRASTRUCTURE_SCHEME}network"; category="{NETWORKINTERFACE}"'
    call.backend.changes.clear()
    for method, path, kind in (("POST", "/compute/", COMPUTE_LINE), ("PUT", "/compute/x", COMPUTE_LINE)):
        response = await call(method, path, lines(kind, *([link] * count)))
        assert response.status == (201 if count <= 100 else 413), method
    assert (await call("POST", "/compute/c1", lines(*([link] * count)))).status == (200 if count <= 100 else 413)
    assert len(call.backend.changes) == (3 if count <= 100 else 0)


async def test_a_body_that_is_no_utf8_is_refused(call: Caller) -> None:
    assert (await call("POST", "/compute/", COMPUTE_LINE.encode() + b"\xff")).status == 400
    assert (
        await call("POST", "/compute/", lines(COMPUTE_LINE), content_type="text/plain; charset=utf-16")
    ).status == 400
    assert call.backend.changes == []


# Updates


async def test_post_changes_what_is_sent_and_put_everything(call: Caller) -> None:
    text = await call.text("POST", "/compute/c1", "X-OCCI-Attribute: occi.compute.cores=16")
    assert "occi.compute.cores=16" in text and 'occi.core.title="Worker 1"' in text
    again = await call.text("PUT", "/compute/c1", await call.text("GET", "/compute/c1"))
    assert again == text
    assert call.backend.changes == ["update /compute/c1", "replace /compute/c1"]
    assert await call.text("GET", "/compute/c1") == text


async def test_an_immutable_attribute_is_forbidden_and_nothing_changes(call: Caller) -> None:
    response = await call("POST", "/compute/c1", 'X-OCCI-Attribute: occi.compute.state="active"')
    assert (response.status, call.backend.changes) == (403, [])


async def test_put_creates_what_is_not_there_under_the_id_of_its_path(call: Caller) -> None:
    response = await call("PUT", "/compute/mine", lines(COMPUTE_LINE))
    assert response.status == 201 and dict(response.headers)["Location"] == f"{BASE}/compute/mine"
    assert (await call("PUT", "/compute/mine", lines(COMPUTE_LINE))).status == 200
    assert (await call("PUT", "/compute/%20", lines(COMPUTE_LINE))).status == 400
    assert (await call("PUT", "/compute/", lines(COMPUTE_LINE))).status == 405


# Deletion


async def test_delete_takes_one_or_all_of_a_kind_or_those_of_a_filter(call: Caller) -> None:
    response = await call("DELETE", "/compute/c1")
    assert (response.status, response.body) == (200, b"OK")
    assert (await call("GET", "/compute/c1")).status == 404
    call.backend.put(compute(3, **{"occi.compute.cores": 8}), network(2))
    await call.text("DELETE", "/compute/", x_occi_attribute="occi.compute.cores=8")
    assert sorted(call.backend.stored) == ["/compute/c2", "/network/n1", "/network/n2"]
    await call.text("DELETE", "/network/")
    assert sorted(call.backend.stored) == ["/compute/c2"]
    await call.text("DELETE", "/")
    assert call.backend.stored == {}
    await call.text("DELETE", "/")


# Actions


async def test_an_action_is_invoked_on_one_or_on_all(call: Caller) -> None:
    response = await call("POST", "/compute/c1?action=start", lines(START_LINE))
    assert (response.status, response.body) == (200, b"OK")
    await call.text("POST", "/compute/?action=start&wait=true", lines(START_LINE))
    assert call.backend.changes == ["start /compute/c1 {}", "start /compute/c1 /compute/c2 {} wait"]


async def test_the_result_of_an_action_is_rendered(call: Caller) -> None:
    call.backend.result = {"cloud4e.force": 1.5, "cloud4e.note": 'a "b"'}
    text = await call.text("POST", "/compute/c1?action=start", lines(START_LINE))
    assert text == lines("X-OCCI-Attribute: cloud4e.force=1.5", r'X-OCCI-Attribute: cloud4e.note="a \"b\""')
    body = await call.text("POST", "/compute/c1?action=start", lines(START_LINE), accept="application/json")
    assert json.loads(body) == {"action": START, "attributes": call.backend.result}
    response = await call("POST", "/compute/c1?action=start", lines(START_LINE), accept="text/occi")
    assert dict(response.headers)["X-OCCI-Attribute"] == r'cloud4e.force=1.5, cloud4e.note="a \"b\""'


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/compute/c1?action=stop", START_LINE),
        ("/compute/c1?action=start", COMPUTE_LINE),
        ("/compute/c1?action=fly", 'Category: fly; scheme="http://x#"; class="action"'),
        ("/network/n1?action=start", START_LINE),
        ("/?action=start", START_LINE),
        ("/compute/c1?action=start", lines(START_LINE, "X-OCCI-Attribute: unknown=1")),
        ("/compute/c1?action=", START_LINE),
        ("/compute/c1?action=stop", ""),
    ],
)
async def test_an_action_that_is_not_applicable_is_a_400(call: Caller, target: str, body: str) -> None:
    assert (await call("POST", target, body)).status == 400
    assert call.backend.changes == []


async def offer(call: Caller, parameters: str) -> None:
    """Return a compute with an action ``solve``."""
    solve = "http://cloud4e/fem/action#solve"
    mixin = f'Category: fem; scheme="http://cloud4e/fem#"; class="mixin"; location="/fem/"; actions="{solve}"'
    action = f'Category: solve; scheme="http://cloud4e/fem/action#"; class="action"; attributes="{parameters}"'
    await call.text("POST", "/-/", lines(mixin, action))
    call.backend.put(dataclasses.replace(compute(9), mixins=("http://cloud4e/fem#fem",), actions=(solve,)))


async def test_an_action_may_stand_in_the_query_alone(call: Caller) -> None:
    await offer(call, "cloud4e.load")
    await call.text("POST", "/compute/c9?action=solve&cloud4e.load=7")
    assert call.backend.changes[-1] == "solve /compute/c9 {'cloud4e.load': '7'}"


@pytest.mark.parametrize("in_body", [(), ("X-OCCI-Attribute: cloud4e.steps=2",)])
async def test_parameters_in_the_query_count_beside_a_category_in_the_body(
    call: Caller, in_body: tuple[str, ...]
) -> None:
    """Every ``trigger`` of Cloud4E's client has this form."""
    await offer(call, "cloud4e.load cloud4e.steps")
    body = lines('Category: solve; scheme="http://cloud4e/fem/action#"; class="action"', *in_body)
    for target in ("/compute/c9", "/fem/"):
        await call.text("POST", "/fem/", "X-OCCI-Location: /compute/c9")
        await call.text("POST", f"{target}?action=solve&cloud4e.load=7&wait=true", body)
        assert "'cloud4e.load': '7'" in call.backend.changes[-1] and "wait" in call.backend.changes[-1]
        assert ("'cloud4e.steps'" in call.backend.changes[-1]) == bool(in_body)
        for query in ("cloud4e.load=7&load=7", "cloud4e.steps=3"):
            assert (await call("POST", f"{target}?action=solve&{query}", body)).status == (
                400 if in_body or "&" in query else 200
            )


@pytest.mark.parametrize(
    ("query", "parameters"),
    [
        ("number=5&page=2&fresh=1", "{'number': '5', 'page': '2', 'fresh': '1'}"),
        ("number=5&wait=true", "{'number': '5'} wait"),
    ],
)
async def test_only_action_and_wait_are_no_parameters(call: Caller, query: str, parameters: str) -> None:
    await offer(call, "cloud4e.load number page fresh")
    await call.text("POST", f"/compute/c9?action=solve&{query}")
    assert call.backend.changes[-1] == f"solve /compute/c9 {parameters}"


async def test_a_wait_of_the_action_s_own_is_its_parameter_in_the_query_and_ours_beside_a_body(call: Caller) -> None:
    await offer(call, "wait")
    await call.text("POST", "/compute/c9?action=solve&wait=5")
    assert call.backend.changes[-1] == "solve /compute/c9 {'wait': '5'}"
    body = lines('Category: solve; scheme="http://cloud4e/fem/action#"; class="action"', 'X-OCCI-Attribute: wait="5"')
    await call.text("POST", "/compute/c9?action=solve&wait=true", body)
    assert call.backend.changes[-1] == "solve /compute/c9 {'wait': '5'} wait"


# Mixins


@pytest.mark.parametrize(
    ("method", "target", "body", "answered"),
    [
        ("POST", "/-/", TAG_LINE, ""),
        ("DELETE", "/-/", TAG_LINE, ""),
        ("POST", "/compute/c1?action=start", START_LINE, ""),
        ("POST", "/compute/c1", "X-OCCI-Attribute: occi.compute.cores=4", f"{BASE}/compute/c1"),
        ("PUT", "/compute/c1", lines(COMPUTE_LINE, "X-OCCI-Attribute: occi.compute.cores=4"), f"{BASE}/compute/c1"),
    ],
)
async def test_who_accepts_text_uri_list_alone_has_a_uri_or_nothing_for_an_answer(
    call: Caller, method: str, target: str, body: str, answered: str
) -> None:
    """Cloud4E's client sends this Accept with every POST, and reads the answer as one URI."""
    if method == "DELETE":
        await call.text("POST", "/-/", lines(TAG_LINE))
    assert (await call.text(method, target, lines(body), accept="text/uri-list")).removesuffix("\n") == answered


async def test_members_come_and_go_by_location(call: Caller) -> None:
    await call.text("POST", "/-/", lines(TAG_LINE))
    await call.text("POST", "/tag/", lines(f"X-OCCI-Location: {BASE}/compute/c1"))
    await call.text("POST", "/tag/", lines("X-OCCI-Location: /compute/c2"))
    assert (await call.text("GET", "/tag/")).count("/compute/") == 2
    await call.text("PUT", "/tag/", lines("X-OCCI-Location: /network/n1"))
    assert await call.text("GET", "/tag/", accept="text/uri-list") == f"{BASE}/network/n1\n"
    await call.text("DELETE", "/tag/", lines("X-OCCI-Location: /network/n1"))
    assert await call.text("GET", "/tag/") == ""
    assert (await call("POST", "/tag/", lines("X-OCCI-Location: /compute/none"))).status == 404
    assert (await call("POST", "/tag/", lines("X-OCCI-Location: http://elsewhere/compute/c1"))).status == 400
    assert (await call("POST", "/tag/", lines(COMPUTE_LINE))).status == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_members_may_be_named_as_listings_in_json_show_them(call: Caller, method: str) -> None:
    await call.text("POST", "/-/", lines(TAG_LINE))
    await call.text("POST", "/tag/", lines("X-OCCI-Location: /compute/c1"))
    body = await call.text("GET", "/compute/", accept="application/json", x_occi_attribute='occi.core.id="c1"')
    shown = json.loads(body)
    assert [item["id"] for item in shown["resources"]] == ["c1"]
    shown["resources"].append(shown["resources"][0] | {"id": "c2"})
    await call.text(method, "/tag/", json.dumps(shown), content_type="application/json")
    left = "" if method == "DELETE" else f"{BASE}/compute/c1\n{BASE}/compute/c2\n"
    assert await call.text("GET", "/tag/", accept="text/uri-list") == left


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (json.dumps({"resources": [{"kind": COMPUTE}, {"kind": COMPUTE}]}), "application/json"),
        (json.dumps({"resources": [{"kind": "http://unknown#kind", "id": "c1"}]}), "application/json"),
        (lines('X-OCCI-Attribute: occi.core.title="Worker 1"'), "text/plain"),
        (lines(TAG_LINE), "text/plain"),
    ],
)
async def test_a_request_that_says_not_which_members_changes_none(
    call: Caller, method: str, body: str, content_type: str
) -> None:
    await call.text("POST", "/-/", lines(TAG_LINE))
    await call.text("POST", "/tag/", lines("X-OCCI-Location: /compute/c1"))
    assert (await call(method, "/tag/", body, content_type=content_type)).status == 400
    assert await call.text("GET", "/tag/", accept="text/uri-list") == f"{BASE}/compute/c1\n"


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_without_a_word_a_mixin_is_emptied(call: Caller, method: str) -> None:
    await call.text("POST", "/-/", lines(TAG_LINE))
    await call.text("POST", "/tag/", lines("X-OCCI-Location: /compute/c1"))
    await call.text(method, "/tag/")
    assert await call.text("GET", "/tag/") == ""
