# SPDX-License-Identifier: Apache-2.0
"""Registrations of foreign adapters, translated into requests for the handlers."""

import json
from typing import Any

import pytest

from simyard.frontend.amqp.registration import accept_registrations
from simyard.frontend.exchange import Identity, OcciRequest, OcciResponse
from simyard.occi.errors import OcciError

ALICE = Identity("alice", "", (), ())
REGISTRATION = {
    "mixins": [{"term": "beam", "scheme": "http://cloud4e/", "location": "/beam/"}],
    "actions": [{"term": "solve", "scheme": "http://cloud4e/beam/action#"}],
    "links": [{"kind": "k", "id": "7", "source": {"location": "/compute/1"}}],
}


async def carried_out(document: Any, refuse: str = "", **other: Any) -> tuple[list[OcciRequest], OcciResponse]:
    """Return the requests that the handlers get for one request, and its response."""
    seen: list[OcciRequest] = []

    async def handle(request: OcciRequest) -> OcciResponse:
        seen.append(request)
        return OcciResponse(403 if request.path == refuse else 200, request.path.encode(), "text/plain")

    fields: dict[str, Any] = {
        "method": "POST", "path": "/amqplink/", "query": {}, "headers": (("content-type", "application/occi+json"),),
        "body": document if isinstance(document, bytes) else json.dumps(document).encode(),
        "identity": ALICE, "base": "https://h", "key": "k",
    }  # fmt: skip
    response = await accept_registrations(handle)(OcciRequest(**(fields | other)))
    return seen, response


async def test_one_message_registers_a_service() -> None:
    (define, link), response = await carried_out(REGISTRATION)
    assert (define.method, define.path) == ("POST", "/-/")
    assert json.loads(define.body) == {"mixins": REGISTRATION["mixins"], "actions": REGISTRATION["actions"]}
    assert (link.method, link.path) == ("PUT", "/amqplink/7")
    assert json.loads(link.body) == REGISTRATION["links"][0]
    assert len({define.key, link.key, "k"}) == 3
    assert response.body == b"/amqplink/7"


async def test_a_registration_ends_with_what_is_refused() -> None:
    seen, response = await carried_out(REGISTRATION, refuse="/-/")
    assert len(seen) == 1
    assert response.status == 403


LINK_ALONE = {"links": REGISTRATION["links"]}
JSON = (("content-type", "application/occi+json"),)


async def test_a_link_whose_id_is_there_is_replaced_and_answered_as_if_it_were_created() -> None:
    headers = (("content-type", "application/occi+json"), ("accept", "text/uri-list"))
    (asked, put), response = await carried_out(LINK_ALONE, headers=headers)
    assert (asked.method, asked.path) == ("GET", "/amqplink/7")
    assert (put.method, put.path, put.key) == ("PUT", "/amqplink/7", "k")
    assert put.get_header("accept") is None
    assert (response.status, response.body.strip()) == (200, b"https://h/amqplink/7")
    assert ("Location", "https://h/amqplink/7") in response.headers


@pytest.mark.parametrize("document", [LINK_ALONE, REGISTRATION])
@pytest.mark.parametrize(
    ("connects", "gets_another"),
    [(("/compute/0", "/t"), True), (("/compute/1", "/old"), True), (("/compute/1", "/t"), False)],
)
async def test_an_adapter_that_serves_another_compute_now_gets_another_link(
    document: Any, connects: tuple[str, str], gets_another: bool
) -> None:
    """The ends of a link are immutable (403), so the link is created anew."""
    link: list[tuple[str, str]] = [connects]
    seen: list[str] = []

    async def handle(request: OcciRequest) -> OcciResponse:
        seen.append(request.method)
        status, body = 200, b""
        if request.path == "/amqplink/7":
            if request.method == "GET":
                ends = {"source": {"location": link[0][0]}, "target": {"location": link[0][1]}} if link else {}
                status, body = (200, json.dumps(ends).encode()) if link else (404, b"")
            elif request.method == "DELETE":
                link.clear()
            else:
                status = 403 if link else 201
        return OcciResponse(status, body, "application/occi+json")

    links = [{**REGISTRATION["links"][0], "target": "/t"}]
    request = OcciRequest("POST", "/amqplink/", {}, JSON, json.dumps({**document, "links": links}).encode(), ALICE, "h")
    response = await accept_registrations(handle)(request)
    assert response.status in ((200, 201) if gets_another else (403,))
    assert ("DELETE" in seen) == gets_another


async def test_a_link_stays_when_the_other_compute_is_not_there() -> None:
    seen: list[str] = []

    async def handle(request: OcciRequest) -> OcciResponse:
        seen.append(f"{request.method} {request.path}")
        ends = {"source": {"location": "/compute/0"}, "target": {"location": "/t"}}
        status = {"GET /amqplink/7": 200, "PUT /amqplink/7": 403}.get(seen[-1], 404)
        return OcciResponse(status, json.dumps(ends).encode(), "application/occi+json")

    request = OcciRequest("POST", "/amqplink/", {}, JSON, json.dumps(LINK_ALONE).encode(), ALICE, "h")
    assert (await accept_registrations(handle)(request)).status == 403
    assert seen[-1] == "GET /compute/1" and not any(asked.startswith("DELETE") for asked in seen)


async def test_a_link_whose_id_is_not_there_is_created() -> None:
    seen, _ = await carried_out(LINK_ALONE, refuse="/amqplink/7")
    assert [(request.method, request.path) for request in seen] == [("GET", "/amqplink/7"), ("POST", "/amqplink/")]


async def test_nothing_is_replaced_when_the_answer_cannot_be_given() -> None:
    headers = (("content-type", "application/occi+json"), ("accept", "image/png"))
    with pytest.raises(OcciError) as refusal:
        await carried_out(LINK_ALONE, headers=headers)
    assert refusal.value.status == 406


@pytest.mark.parametrize(
    ("document", "other"),
    [
        (REGISTRATION | {"mixins": ["http://cloud4e/beam"]}, {}),
        (REGISTRATION | {"links": [{"kind": "k"}]}, {}),
        (REGISTRATION | {"links": [{"kind": "k", "id": "../7"}]}, {}),
        (REGISTRATION, {"path": "/compute/"}),
        (REGISTRATION, {"method": "PUT"}),
        (REGISTRATION, {"query": {"action": "solve"}}),
        (REGISTRATION, {"headers": ()}),
        (b"{", {}),
        ([REGISTRATION], {}),
    ],
)
async def test_every_other_request_is_left_as_it_is(document: Any, other: dict[str, Any]) -> None:
    seen, _ = await carried_out(document, **other)
    assert len(seen) == 1
    assert seen[0].key == "k"
