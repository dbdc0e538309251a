# SPDX-License-Identifier: Apache-2.0
"""Rules that find the fields of a result in the output of a program, and the conversion of text to values; no I/O."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from typing import Callable, Mapping, Optional

from simyard_adapter.declarations import InvalidValueError, Json, Value, ValueType
from simyard_adapter.errors import ActionError

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
    except (ValueError, KeyError):
        raise ActionError(
            f"{declared.name}: the program's output {text[:60]!r} is not of type {declared.type.value}"
        ) from None


def find_result(text: str, rule: ResultRule, declared: Value) -> Json:
    """Return the value that a rule finds in a text, or None if it finds none.

    Raises:
        ActionError: The text is not JSON or not a table, or the value does not fit the declaration.
    """
    if rule.pattern is not None:
        match = rule.pattern.search(text)
        return None if match is None else convert_output(match[1], declared)
    try:
        value = find_json(json.loads(text), rule.json) if rule.json is not None else read_column(text, rule.column)
        return None if value is None else declared.check(value, declared.name)
    except InvalidValueError as error:
        raise ActionError(f"the program's result is invalid: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ActionError(f"{declared.name}: {rule.file or 'the output'} cannot be read: {error}") from None


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


def read_column(text: str, name: str) -> Optional[list[Json]]:
    """Return the cells of a column of a CSV table with a header, numbers as numbers; None without such a column."""
    rows = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    if name not in (rows.fieldnames or ()):
        return None
    return [_read_cell(row[name] or "") for row in rows]


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
