# SPDX-License-Identifier: Apache-2.0
"""Output of the command line: tables in the form of kubectl, JSON and YAML.

Most of the printed text comes from vendors, workers and other users, and could contain control sequences for the
terminal. All output therefore goes through :func:`say`, which removes control sequences; ruff forbids ``click.echo``
elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
import yaml

from simyard.api.base import Condition, find_condition
from simyard.guest.text import make_printable, make_printable_line

Row = Sequence[object]
F = TypeVar("F", bound=Callable[..., Any])


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that also quotes ``y`` and ``n``, which kubectl reads as booleans (YAML 1.1)."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^[yYnN]$"), list("yYnN"))


class Failure(click.ClickException):
    """A failure of the command. Its message may contain untrusted text."""

    def __init__(self, message: str) -> None:
        super().__init__(make_printable(message))


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text without control sequences for the terminal."""
    click.echo(make_printable(text), err=err, nl=nl)  # noqa: TID251


def make_output_option(*extra: str) -> Callable[[F], F]:
    """Return the option ``-o`` with the formats json and yaml, and the extra formats of a command."""
    return click.option("-o", "--output", type=click.Choice(["json", "yaml", *extra]), help="The output format.")


def print_object(value: Any, output: str) -> None:
    """Print a value as JSON or YAML."""
    if output == "json":
        say(json.dumps(value, indent=4))
    else:
        say(yaml.dump(value, Dumper=_Dumper, sort_keys=False), nl=False)


def as_list(items: list[Any]) -> Any:
    """Return objects in one List, as kubectl prints them."""
    return {"apiVersion": "v1", "kind": "List", "items": items}


def print_table(header: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table: each column is as wide as its widest cell, and three spaces separate columns."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        say("   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def format_age(since: datetime | None) -> str:
    """Return the time since ``since`` in the format of kubectl: 35s, 12m, 5h, 3d."""
    if since is None:
        return "<unknown>"
    seconds = int((datetime.now(UTC) - since).total_seconds())
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{max(0, seconds) // size}{unit}"
    return f"{seconds // 86_400}d"


def format_condition(conditions: list[Condition], kind: str) -> str:
    """Return the status of a condition, with its reason unless the status is ``True``: ``False (Reason)``."""
    condition = find_condition(conditions, kind)
    if condition is None:
        return "Unknown"
    return condition.status if condition.status == "True" else f"{condition.status} ({condition.reason})"


def _cell(value: object) -> str:
    if value is None or value == "":
        return "<none>"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    return make_printable_line(value) if isinstance(value, str) else json.dumps(value)
