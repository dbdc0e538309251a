# SPDX-License-Identifier: Apache-2.0
"""References to files."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard_adapter.declarations import (
    InvalidValueError,
    InvalidValuesError,
    Json,
    Value,
    ValueType,
    check_values,
)
from simyard_adapter.file_urls import AllowedUrls
from simyard_adapter.file_values import FileReference, is_name

ADDRESS = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        (ADDRESS, "p", "must be an object"),
        ({}, "p.file", "must be the address"),
        ({"file": "sha256:0"}, "p.file", "must be the address"),
        ({"file": ADDRESS, "link": "http://x"}, "p", "unknown field 'link'"),
        ({"file": ADDRESS, "url": "https://x/"}, "p.url", "cannot be together with file"),
        ({"url": 3}, "p.url", "must be a text"),
        ({"url": "https://x/"}, "p.url", "is accepted in parameters of actions only"),
        ({"file": ADDRESS, "name": "../x"}, "p.name", "relative path"),
        ({"file": ADDRESS, "name": "/etc/passwd"}, "p.name", "relative path"),
        ({"file": ADDRESS, "name": "a\nb"}, "p.name", "relative path"),
        ({"file": ADDRESS, "bytes": -1}, "p.bytes", "must be an integer"),
        ({"file": ADDRESS, "bytes": True}, "p.bytes", "must be an integer"),
        ({"file": ADDRESS, "bytes": 11}, "p", "has 11 bytes, at most 10 are accepted"),
        ({"file": ADDRESS, "mediaType": "text"}, "p.mediaType", "media type"),
    ],
)
def test_a_wrong_reference_is_refused_with_its_field(value: Json, path: str, problem: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        Value("p", ValueType.FILE, max_bytes=10).check(value, "p")
    assert caught.value.path == path
    assert problem in caught.value.problem


def test_a_url_is_accepted_where_it_is_allowed() -> None:
    allowed, value = AllowedUrls(("https://x/",)), {"url": "https://x/deck.inp", "name": "mesh.inp"}
    declared = [Value("p", ValueType.FILE), Value("q", ValueType.ARRAY, items=ValueType.FILE)]
    given = {"p": value, "q": [value]}
    assert check_values(given, declared, "parameters", urls=allowed) == given
    with pytest.raises(InvalidValuesError) as caught:
        check_values(given, declared, "parameters", urls=AllowedUrls(("https://y/",)))
    assert [error.path for error in caught.value.errors] == ["parameters.p.url", "parameters.q[0].url"]
    with pytest.raises(InvalidValuesError, match=r"parameters.p.url: is accepted in parameters of actions only"):
        check_values(given, declared, "parameters")


def test_each_file_of_an_array_is_checked() -> None:
    declared = Value("p", ValueType.ARRAY, items=ValueType.FILE)
    assert declared.check([{"file": ADDRESS}], "p") == [{"file": ADDRESS}]
    with pytest.raises(InvalidValueError) as caught:
        declared.check([{"file": ADDRESS}, {"file": "x"}], "p")
    assert caught.value.path == "p[1].file"


def test_a_declaration_of_a_file_survives_its_json_form() -> None:
    for declared in (
        Value("p", ValueType.FILE, media_type="text/plain", max_bytes=10),
        Value("p", ValueType.ARRAY, items=ValueType.FILE),
    ):
        assert Value.from_json(declared.to_json()) == declared


@given(st.text(max_size=300))
def test_a_name_never_leads_out_of_its_folder(name: str) -> None:
    if name and is_name(name):
        path = Path("/folder") / name
        assert Path(os.path.normpath(path)).is_relative_to("/folder")
        assert FileReference.from_json({"file": ADDRESS, "name": name}).name == name
