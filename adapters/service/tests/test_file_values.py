# SPDX-License-Identifier: Apache-2.0
"""References to files, and the cache of downloaded files."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard_adapter.declarations import InvalidValueError, Json, Value, ValueType
from simyard_adapter.file_cache import FileCache, link_file
from simyard_adapter.file_values import FileReference, is_name

ADDRESS = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        (ADDRESS, "p", "must be an object"),
        ({}, "p.file", "must be the address"),
        ({"file": "sha256:0"}, "p.file", "must be the address"),
        ({"file": ADDRESS, "url": "http://x"}, "p", "unknown field 'url'"),
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


def fill(cache: FileCache, address: str, content: str) -> Path:
    cache.choose_path(address).write_text(content)
    return cache.add(address)


def test_the_cache_removes_the_files_that_were_used_least_recently(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "files", max_bytes=20)
    for address in "abc":
        fill(cache, address, "x" * 8)
        cache.find("a")
    assert [address for address in "abc" if cache.find(address)] == ["a", "c"]


def test_a_changed_file_is_not_served_again(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "files")
    path = link_file(fill(cache, "a", "content"), tmp_path / "inputs", "deck.inp")
    path.chmod(0o644)
    path.write_text("changed")
    assert cache.find("a") is None
    assert cache.find("a") is None


def test_files_of_the_same_name_get_a_number(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "files")
    paths = [link_file(fill(cache, address, address), tmp_path / "inputs", "deck.inp") for address in "ab"]
    assert [path.name for path in paths] == ["deck.inp", "2-deck.inp"]
    assert [path.read_text() for path in paths] == ["a", "b"]
