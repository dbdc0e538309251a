# SPDX-License-Identifier: Apache-2.0
"""The rows of a chunk on the worker's disk: a restarted adapter goes on after the last one.

Each line of the file is a JSON array. A row is written when its task has ended. A task that must not run twice first
leaves a mark, its index alone. The mark is on the disk before the task begins, so a mark without a row is a task that
was interrupted. A line that a crash has cut is no row: its task is run again, or counts as interrupted by its mark.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from pathlib import Path
from typing import BinaryIO, Optional

from simyard_adapter.chunks import ChunkRequest, Row, Summary, list_columns, make_cells
from simyard_adapter.errors import MachineError

_encode = json.JSONEncoder(separators=(",", ":")).encode


class RowFile:
    """The file with the rows of one chunk; it exists from the first row on.

    Attributes:
        rows: The number of rows.

    Raises:
        MachineError: The disk cannot be used; any call may raise this.
    """

    def __init__(self, path: Path, first: int) -> None:
        """Open the rows of a chunk whose first task has the index ``first``; a line that was cut is removed."""
        self.rows = 0
        self._path = path
        self._first = first
        self._file: Optional[BinaryIO] = None
        self._marked = -1
        whole = 0
        try:
            if path.exists():
                with path.open("rb") as file:
                    for line in file:
                        if not line.endswith(b"\n"):
                            break
                        whole += len(line)
                        self._count(json.loads(line))
                os.truncate(path, whole)
        except (OSError, ValueError) as error:
            raise MachineError(f"cannot use the rows of a chunk in {path}: {error}") from error

    def _count(self, line: "list[object]") -> None:
        if len(line) == 1:
            self._marked = int(str(line[0]))
        else:
            self.rows += 1

    @property
    def interrupted(self) -> bool:
        """True if the next task was begun, must not run twice, and has no row."""
        return self._marked == self._first + self.rows

    def mark_begin(self, index: int) -> None:
        """Record, on the disk, that a task begins that must not run twice."""
        self._write([index], sync=True)
        self._marked = index

    def add(self, row: Row) -> None:
        """Add the row of a task."""
        self._write(row.to_json())
        self.rows += 1

    def pack(self, request: ChunkRequest, worker: str) -> tuple[Path, Summary]:
        """Write the table of all rows as compressed CSV; return its file and the summary of the rows."""
        packed, summary = self._path.with_suffix(".csv.gz"), Summary(request.watched)
        results = [item.name for item in request.action.result]
        try:
            with (
                self._path.open("rb") as file,
                gzip.open(packed, "wt", encoding="utf-8", errors="replace", newline="") as text,
            ):
                table = csv.writer(text, lineterminator="\n")
                table.writerow(list_columns(request.names, results))
                for line in map(json.loads, file):
                    if len(line) > 1:
                        row = Row.from_json(line)
                        summary.add(row)
                        table.writerow(make_cells(row, request.points[row.index - request.first], results, worker))
        except OSError as error:
            raise MachineError(f"cannot write the table of a chunk to {packed}: {error}") from error
        return packed, summary

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Delete the rows and their table."""
        self.close()
        for path in (self._path, self._path.with_suffix(".csv.gz")):
            path.unlink(missing_ok=True)

    def _write(self, line: "list[object]", *, sync: bool = False) -> None:
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("ab", buffering=0)
            self._file.write(_encode(line).encode() + b"\n")
            if sync:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise MachineError(f"cannot write the rows of a chunk to {self._path}: {error}") from error
