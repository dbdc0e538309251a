# SPDX-License-Identifier: Apache-2.0
"""The journal of the Async invocations that a worker has accepted: none is lost, and none runs twice.

An invocation is *waiting* when it is accepted, *started* before it runs, *finished* with its result, and *confirmed*
when the broker has confirmed the result. Each step is one synchronous commit of SQLite. The file is locked, so two
adapters cannot share a directory.
"""

from __future__ import annotations

import asyncio
import enum
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional, TypeVar

from simyard_adapter.errors import MachineError

T = TypeVar("T")

MAX_CONFIRMED = 500
"""Limit of the confirmed results that are kept to answer duplicates of a request."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS invocations (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, state TEXT NOT NULL, request BLOB, result BLOB)
"""


class JournalState(str, enum.Enum):
    """The state of an invocation in the journal."""

    WAITING = "waiting"
    STARTED = "started"
    FINISHED = "finished"
    CONFIRMED = "confirmed"


@dataclass(frozen=True)
class Entry:
    """An accepted invocation: ``request`` and ``result`` are the bodies of these messages."""

    id: str
    state: JournalState
    request: bytes
    result: bytes


class Journal:
    """The journal file, which is created at its first use. Calls run one after another, in a thread.

    Raises:
        MachineError: The file cannot be used; any call may raise this.
    """

    def __init__(self, path: Path, max_confirmed: int = MAX_CONFIRMED) -> None:
        self._path = path
        self._max_confirmed = max_confirmed
        self._lock = threading.Lock()
        self._database: Optional[sqlite3.Connection] = None

    async def list_entries(self, *states: JournalState) -> list[Entry]:
        """Return the invocations in any of these states, oldest first."""
        marks = ",".join("?" * len(states))
        return await self._select(f"state IN ({marks})", [state.value for state in states])

    async def find(self, invocation: str) -> Optional[Entry]:
        """Return the invocation with this id, or None if it was not accepted."""
        found = await self._select("id = ?", [invocation])
        return found[0] if found else None

    async def accept(self, invocation: str, request: bytes) -> bool:
        """Add an invocation as waiting; return False if the journal has it already."""
        added = await self._call(
            lambda database: (
                database.execute(
                    "INSERT OR IGNORE INTO invocations (id, state, request) VALUES (?, ?, ?)",
                    (invocation, JournalState.WAITING.value, request),
                ).rowcount
            )
        )
        return added > 0

    async def move(self, invocation: str, state: JournalState) -> None:
        """Change the state of an invocation."""
        await self._call(
            lambda database: database.execute(
                "UPDATE invocations SET state = ? WHERE id = ?", (state.value, invocation)
            )
        )

    async def finish(self, invocation: str, result: bytes) -> None:
        """Store the result of an invocation and delete its request."""
        await self._call(
            lambda database: database.execute(
                "UPDATE invocations SET state = ?, result = ?, request = NULL WHERE id = ?",
                (JournalState.FINISHED.value, result, invocation),
            )
        )

    async def confirm(self, invocation: str) -> None:
        """Record that the broker has the result, and delete the oldest confirmed invocations beyond the limit."""
        await self.move(invocation, JournalState.CONFIRMED)
        await self._call(
            lambda database: database.execute(
                "DELETE FROM invocations WHERE state = ? AND number <= "
                "(SELECT number FROM invocations WHERE state = ? ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (JournalState.CONFIRMED.value, JournalState.CONFIRMED.value, self._max_confirmed),
            )
        )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    async def _select(self, condition: str, values: list[str]) -> list[Entry]:
        if self._database is None and not self._path.exists():
            return []
        query = f"SELECT id, state, request, result FROM invocations WHERE {condition} ORDER BY number"  # noqa: S608
        rows = await self._call(lambda database: database.execute(query, values).fetchall())
        return [Entry(row[0], JournalState(row[1]), row[2] or b"", row[3] or b"") for row in rows]

    async def _call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            with self._lock:
                try:
                    if self._database is None:
                        self._database = self._open()
                    return function(self._database)
                except sqlite3.Error as error:
                    raise MachineError(f"cannot use the journal {self._path}: {error}") from error

        return await asyncio.get_running_loop().run_in_executor(None, run)

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=5, isolation_level=None, check_same_thread=False)
        try:
            for statement in (
                "PRAGMA locking_mode = EXCLUSIVE",
                "PRAGMA journal_mode = WAL",
                "PRAGMA synchronous = FULL",
                _SCHEMA,
            ):
                database.execute(statement)
        except sqlite3.Error:
            database.close()
            raise
        return database
