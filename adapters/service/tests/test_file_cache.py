# SPDX-License-Identifier: Apache-2.0
"""The cache of downloaded files: its limit, and the files that it must not remove."""

from pathlib import Path

from simyard_adapter.file_cache import FileCache, link_file

KIB = 1024


def address(number: int) -> str:
    return f"sha256:{number:064x}"


def add(cache: FileCache, number: int) -> Path:
    cache.choose_path(address(number)).write_bytes(bytes(KIB))
    return cache.add(address(number))


def test_the_file_that_was_not_used_for_the_longest_time_is_removed(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", max_bytes=2 * KIB)
    for number in range(2):
        add(cache, number)
    assert cache.find(address(0)) is not None
    add(cache, 2)
    assert [cache.find(address(number)) is not None for number in range(3)] == [True, False, True]


def test_the_beginning_of_a_download_is_not_removed(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, max_bytes=KIB)
    partial = tmp_path / f".{address(7)}.0123.part"
    partial.write_bytes(bytes(KIB))
    add(cache, 1)
    assert partial.exists()


def test_a_file_that_an_action_is_about_to_link_is_not_removed(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, max_bytes=KIB)
    held = add(cache, 1)
    with cache.holding(address(1)):
        add(cache, 2)
        assert held.exists()
    add(cache, 3)
    assert not held.exists()


def test_the_next_adapter_keeps_files_and_removes_unfinished_downloads(tmp_path: Path) -> None:
    complete = add(FileCache(tmp_path), 1)
    partial = tmp_path / f".{address(7)}.0123.part"
    partial.write_bytes(bytes(KIB))
    assert FileCache(tmp_path).find(address(1)) == complete
    assert not partial.exists()


def test_a_changed_file_is_not_found(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache")
    path = link_file(add(cache, 1), tmp_path / "inputs", "deck.inp")
    path.chmod(0o644)
    path.write_text("changed")
    assert cache.find(address(1)) is None
    assert not (tmp_path / "cache" / address(1)).exists()


def test_files_of_the_same_name_get_a_number(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache")
    paths = [link_file(add(cache, number), tmp_path / "inputs", "deck.inp") for number in (1, 2)]
    assert [path.name for path in paths] == ["deck.inp", "2-deck.inp"]
