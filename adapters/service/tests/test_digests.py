# SPDX-License-Identifier: Apache-2.0
"""The digest of a file on disk, and of a content that arrives in blocks."""

import os
from pathlib import Path

import pytest

from simyard_adapter.digests import BLOCK_BYTES, PART_BYTES, Digester, digest_file, read_blocks


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + BLOCK_BYTES])
def test_a_file_has_the_digest_of_its_blocks(tmp_path: Path, size: int) -> None:
    path = tmp_path / "mesh"
    with path.open("wb") as file:
        file.truncate(size)
        for offset in range(0, size, PART_BYTES):
            file.seek(offset)
            file.write(os.urandom(min(1000, size - offset)))
    digester = Digester()
    with path.open("rb") as file:
        for block in read_blocks(file):
            digester.update(block)
    seen: list[int] = []
    digest = digest_file(path, seen.append)
    assert digest == digester.finish()
    assert sum(seen) == digest.size == size


def test_a_digest_that_is_cancelled_reads_no_further_part(tmp_path: Path) -> None:
    path = tmp_path / "mesh"
    with path.open("wb") as file:
        file.truncate(100 * PART_BYTES)
    seen: list[int] = []

    def cancel(size: int) -> None:
        seen.append(size)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        digest_file(path, cancel)
    assert len(seen) < 100
