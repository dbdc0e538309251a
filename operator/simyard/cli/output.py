"""How answers are printed: tables as kubectl prints them, JSON, YAML.

All that the command prints goes through :func:`say` (ruff forbids ``click.echo`` elsewhere), because most of it is text
of vendors, workers and other users.
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
from simyard.guest.text import printable, printable_line

Row = Sequence[object]
F = TypeVar("F", bound=Callable[..., Any])


class _Dumper(yaml.SafeDumper):
    """Quotes y and n, which YAML 1.1, and so kubectl, reads as booleans where PyYAML does not."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^[yYnN]$"), list("yYnN"))


class Failure(click.ClickException):
    """The command failed; the message may quote others."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text, without anything that a terminal would obey."""
    click.echo(printable(text), err=err, nl=nl)  # noqa: TID251


def output_option(*extra: str) -> Callable[[F], F]:
    """The option ``-o``: json and yaml, and what a command has besides."""
    return click.option("-o", "--output", type=click.Choice(["json", "yaml", *extra]), help="Output format.")


def print_object(value: Any, output: str) -> None:
    """Print as JSON or YAML."""
    if output == "json":
        say(json.dumps(value, indent=4))
    else:
        say(yaml.dump(value, Dumper=_Dumper, sort_keys=False), nl=False)


def as_list(items: list[Any]) -> Any:
    """Several objects as one, as kubectl prints them."""
    return {"apiVersion": "v1", "kind": "List", "items": items}


def print_table(header: Sequence[str], rows: Sequence[Row]) -> None:
    """Columns as wide as their widest cell, three spaces apart."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        say("   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def age(since: datetime | None) -> str:
    """How long ago, as kubectl says it: 35s, 12m, 5h, 3d."""
    if since is None:
        return "<unknown>"
    seconds = int((datetime.now(UTC) - since).total_seconds())
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{max(0, seconds) // size}{unit}"
    return f"{seconds // 86_400}d"


def condition_text(conditions: list[Condition], kind: str) -> str:
    """``True``, or ``False (Reason)``."""
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
    return printable_line(value) if isinstance(value, str) else json.dumps(value)
