# SPDX-License-Identifier: Apache-2.0
"""Write the reference of ``kubectl simyard``, docs/cli.md, from the help of the commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

import click

from simyard.cli.app import cli
from simyard.cli.global_options import GLOBAL_OPTIONS

_HEAD = """\
<!-- Generated from operator/simyard/cli by hack/generate.py (make generate). Do not edit. -->

# Command line

`kubectl simyard` is a plugin of kubectl with which you list services, call actions and read attributes.
`pip install simyard` puts it into your `PATH`. It uses your kubeconfig and your rights, and needs only the objects of
the chart in the cluster. Each command shows its help with `-h`.

A *target* is `worker/NAME`, `pool/NAME` or `service/NAME`. The exit status is 0 when the command succeeded, 1 when the
server or the program refused it, and 2 when the command line is wrong.
"""


def render() -> str:
    """Return the page: the global options first, then one section for each command, sorted by name."""
    context = click.Context(cli, info_name="kubectl simyard")
    parts = [_HEAD, _options("## Options of every command", context, _global_options())]
    for name, command in sorted(cli.commands.items()):
        parts.append(_section(name, command, click.Context(command, info_name=name, parent=context)))
    return "\n".join(parts)


def _global_options() -> list[click.Parameter]:
    return [option for option in cli.params if option.name in GLOBAL_OPTIONS]


def _section(name: str, command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    own = [item for item in command.params if isinstance(item, click.Option) and item.name not in GLOBAL_OPTIONS]
    lines = [f"## {name}", "", f"    kubectl simyard {name} {usage}", "", inspect.cleandoc(command.help or ""), ""]
    return "\n".join([*lines, *([_options("", context, own)] if own else [])])


def _options(title: str, context: click.Context, options: Sequence[click.Parameter]) -> str:
    head = [title, ""] if title else []
    return "\n".join([*head, "| option | meaning |", "|---|---|", *_rows(context, options), ""])


def _rows(context: click.Context, options: Sequence[click.Parameter]) -> Iterator[str]:
    for option in options:
        record = option.get_help_record(context)
        if record is not None:
            words, meaning = (text.replace("|", "\\|").replace("\n", " ") for text in record)
            yield f"| `{words}` | {meaning} |"
