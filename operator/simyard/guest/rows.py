# SPDX-License-Identifier: Apache-2.0
"""Rows of a chunk of a study, as a worker has stored them: compressed CSV, whose size is bounded."""

from __future__ import annotations

import csv
import io
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simyard.guest.reading import Refusal, RefusedError
from simyard.guest.text import make_printable_line
from simyard_adapter.chunks import PARAMETER, RESULT

MAX_BYTES = 64 * 1024 * 1024
"""Limit of the rows of a chunk; a chunk has at most 1,000 rows of 32 KiB and their errors."""
MAX_CELL_CHARACTERS = 63


@dataclass(frozen=True, slots=True)
class TaskRow:
    """The end of a task.

    Attributes:
        parameters: the parameters that vary, as text of at most ``MAX_CELL_CHARACTERS``.
        results: the numbers that were asked for; None if the task failed, or if one of them is missing.
    """

    parameters: Mapping[str, str]
    results: tuple[float, ...] | None


def read_rows(content: bytes, names: Sequence[str]) -> dict[int, TaskRow]:
    """Return the rows of a chunk by the index of their task, with the results ``names``.

    Raises:
        RefusedError: the content is no table of rows, or it is too long.
    """
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        text = unpacker.decompress(content, MAX_BYTES)
        if not unpacker.eof:
            raise RefusedError(Refusal.INVALID, f"the rows of a chunk are cut, or have more than {MAX_BYTES} bytes")
        table = csv.DictReader(io.StringIO(text.decode(), newline=""))
        return {int(row["index"]): _read_row(row, names) for row in table}
    except (zlib.error, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise RefusedError(Refusal.INVALID, f"the rows of a chunk cannot be read: {error!r}") from None


def _read_row(row: Mapping[str, str], names: Sequence[str]) -> TaskRow:
    parameters = {
        name.removeprefix(PARAMETER): make_printable_line(text, MAX_CELL_CHARACTERS)
        for name, text in row.items()
        if name is not None and name.startswith(PARAMETER)
    }
    values = [_read_number(row.get(RESULT + name)) for name in names]
    numbers = tuple(value for value in values if value is not None)
    complete = not row["reason"] and len(numbers) == len(names)
    return TaskRow(parameters, numbers if complete else None)


def _read_number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
