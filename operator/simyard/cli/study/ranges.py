# SPDX-License-Identifier: Apache-2.0
"""Parameters of a study as text: fixed values, lists and ranges. Pure.

==================  ==================================================
text                meaning
==================  ==================================================
``500``             a fixed value
``10,20,40``        a list of values
``500:3450:50``     from 500 to 3450 in steps of 50, both ends included
``500:3450``        a range of samples (designs with samples)
``1:1000:x4``       4 values from 1 to 1000 (grid)
``1:1000:x4:log``   4 values with equal ratios (grid)
``1:1000:log``      samples that are uniform on a logarithmic scale
==================  ==================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from simyard.api.base import Json

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER})(?::(?:({_NUMBER})|x(\d+)))?(:log)?")
MAX_EXPONENT = 199
"""Largest exponent of a decimal that the API server accepts."""
NUMERIC = ("number", "integer")
HINT = "write VALUE, VALUE,VALUE,..., START:STOP:STEP, START:STOP or START:STOP:xCOUNT (and :log)"


class RangeError(ValueError):
    """A text that is neither a value, a list nor a range."""


def parse_axis(name: str, text: str, kind: str) -> Json | None:
    """Return the axis of a study, or None if the text is one fixed value.

    Args:
        name: name of the parameter.
        text: the text of the user.
        kind: declared type of the parameter; empty if it is not declared.

    Raises:
        RangeError: the parameter is a number, and the text is no number, list or range.
    """
    if kind in NUMERIC and ":" in text:
        return {"name": name, **_parse_range(text)}
    if kind not in (*NUMERIC, "string", "boolean") or "," not in text:
        return None
    return {"name": name, "values": [parse_value(item.strip(), kind) for item in text.split(",")]}


def parse_value(text: str, kind: str) -> Any:
    """Return a value of a declared type.

    Raises:
        RangeError: the text is no value of this type.
    """
    if kind == "string":
        return text
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        if kind in (*NUMERIC, "boolean"):
            raise RangeError(f"{text!r} is no {kind}: {HINT}") from None
        return text
    return value


def format_axis(axis: Json) -> str:
    """Return the text of an axis, for people."""
    if "values" in axis:
        return ",".join(str(item) for item in axis["values"])
    text = f"{axis['start']}:{axis['stop']}"
    if "step" in axis:
        text += f":{axis['step']}"
    if "count" in axis:
        text += f":x{axis['count']}"
    return text + (":log" if axis.get("scale") == "Log" else "")


def read_points(header: Sequence[str], rows: Sequence[Sequence[str]], kinds: dict[str, str]) -> Json:
    """Return the table design of a CSV file whose header has the names of parameters.

    Raises:
        RangeError: a cell is no value of the declared type of its column.
    """
    columns = [name.strip() for name in header]
    values = []
    for line, row in enumerate(rows, start=2):
        if len(row) != len(columns):
            raise RangeError(f"line {line} has {len(row)} cells, but the header has {len(columns)}")
        values.append([parse_value(cell, kinds.get(name, "")) for name, cell in zip(columns, row, strict=True)])
    return {"columns": columns, "rows": values}


def _parse_range(text: str) -> Json:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise RangeError(f"{text!r} is no range: {HINT}")
    start, stop, step, count, log = found.groups()
    axis: Json = {"start": parse_decimal(start), "stop": parse_decimal(stop)}
    if step:
        axis["step"] = parse_decimal(step)
    if count:
        axis["count"] = int(count)
    if log:
        axis["scale"] = "Log"
    return axis


def parse_decimal(text: str) -> int | str:
    """Return a number as Kubernetes objects hold it: an integer, or a decimal in a string.

    Raises:
        RangeError: the text is no number, or the number is out of the bounds of the API server.
    """
    if not re.fullmatch(_NUMBER, text):
        raise RangeError(f"{text!r} is no number")
    try:
        value = Decimal(text)
    except ArithmeticError:  # the exponent has too many digits
        value = Decimal("inf")
    if not value.is_finite() or abs(value.adjusted()) > MAX_EXPONENT:
        raise RangeError(f"{text} is too large or too small: exponents have the maximum {MAX_EXPONENT}")
    return int(value) if abs(value) < 2**31 and value == value.to_integral_value() else str(value).lower()


def read_workers(text: str) -> Json:
    """Return ``spec.workers`` of a number or a range: ``20``, ``1..200``.

    Raises:
        RangeError: the text has another form.
    """
    least, dots, most = text.partition("..")
    if not least.isdecimal() or (dots and not most.isdecimal()):
        raise RangeError(f"{text!r} is no number and no range: write 20 or 1..200")
    return {"min": int(least) if dots else 0, "max": int(most or least)}
