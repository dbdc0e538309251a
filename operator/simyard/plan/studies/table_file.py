# SPDX-License-Identifier: Apache-2.0
"""Points of a study in a CSV file: its header has the names of parameters, and each line is a point."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence

from simyard.api.study import TableDesign
from simyard_adapter.declarations import InvalidValueError, Json, Value, ValueType

PATH = "spec.design.table.file"
MAX_FILE_BYTES = 4 * 1024 * 1024


def read_table_file(content: bytes, declared: Iterable[Value]) -> TableDesign:
    """Return the points in a file; the types of the cells are those of the declared parameters.

    Raises:
        InvalidValueError: the file is no table, or a cell has no value of the declared type.
    """
    kinds = {item.name: item.type for item in declared}
    try:
        lines = [line for line in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")) if line]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidValueError(PATH, f"cannot be read as CSV: {error}") from None
    if len(lines) < 2:
        raise InvalidValueError(PATH, "has no points: it needs a header, and a line for each point")
    columns = [name.strip() for name in lines[0]]
    rows = [_read_line(line, [kinds.get(name) for name in columns], number) for number, line in enumerate(lines[1:], 2)]
    return TableDesign.model_construct(columns=columns, rows=rows)


def _read_line(line: Sequence[str], kinds: Sequence[ValueType | None], number: int) -> list[Json]:
    if len(line) != len(kinds):
        raise InvalidValueError(PATH, f"line {number} has {len(line)} cells, but the header has {len(kinds)}")
    try:
        return [
            cell if kind in (ValueType.STRING, None) else json.loads(cell)
            for cell, kind in zip(line, kinds, strict=True)
        ]
    except json.JSONDecodeError:
        raise InvalidValueError(PATH, f"line {number} has a cell that is no value of its parameter's type") from None
