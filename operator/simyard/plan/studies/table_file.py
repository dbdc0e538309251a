# SPDX-License-Identifier: Apache-2.0
"""Points of a study in a CSV file: its header has the names of parameters, and each line is a point."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence

from simyard.api.study import TableDesign
from simyard_adapter.declarations import InvalidValueError, Json, Value, ValueType

PATH = "spec.design.table.file"
MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_FILE_ROWS = 100_000
"""Maximum number of points. A file of short lines within its limit of bytes would take hundreds of MiB of memory."""


def read_table_file(content: bytes, declared: Iterable[Value]) -> TableDesign:
    """Return the points in a file; the types of the cells are those of the declared parameters.

    Raises:
        InvalidValueError: the file is no table, has too many points, or a cell has no value of the declared type.
    """
    kinds = {item.name: item.type for item in declared}
    columns: list[str] | None = None
    rows: list[list[Json]] = []
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        for line in reader:
            if not line:
                continue
            if columns is None:
                columns = [name.strip() for name in line]
                continue
            if len(rows) == MAX_FILE_ROWS:
                problem = f"line {reader.line_num}: the file has more than {MAX_FILE_ROWS:,} points: use several files"
                raise InvalidValueError(PATH, problem)
            rows.append(_read_line(line, columns, kinds, reader.line_num))
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidValueError(PATH, f"cannot be read as CSV: {error}") from None
    if columns is None or not rows:
        raise InvalidValueError(PATH, "has no points: it needs a header, and a line for each point")
    return TableDesign.model_construct(columns=columns, rows=rows)


def _read_line(line: Sequence[str], columns: Sequence[str], kinds: Mapping[str, ValueType], number: int) -> list[Json]:
    if len(line) != len(columns):
        raise InvalidValueError(PATH, f"line {number} has {len(line)} cells, but the header has {len(columns)}")
    return [_read_cell(cell, kinds.get(name), number, name) for cell, name in zip(line, columns, strict=True)]


def _read_cell(cell: str, kind: ValueType | None, number: int, column: str) -> Json:
    if kind in (ValueType.STRING, None):
        return cell
    try:
        value: Json = json.loads(cell)
    except (ValueError, RecursionError):  # a number with too many digits, or brackets that are nested too deeply
        problem = f"line {number}, column {column}: the cell is no value of its parameter's type"
        raise InvalidValueError(PATH, problem) from None
    return value
