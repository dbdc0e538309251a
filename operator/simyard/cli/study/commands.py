# SPDX-License-Identifier: Apache-2.0
"""The group ``study`` with its commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import cast

import click

from simyard.api.names import STUDIES
from simyard.api.study import Study
from simyard.cli.drawing import Format
from simyard.cli.kubectl import Kubectl, KubectlError
from simyard.cli.output import Failure, print_table, say
from simyard.cli.study.create import clone, create, retry_failed
from simyard.cli.study.picture import Labels, choose_columns, draw_study
from simyard.cli.study.search import add_generations
from simyard.cli.study.search_picture import draw_search
from simyard.cli.study.table import Columns, Row, TextFile, read_rows, write_csv, write_parquet
from simyard.cli.study.watch import follow_study
from simyard.cli.targets import TargetType

MAX_SHOWN_ROWS = 1_000
MAX_DRAWN_ROWS = 100_000


@click.group("study")
def study_group() -> None:
    """Call an action for many points: create studies, follow them, and get their results."""


@click.command()
@click.argument("name")
@click.pass_obj
def watch(kubectl: Kubectl, name: str) -> None:
    """Show the progress of the study NAME until it has ended."""
    follow_study(kubectl, name)


@click.command()
@click.argument("name")
@click.option("-o", "--output", type=click.Choice(["csv", "parquet", "table", "json"]), default="csv",
              show_default=True, help="The output format; json has one line for each task.")  # fmt: skip
@click.option("--file", "path", type=click.Path(dir_okay=False, path_type=Path),
              help="The file for the results. Default: standard output.")  # fmt: skip
@click.pass_obj
def results(kubectl: Kubectl, name: str, output: str, path: Path | None) -> None:
    """Get the results of the study NAME: a row for each task that has ended, also while the study runs.

    The columns are the index, the parameters, the results, the worker, the seconds, the attempts, and the error.
    """
    if path is not None and path.exists():
        raise Failure(f"{path} exists already: choose another name, or delete it first")
    if output == "parquet":
        if path is None:
            raise click.UsageError("Parquet is a binary format: name a file with --file")
        write_parquet(_read_table(kubectl, name), path)
    elif output == "table":
        _show_table(kubectl, name)
    elif path is not None:
        with path.open("w", newline="", encoding="utf-8") as file:
            count = write_csv(_read_table(kubectl, name), file) if output == "csv" else _write_json(kubectl, name, file)
        say(f"{count} rows written to {path}", err=True)
    elif output == "csv":
        write_csv(_read_table(kubectl, name), _Printer())
    else:
        _write_json(kubectl, name, _Printer())


@click.command()
@click.argument("name")
@click.option("-x", "parameter", metavar="PARAMETER", help="The parameter on the horizontal axis.")
@click.option("--by", metavar="PARAMETER", help="A second parameter: a family of curves, or a map.")
@click.option("-y", "result", metavar="RESULT", help="The result to draw. Default: the first one that is a number.")
@click.option("--check", metavar="RESULT", help="A second result, as a dashed line: a closed form, for example.")
@click.option("-o", "--output", type=click.Choice(["svg", "png"]), default="svg", show_default=True,
              help="The format of the picture, which is written to standard output.")  # fmt: skip
@click.pass_obj
def plot(
    kubectl: Kubectl,
    name: str,
    parameter: str | None,
    by: str | None,
    result: str | None,
    check: str | None,
    output: str,
) -> None:
    """Draw a result of the study NAME over one or two of its parameters.

    Without -x, an optimisation is drawn by its convergence, or by its front if it has two objectives.

    For example: kubectl simyard study plot beams -x length --by load -o png > beams.png
    """
    if sys.stdout.isatty():
        raise click.UsageError(f"a terminal cannot show a picture: write it to a file, as in > {name}.{output}")
    found = Study.model_validate(kubectl.get(STUDIES, name))
    lines = read_rows(kubectl, name)
    columns = Columns.read(next(lines))
    rows = list(islice(lines, MAX_DRAWN_ROWS))
    labels = Labels(_find_units(kubectl, found))
    title = f"{found.spec.action} of {found.spec.target.name}: {len(rows)} tasks of study {name}"
    if found.spec.design.optimise is not None and not (parameter or by or result):
        sys.stdout.buffer.write(
            draw_search(title, rows, columns, found.spec.design.optimise, labels, cast(Format, output))
        )
        return
    chosen = choose_columns(columns, rows, [item for item in (parameter, by) if item], result or "", check or "")
    sys.stdout.buffer.write(draw_study(title, rows, columns, chosen, labels, cast(Format, output)))


@click.command()
@click.argument("name")
@click.pass_obj
def cancel(kubectl: Kubectl, name: str) -> None:
    """Cancel the study NAME. The results of its finished tasks are kept."""
    kubectl.patch(STUDIES, name, {"spec": {"cancel": True}})
    say(f"study.{STUDIES.group}/{name} cancelled")


@click.command()
@click.argument("name")
@click.pass_obj
def suspend(kubectl: Kubectl, name: str) -> None:
    """Start no further tasks of the study NAME. Tasks that run are finished."""
    kubectl.patch(STUDIES, name, {"spec": {"suspend": True}})
    say(f"study.{STUDIES.group}/{name} suspended")


@click.command()
@click.argument("name")
@click.pass_obj
def resume(kubectl: Kubectl, name: str) -> None:
    """Let the study NAME continue after `study suspend`."""
    kubectl.patch(STUDIES, name, {"spec": {"suspend": False}})
    say(f"study.{STUDIES.group}/{name} resumed")


for command in (create, watch, results, plot, cancel, suspend, resume, retry_failed, clone):
    study_group.add_command(command)


class _Printer:
    """A text file that prints through ``say``, because cells are the text of strangers."""

    def write(self, text: str) -> int:
        """Print a text."""
        say(text, nl=False)
        return len(text)


def _read_table(kubectl: Kubectl, name: str) -> Iterator[Row]:
    """Yield the header and the rows of a study's table."""
    return add_generations(read_rows(kubectl, name), Study.model_validate(kubectl.get(STUDIES, name)))


def _show_table(kubectl: Kubectl, name: str) -> None:
    lines = _read_table(kubectl, name)
    columns = Columns.read(next(lines))
    rows = list(islice(lines, MAX_SHOWN_ROWS + 1))
    print_table([text.upper() for text in columns.shown], rows[:MAX_SHOWN_ROWS])
    if len(rows) > MAX_SHOWN_ROWS:
        say(f"only the first {MAX_SHOWN_ROWS} rows are shown: use -o csv --file FILE for all of them", err=True)


def _write_json(kubectl: Kubectl, name: str, file: TextFile) -> int:
    lines = _read_table(kubectl, name)
    columns = Columns.read(next(lines))
    count = 0
    for count, row in enumerate(lines, start=1):  # noqa: B007 - the count is the result
        file.write(json.dumps(dict(zip(columns.shown, row, strict=True)), ensure_ascii=False) + "\n")
    return count


def _find_units(kubectl: Kubectl, found: Study) -> dict[str, str]:
    """Return the units of parameters and results; none if the user may not read the service."""
    target = TargetType().convert(f"{found.spec.target.kind.lower()}/{found.spec.target.name}", None, None)
    try:
        actions = target.get_service(kubectl).spec.interface.actions
    except KubectlError:
        return {}
    declared = next((item for item in actions if item.name == found.spec.action), None)
    return {item.name: item.unit for item in (*declared.parameters, *declared.result)} if declared else {}
