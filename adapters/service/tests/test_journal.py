# SPDX-License-Identifier: Apache-2.0
"""The journal of accepted invocations."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from simyard_adapter.errors import MachineError
from simyard_adapter.journal import Journal, JournalState

ALL = tuple(JournalState)


async def test_an_invocation_is_accepted_once_and_read_back_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    assert await journal.list_entries(*ALL) == []
    assert await journal.find("a") is None
    assert not path.exists()
    assert [await journal.accept(name, name.encode()) for name in ("b", "a", "b")] == [True, True, False]
    await journal.move("a", JournalState.STARTED)
    await journal.finish("b", b"result")
    journal.close()
    again = Journal(path)
    entries = await again.list_entries(*ALL)
    assert [(it.id, it.state, it.request, it.result) for it in entries] == [
        ("b", JournalState.FINISHED, b"", b"result"),
        ("a", JournalState.STARTED, b"a", b""),
    ]
    again.close()


async def test_only_the_last_confirmed_results_are_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", max_confirmed=2)
    for name in "abcde":
        await journal.accept(name, b"")
        await journal.finish(name, b"")
    for name in "acdb":
        await journal.confirm(name)
    assert [(it.id, it.state) for it in await journal.list_entries(*ALL)] == [
        ("c", JournalState.CONFIRMED),
        ("d", JournalState.CONFIRMED),
        ("e", JournalState.FINISHED),
    ]
    journal.close()


async def test_two_adapters_cannot_share_a_directory(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    await journal.accept("a", b"")
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('SELECT * FROM invocations')"
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(tmp_path / "journal"), stderr=subprocess.PIPE
    )
    assert b"database is locked" in (await other.communicate())[1]
    journal.close()


async def test_a_file_that_is_no_journal_is_a_machine_error(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("not a database, but long enough to look at" * 100)
    with pytest.raises(MachineError, match="file is not a database"):
        await Journal(tmp_path / "journal").list_entries(*ALL)
