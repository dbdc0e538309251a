# SPDX-License-Identifier: Apache-2.0
"""URLs of files that the platform team allows or not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard_adapter.file_urls import AllowedUrls, describe_url

ALLOWED = AllowedUrls(("https://data.example.com/meshes/", "https://one.example:8443/decks/spring.inp"))


@pytest.mark.parametrize(
    "url",
    [
        "https://data.example.com/meshes/a.inp",
        "https://data.example.com/meshes",
        "https://data.example.com:443/meshes/a/b%20c.inp?version=3",
        "https://data.example.com:/meshes/..a;v=1/a.inp?path=%2e%2e%25",
        "https://DATA.example.com/meshes/",
        "https://one.example:8443/decks/spring.inp",
    ],
)
def test_urls_at_and_below_a_prefix_are_allowed(url: str) -> None:
    assert ALLOWED.find_problem(url) == ""


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://data.example.com/meshes/100%25", "%25 in its path"),
        ("http://data.example.com/meshes/a", "must be a URL that begins with https://"),
        ("ftp://data.example.com/meshes/a", "must be a URL that begins with https://"),
        ("https:///meshes/a", "must be a URL that begins with https://"),
        ("https://[::1/meshes/a", "must be a URL that begins with https://"),
        ("https://data.example.com:99999/meshes/a", "must be a URL that begins with https://"),
        ("https://data.example.com/meshes/a b", "must be a URL that begins with https://"),
        ("https://data.example.com/meshes/a\r\nHost: x", "must be a URL that begins with https://"),
        ("https://data.example.com/meshes/\u00e4", "must be a URL that begins with https://"),
        ("https://user:secret@data.example.com/meshes/a", "must have no user"),
        ("https://data.example.com@evil.example/meshes/a", "must have no user"),
        ("https://data.example.com/meshes/a#b", "must have no user, no password, no fragment"),
        ("https://data.example.com\\@evil.example/meshes/a", "must have no user"),
        ("https://data.example.com/meshes/../private", "must have no parts . or .. and"),
        ("https://data.example.com/meshes/%2e%2E/private", "must have no parts . or .. and"),
        ("https://data.example.com/meshes/%252e%252e%2fprivate", "must have no parts . or .. and"),
        ("https://data.example.com/meshes/..%5cprivate", "must have no parts . or .. and"),
        ("https://data.example.com/meshes/..;/private", "must have no parts . or .. and"),
        ("https://data.example.com/meshes/%2e%2e;a/private", "must have no parts . or .. and"),
        ("https://data.example.com/meshes/%2e%2e%3ba/private", "must have no parts . or .. and"),
        ("https://data.example.com/meshes/..%20/private", "must have no parts . or .. and"),
        ("https://data.example.com/meshes/..%00/private", "no control characters"),
        ("https://data.example.com/meshes/a%0d%0a", "no control characters"),
        ("https://data.example.com/meshes/%u002e%U002e/private", "%u or %25 in its path"),
        ("https://data.example.com:0/meshes/a", "must have a port of 1 to 65535"),
        ("https://data.example.com/" + "a" * 2048, "characters, at most 2048"),
        ("https://data.example.com/meshes2/a", "is not below a URL of files.urls (https://data.example.com/meshes/, "),
        ("https://data.example.com.evil.example/meshes/a", "is not below a URL of files.urls"),
        ("https://data.example.com:444/meshes/a", "is not below a URL of files.urls"),
        ("https://one.example:8443/decks/spring.inp2", "is not below a URL of files.urls"),
        ("https://one.example/decks/spring.inp", "is not below a URL of files.urls"),
    ],
)
def test_other_urls_are_refused_with_the_reason(url: str, problem: str) -> None:
    assert problem in ALLOWED.find_problem(url)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://user:secret@a.example/b?secret#secret", "https://a.example/b"),
        ("https://user:se@cret@a.example/b#secret", "https://a.example/b"),
        ("https:user:secret@a.example/b", "https:a.example/b"),
        ("//user:secret@a.example/b", "//a.example/b"),
        ("https://a.example:8443/b@c", "https://a.example:8443/b@c"),
    ],
)
def test_the_description_of_a_url_has_no_secret(url: str, text: str) -> None:
    assert describe_url(url) == text


def test_without_prefixes_no_url_is_allowed_and_the_setting_is_named() -> None:
    problem = AllowedUrls().find_problem("https://data.example.com/meshes/a")
    assert "this platform allows none" in problem
    assert "files.urls" in problem
    assert "kubectl simyard cp" in problem


@pytest.mark.parametrize("prefix", ["http://a/", "https://a/?x=1", "https://a/#b", "a", "https://", "https://a/../b"])
def test_a_prefix_that_is_no_such_url_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match=r"^files.urls: "):
        AllowedUrls((prefix,))


@pytest.mark.parametrize("value", ["https://a/", [1], ["http://a/"], {"a": 1}, ["https://a/"] * 101])
def test_prefixes_that_cannot_be_read_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^(urls|files.urls)"):
        AllowedUrls.from_json(value)


def test_prefixes_survive_their_json_form() -> None:
    assert AllowedUrls.from_json(ALLOWED.to_json()["urls"]) == ALLOWED
    assert AllowedUrls.from_json(AllowedUrls().to_json().get("urls")) == AllowedUrls()


@given(st.text())
def test_any_text_gets_an_answer(text: str) -> None:
    assert ALLOWED.find_problem(text)
    assert ALLOWED.find_problem("https://" + text)
