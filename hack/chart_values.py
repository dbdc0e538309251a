# SPDX-License-Identifier: Apache-2.0
"""Copy the descriptions of the chart's values from ``values.yaml`` into the schema and the chart's README.

A comment ``# --`` above a value describes it; the comment lines that follow continue the description. Everything else
in the schema is written by hand.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Schema = dict[str, Any]
_LINE = re.compile(r"(?P<indent> *)(?P<name>\w+):(?P<default>.*)")


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the chart.

    Attributes:
        path: the names from the root to the value.
        default: the default as YAML; "" for a value that only groups others.
        description: the text of its comment; "" without a comment.
    """

    path: tuple[str, ...]
    default: str
    description: str


def read(file: Path) -> list[Value]:
    """Return all values of a ``values.yaml``, in its order."""
    values: list[Value] = []
    path: list[str] = []
    words: list[str] = []
    for line in file.read_text().splitlines():
        text = line.strip()
        if text.startswith("# -- "):
            words = [text.removeprefix("# -- ")]
        elif text.startswith("#") and words:
            words.append(text.removeprefix("#").strip())
        elif found := _LINE.fullmatch(line):
            path[len(found["indent"]) // 2 :] = [found["name"]]
            values.append(Value(tuple(path), found["default"].strip(), " ".join(words)))
            words = []
        else:
            words = []
    return values


def add_descriptions(schema: str, values: list[Value]) -> str:
    """Return the schema (JSON) with the description of each value.

    Raises:
        KeyError: the schema does not know a value.
    """
    root: Schema = json.loads(schema)
    for value in values:
        found: Schema | None = root
        for name in value.path:
            # A value without `properties` describes everything below it.
            found = found["properties"][name] if found is not None and "properties" in found else None
        if found is not None and value.description:
            found.pop("description", None)
            found["description"] = value.description
    return json.dumps(root, indent=2, ensure_ascii=False) + "\n"


def render_table(values: list[Value]) -> str:
    """Return a table of the values that have a description."""
    rows = [
        f"| `{'.'.join(value.path)}` | {_default(value)} | {value.description} |"
        for value in values
        if value.description
    ]
    return "\n".join(["| value | default | description |", "|---|---|---|", *rows]) + "\n"


def _default(value: Value) -> str:
    return f"`{value.default}`" if value.default else "see `values.yaml`"
