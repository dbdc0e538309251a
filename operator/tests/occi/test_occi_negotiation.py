# SPDX-License-Identifier: Apache-2.0
"""Negotiation of the renderings of requests and responses (section 8)."""

from __future__ import annotations

import pytest

from simyard.occi.errors import OcciError
from simyard.occi.negotiation import Rendering, choose_rendering, read_charset, read_content_type

PLAIN, JSON, OCCI, URIS = Rendering.TEXT_PLAIN, Rendering.JSON, Rendering.TEXT_OCCI, Rendering.URI_LIST


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, PLAIN),
        ("", PLAIN),
        ("*/*", PLAIN),
        ("*", PLAIN),
        ("text/*", PLAIN),
        ("text/plain", PLAIN),
        ("text/occi+plain", PLAIN),
        ("TEXT/Plain; charset=utf-8", PLAIN),
        ("text/occi", OCCI),
        ("text/uri-list", URIS),
        ("application/occi+json", JSON),
        ("application/json", JSON),
        ("application/*", JSON),
        ("text/occi, text/plain", PLAIN),
        ("application/occi+json, text/plain", PLAIN),
        ("application/occi+json;q=0.9, text/plain;q=0.8", JSON),
        ("text/plain;q=0.5, application/json", JSON),
        ("text/plain ; q=0.2 , text/occi;q=0.3", OCCI),
        ("*/*, application/occi+json", JSON),
        ("text/*, text/uri-list", URIS),
        ("*/*;q=0.1, text/uri-list;q=0.1", URIS),
        ("text/plain;q=0, */*", JSON),
        ("text/*;q=0, */*", JSON),
        ("image/png, text/occi;q=0.1", OCCI),
        ("text/html, application/xhtml+xml, application/xml;q=0.9, */*;q=0.8", PLAIN),
        ("text/plain;q=2, text/occi;q=0.1", PLAIN),
        ("text/plain; q=foo", PLAIN),
        ("text/occi; q=foo, text/plain; q=0.9", OCCI),
        (", ,text/occi", OCCI),
    ],
)
def test_the_best_rendering_is_chosen(accept: str | None, chosen: Rendering) -> None:
    assert choose_rendering(accept) is chosen


def test_only_what_is_offered_is_chosen() -> None:
    assert choose_rendering("*/*", [JSON, OCCI]) is JSON
    assert choose_rendering("text/uri-list, application/json;q=0.1", [PLAIN, JSON]) is JSON


@pytest.mark.parametrize("accept", ["image/png", "text/plain;q=0", "*/*;q=0", "x" * 5000])
def test_what_cannot_be_met_is_406(accept: str) -> None:
    with pytest.raises(OcciError) as caught:
        choose_rendering(accept)
    assert caught.value.status == 406
    assert "text/uri-list" in caught.value.message


@pytest.mark.parametrize(
    ("header", "rendering"),
    [
        (None, PLAIN),
        ("", PLAIN),
        ("text/plain", PLAIN),
        ("text/plain,text/occi", PLAIN),
        ("text/plain; charset=UTF-8", PLAIN),
        ('text/plain; charset="utf-8"', PLAIN),
        ("text/plain; charset=ISO-8859-1", PLAIN),
        ("text/occi", OCCI),
        ("text/occi+plain", PLAIN),
        ("text/uri-list", URIS),
        ("application/json;charset=utf8", JSON),
    ],
)
def test_a_body_is_what_its_content_type_says(header: str | None, rendering: Rendering) -> None:
    assert read_content_type(header) is rendering


@pytest.mark.parametrize(
    "header", ["application/xml", "application/x-www-form-urlencoded", "text/plain; charset=utf-16", "*/*"]
)
def test_another_content_type_or_charset_is_400(header: str) -> None:
    with pytest.raises(OcciError, match="Content-Type: ") as caught:
        read_content_type(header)
    assert caught.value.status == 400


def test_the_charset_of_a_body() -> None:
    assert read_charset(None) == read_charset("text/plain") == read_charset("text/plain;charset=us-ascii") == "utf-8"
    assert read_charset("text/plain; charset=iso-8859-1") == "iso-8859-1"
