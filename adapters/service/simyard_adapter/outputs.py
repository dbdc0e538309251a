# SPDX-License-Identifier: Apache-2.0
"""Rules that find the fields of a result in the output of a program, and the conversion of text to values.

An output can be larger than the memory. A column is read line by line, and a pattern is searched in the end of the
output. JSON is read as a whole, so it has a limit. A rule never takes a part of an output for the whole of it: it fails
instead, with the name of the field and the limit.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, Iterable, Iterator, Mapping, Optional

from simyard_adapter.declarations import InvalidValueError, Json, Value, ValueType
from simyard_adapter.errors import ActionError
from simyard_adapter.limits import MAX_RESULT_BYTES, MIB
from simyard_adapter.programs import MAX_OUTPUT_CHARACTERS

MAX_SEARCHED_CHARACTERS = MAX_OUTPUT_CHARACTERS
"""The characters at the end of an output in which patterns are searched; of a file, the bytes."""
MAX_JSON_CHARACTERS = 16 * MIB
"""Limit of a JSON document: once parsed, it can take ten times as much memory."""
MAX_LINE_CHARACTERS = MIB
"""Limit of a line of a table."""
_DIGITS = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class ResultRule:
    """The rule for one field of the result. At most one of ``pattern``, ``json`` and ``column`` is set.

    Attributes:
        name: The name of the field.
        file: The file in the scratch directory that has the value; the standard output if it is empty.
        folder: The folder in the scratch directory whose files are the value.
        pattern: A regular expression, whose first group is the value.
        json: A JSON Pointer (RFC 6901) to the value; the empty pointer is the whole document.
        column: The name of the column of a CSV table whose cells are the value.
    """

    name: str
    file: str = ""
    folder: str = ""
    pattern: "Optional[re.Pattern[str]]" = None
    json: Optional[str] = None
    column: str = ""

    @property
    def problem_if_absent(self) -> str:
        """The error text if the program's output has no value for the field."""
        where = self.file or "the output"
        if self.pattern is not None:
            return f"{where} has no match for the pattern {self.pattern.pattern}"
        return f"{where} has no column {self.column}" if self.column else f"{where} has no value at {self.json}"


def find_rule_problem(rule: ResultRule, declared: Value) -> str:
    """Return the reason why a rule cannot give a value of the declared type, or an empty text."""
    ways = sum((rule.pattern is not None, rule.json is not None, bool(rule.column)))
    if declared.holds_files:
        if ways:
            return "pattern, json and column are not for files: set only file, or folder for an array"
        if declared.type is ValueType.FILE and (rule.folder or not rule.file):
            return "a result of the type file needs file"
        if declared.type is ValueType.ARRAY and bool(rule.file) == bool(rule.folder):
            return "an array of files needs either folder or file"
        return ""
    if rule.folder:
        return "folder is only for arrays of files"
    if ways != 1:
        return "set exactly one of pattern, json and column"
    if rule.column and declared.type is not ValueType.ARRAY:
        return f"column is only for the type array, and {declared.name} has the type {declared.type.value}"
    if rule.json and not rule.json.startswith("/"):
        return "json must be a JSON Pointer (RFC 6901), such as /stress/max"
    return ""


def convert_output(text: str, declared: Value) -> Json:
    """Convert a piece of a program's output to the declared type.

    Raises:
        ActionError: The text is not a value of this type.
    """
    try:
        return declared.check(_READ[declared.type](text), declared.name)
    except InvalidValueError as error:
        raise ActionError(f"the program's result is invalid: {error}") from None
    except (ValueError, KeyError, RecursionError):
        raise ActionError(
            f"{declared.name}: the program's output {text[:60]!r} is not of type {declared.type.value}"
        ) from None


class Output:
    """An output of a program that rules read: a file, or the kept end of a stream.

    Attributes:
        label: The name of the output for errors.
    """

    def __init__(self, label: str, text: str = "", path: Optional[Path] = None, *, cut: bool = False) -> None:
        """Create the output of a stream or, with ``path``, of a file.

        ``text`` is the end of the stream, and ``cut`` says that it lacks the beginning.
        """
        self.label = label
        self._text = text
        self._path = path
        self._cut = cut

    def read_end(self) -> tuple[str, bool]:
        """Return the last :data:`MAX_SEARCHED_CHARACTERS`, and True if the output has more than these.

        Raises:
            OSError: The file cannot be read.
        """
        if self._path is None:
            return self._text, self._cut
        with self._path.open("rb") as file:
            start = max(0, file.seek(0, io.SEEK_END) - MAX_SEARCHED_CHARACTERS)
            file.seek(start)
            return file.read(MAX_SEARCHED_CHARACTERS).decode(errors="replace"), start > 0

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[str]]:
        """Open the whole output.

        Raises:
            OSError: The file cannot be read.
            ValueError: The beginning of the stream is lost.
        """
        if self._cut:
            raise ValueError(
                f"its beginning is lost, because the last {MAX_OUTPUT_CHARACTERS} characters of a stream are kept: let"
                " the program write a file"
            )
        if self._path is None:
            yield io.StringIO(self._text, newline="")
            return
        with self._path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            yield file


def _read_lines(file: IO[str]) -> Iterator[str]:
    while line := file.readline(MAX_LINE_CHARACTERS + 1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise ValueError(f"a line has more than {MAX_LINE_CHARACTERS} characters")
        yield line


def find_result(output: Output, rule: ResultRule, declared: Value) -> Json:
    """Return the value that a rule finds in an output, or None if it finds none.

    Raises:
        ActionError: The output is too large, or no JSON or table, or the value does not fit the declaration.
    """
    try:
        if rule.pattern is not None:
            return _find_match(output, rule.pattern, declared)
        value = _find_json(output, rule.json) if rule.json is not None else _find_column(output, rule.column)
        return None if value is None else declared.check(value, declared.name)
    except InvalidValueError as error:
        raise ActionError(f"the program's result is invalid: {error}") from None
    except FileNotFoundError:
        raise ActionError(f"the program did not write the file {output.label}") from None
    except OSError as error:
        raise ActionError(f"{declared.name}: {output.label} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError, csv.Error) as error:
        raise ActionError(f"{declared.name}: {output.label} cannot be read: {error}") from None


def find_match(text: str, pattern: "re.Pattern[str]") -> Optional[str]:
    """Return the first group of the first match, or None if there is no match or the match is without the group."""
    match = pattern.search(text)
    return None if match is None else match[1]


def _find_match(output: Output, pattern: "re.Pattern[str]", declared: Value) -> Json:
    text, cut = output.read_end()
    found = find_match(text, pattern)
    if found is None and cut:
        raise ValueError(
            f"its last {MAX_SEARCHED_CHARACTERS} characters have no match for the pattern {pattern.pattern}, and no"
            " others are searched"
        )
    return None if found is None else convert_output(found, declared)


def _find_json(output: Output, pointer: str) -> Json:
    with output.open() as file:
        text = file.read(MAX_JSON_CHARACTERS + 1)
    if len(text) > MAX_JSON_CHARACTERS:
        raise ValueError(f"it has more than {MAX_JSON_CHARACTERS} characters, the limit for JSON")
    return find_json(json.loads(text), pointer)


def _find_column(output: Output, name: str) -> Optional[list[Json]]:
    with output.open() as file:
        return read_column(_read_lines(file), name)


def find_json(value: Json, pointer: str) -> Json:
    """Return the value at a JSON Pointer (RFC 6901), or None if there is none."""
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and _DIGITS.fullmatch(key) and 0 <= int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def read_column(lines: Iterable[str], name: str) -> Optional[list[Json]]:
    """Return the cells of a column of a CSV table with a header, numbers as numbers; None without such a column.

    Raises:
        ValueError: The column is larger than a result may be.
        csv.Error: The lines are not a table.
    """
    rows = csv.reader(lines, skipinitialspace=True)
    header = next(rows, [])
    if name not in header:
        return None
    place, size = header.index(name), 0
    cells: list[Json] = []
    for row in filter(None, rows):
        text = row[place] if place < len(row) else ""
        cells.append(_read_cell(text))
        size += len(text) + 1
        if size > MAX_RESULT_BYTES:
            raise ValueError(
                f"the column {name} has more than {MAX_RESULT_BYTES} characters, the limit of a result: declare a"
                " result of the type file instead"
            )
    return cells


def _read_cell(text: str) -> Json:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


_READ: Mapping[ValueType, Callable[[str], Json]] = {
    ValueType.STRING: str,
    ValueType.INTEGER: lambda text: int(text) if _DIGITS.fullmatch(text.strip()) else float(text),
    ValueType.NUMBER: float,
    ValueType.BOOLEAN: lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()],
    ValueType.ARRAY: json.loads,
    ValueType.OBJECT: json.loads,
}
