# SPDX-License-Identifier: Apache-2.0
"""Any message is understood or refused, and requests keep the same fingerprint in every delivery."""

from typing import Any

import pytest
from aiormq import spec
from hypothesis import given
from hypothesis import strategies as st
from pamqp import encode
from pamqp.header import ContentHeader

from simyard.frontend.amqp.messages import MAX_HEADER_BYTES, Envelope, build_message, read_request
from simyard.frontend.exchange import Identity, OcciResponse
from simyard.occi.errors import OcciError

BASE = "https://h:1"
ALICE, BOB = (Identity(name, "", (), ()) for name in ("alice", "bob"))
NAMES = st.sampled_from(["path_info", "accept", "auth", "X-AUTH-TOKEN", "CATEGORY", "X_OCCI_ATTRIBUTE", "LINK"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | TEXT | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
PATHS = TEXT.map("/".__add__) | st.sampled_from(["/compute/?a=b", "compute/1", f"{BASE}/-/", "/?action=%zz&&=&a"])
HEADERS = st.dictionaries(NAMES | TEXT, VALUES, max_size=6) | st.fixed_dictionaries(
    {"path_info": PATHS}, optional={"auth": VALUES, "accept": TEXT, "CATEGORY": TEXT | st.lists(TEXT, max_size=3)}
)


def properties(**given_ones: Any) -> spec.Basic.Properties:
    return spec.Basic.Properties(**({"message_type": "post", "headers": {"path_info": "/"}} | given_ones))


@given(
    st.none() | st.sampled_from(["get", "post", "PUT", "delete"]) | TEXT,
    st.none() | HEADERS,
    st.none() | TEXT,
    st.binary(max_size=50),
)
def test_every_message_is_understood_or_refused(
    method: str | None, headers: dict[str, Any] | None, message_id: str | None, body: bytes
) -> None:
    found = spec.Basic.Properties(message_type=method, headers=headers, message_id=message_id)
    envelope = Envelope.of(found)
    try:
        call = read_request(found, body, BASE)
    except OcciError as error:
        assert error.status in (400, 413)
        response = OcciResponse(error.status, error.message.encode(), "text/plain")
    else:
        assert call.path.startswith("/")
        assert all("\n" not in value for _, value in call.headers)
        assert bool(call.authenticate(ALICE, BASE).key) == (call.changes and bool(message_id))
        response = OcciResponse(200, b"", "text/plain")
    _, answer = build_message(envelope, response)
    ContentHeader(properties=answer).marshal()


@given(st.lists(st.tuples(st.sampled_from(["Category", "X-OCCI-Location", "Link", "Age", "Server"]), TEXT), max_size=5))
def test_a_response_fits_into_a_message_whatever_its_headers(headers: list[tuple[str, str]]) -> None:
    _, answer = build_message(Envelope("q", "1", "/", ""), OcciResponse(200, b"", "text/plain", tuple(headers)))
    assert answer.headers is not None
    assert len(encode.field_table(answer.headers)) < 2 * MAX_HEADER_BYTES
    assert "Server" not in answer.headers
    assert "is_error" not in answer.headers


def key(identity: Identity = ALICE, body: bytes = b"", **changes: Any) -> str:
    return read_request(properties(**changes), body, BASE).authenticate(identity, BASE).key


LONG = "0123456789abcdef"


def test_a_key_is_of_the_sender_the_message_id_and_the_content() -> None:
    keys = [
        key(message_id=LONG),
        key(BOB, message_id=LONG),
        key(message_id=LONG[::-1]),
        key(message_id=LONG, body=b"x"),
        key(message_id=LONG, message_type="put"),
        key(message_id=LONG, headers={"path_info": "/a"}),
        key(message_id=LONG, headers={"path_info": "/", "CATEGORY": "c"}),
    ]
    assert len(set(keys)) == len(keys)
    assert key(message_id=LONG, reply_to="a") == key(message_id=LONG, reply_to="b") == keys[0]


def test_a_counter_counts_for_one_reply_queue_only() -> None:
    assert key(message_id="1", reply_to="a") != key(message_id="1", reply_to="b")
    assert key(message_id="1", reply_to="a") == key(message_id="1", reply_to="a")


@pytest.mark.parametrize("changes", [{"message_type": "get", "message_id": LONG}, {"message_id": ""}, {}])
def test_what_changes_nothing_or_has_no_message_id_has_no_key(changes: dict[str, Any]) -> None:
    assert key(**changes) == ""


@pytest.mark.parametrize(
    ("path_info", "path", "query"),
    [
        ("compute/", "/compute/", {}),
        (f"{BASE}/compute/1", "/compute/1", {}),
        ("/a%2Fb?", "/a/b", {}),
        ("/?action=start&cloud4e.x=a+b&cloud4e.y=%3D", "/", {"action": "start", "cloud4e.x": "a b", "cloud4e.y": "="}),
        ("/?fresh", "/", {"fresh": ""}),
    ],
)
def test_path_info_is_read_as_a_path_and_a_query(path_info: str, path: str, query: dict[str, str]) -> None:
    call = read_request(properties(headers={"path_info": path_info}), b"", BASE)
    assert (call.path, call.query) == (path, query)


def test_entity_tags_and_conditions_on_them_have_a_place_in_messages() -> None:
    asked = read_request(properties(headers={"path_info": "/", "if_match": '"a-b"', "If-None-Match": "*"}), b"", BASE)
    request = asked.authenticate(ALICE, BASE)
    assert (request.get_header("if-match"), request.get_header("if-none-match")) == ('"a-b"', "*")
    envelope = Envelope.of(properties())
    _, answer = build_message(envelope, OcciResponse(304, b"", "text/plain", (("ETag", '"a-b"'),)))
    assert answer.headers == {"status_code": 304, "path_info": "/", "etag": '"a-b"'}


def test_the_token_is_the_password_or_a_header_of_its_own() -> None:
    for headers in ({"auth": {"type": "Basic", "username": "u", "password": "t"}}, {"x_auth_token": "t"}):
        assert read_request(properties(headers={"path_info": "/", **headers}), b"", BASE).token == "t"
