# SPDX-License-Identifier: Apache-2.0
"""Commands ``study create``, ``study clone`` and ``study retry-failed``, which make studies."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from simyard.api.base import Json
from simyard.api.names import API_VERSION, STUDIES
from simyard.api.simulation_service import DeclaredValue
from simyard.cli.files import make_reference, upload
from simyard.cli.kubectl import Kubectl
from simyard.cli.output import Failure, make_output_option, print_object, say
from simyard.cli.study.ranges import RangeError, format_axis, parse_axis, parse_value, read_points, read_workers
from simyard.cli.study.search import SearchOptions, add_search_options
from simyard.cli.study.table import Columns, read_rows
from simyard.cli.study.watch import follow_study
from simyard.cli.targets import Target, TargetType
from simyard_adapter.chunks import PARAMETER

SAMPLED = {
    "random": "random",
    "latin-hypercube": "latinHypercube",
    "sobol": "sobol",
    "halton": "halton",
}
MAX_INLINE_ROWS = 1_000
"""Number of points above which a table is uploaded as a file; such a study needs the file store for its results too."""


@click.command()
@click.argument("name")
@click.argument("target", type=TargetType())
@click.argument("action", metavar="ACTION")
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUES",
              help="A value, a list (10,20,40) or a range (START:STOP:STEP, both ends included).")  # fmt: skip
@click.option("--design", type=click.Choice(["grid", *SAMPLED]), default="grid", show_default=True,
              help="The choice of the points.")  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), help="The number of samples.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="The seed of the samples, or of the search.")  # fmt: skip
@click.option("--table", "table", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A CSV file with the points; its header has the names of the parameters.")  # fmt: skip
@click.option("--parallelism", type=click.IntRange(min=1), help="The largest number of workers at the same time.")
@click.option("--workers", metavar="N|MIN..MAX", help="The number of workers that the pool has while the study runs.")
@click.option("--max-cost", metavar="AMOUNT", help="The cost at which the study ends. Its results are kept.")
@click.option("--retries", type=click.IntRange(0, 10), help="The number of times that a failed task is run again.")
@click.option("--max-failed", metavar="N|N%", help="The number of failed tasks above which the study fails.")
@add_search_options
@click.option("--wait", is_flag=True, help="Show the progress until the study has ended.")
@click.option("--dry-run", is_flag=True, help="Print the object, and create nothing.")
@make_output_option()
@click.pass_obj
def create(
    kubectl: Kubectl,
    /,
    name: str,
    target: Target,
    action: str,
    parameters: tuple[str, ...],
    design: str,
    count: int | None,
    seed: int,
    table: Path | None,
    parallelism: int | None,
    workers: str | None,
    max_cost: str | None,
    retries: int | None,
    max_failed: str | None,
    wait: bool,
    dry_run: bool,
    output: str | None,
    **search: Any,
) -> None:
    """Create the study NAME, which calls ACTION of TARGET (pool/NAME or service/NAME) for many points.

    `-p length=500:3450:50 -p load=10,20,40` makes all combinations. Further forms are START:STOP:xCOUNT, and `:log` at
    the end for equal ratios. A design with samples needs --count, and accepts START:STOP. So does a search, which
    --minimise or --maximise begins: it chooses points by the results of earlier points.
    """
    declared = _find_parameters(kubectl, target, action)
    fixed, axes = read_parameters(kubectl, parameters, declared)
    spec: Json = {
        "target": {"kind": target.resource.kind, "name": target.name},
        "action": action,
        "parameters": fixed,
        "design": _make_design(
            kubectl,
            design,
            count,
            seed,
            axes,
            table,
            {item.name: item.type for item in declared},
            SearchOptions(**search),
        ),
    }
    given = {"parallelism": parallelism, "workers": _parse_workers(workers), "maxCost": max_cost}
    given |= {"retriesPerTask": retries, "maxFailedTasks": _read_share(max_failed)}
    spec |= {key: value for key, value in given.items() if value is not None}
    _create(kubectl, name, spec, wait=wait, dry_run=dry_run, output=output)


@click.command()
@click.argument("name")
@click.argument("copy", metavar="NEW")
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUES",
              help="Other values of a parameter, as in `study create`.")  # fmt: skip
@click.option("--wait", is_flag=True, help="Show the progress until the study has ended.")
@click.pass_obj
def clone(kubectl: Kubectl, name: str, copy: str, parameters: tuple[str, ...], wait: bool) -> None:
    """Create the study NEW with the settings of the study NAME; -p changes single parameters."""
    spec = _read_spec(kubectl, name)
    target = TargetType().convert(f"{spec['target']['kind'].lower()}/{spec['target']['name']}", None, None)
    fixed, axes = read_parameters(kubectl, parameters, _find_parameters(kubectl, target, spec["action"]))
    kept = {key: value for key, value in spec.get("parameters", {}).items() if key not in {it["name"] for it in axes}}
    spec["parameters"] = {**kept, **fixed}
    kind, design = next(iter(spec["design"].items()))
    if parameters and kind == "table":
        raise Failure(f"study/{name} has a table of points, so -p cannot change them: use `study create --table`")
    if kind != "table":
        changed = {axis["name"]: axis for axis in axes}
        old = [axis for axis in design["axes"] if axis["name"] not in fixed]
        design["axes"] = [changed.pop(axis["name"], axis) for axis in old] + list(changed.values())
    _create(kubectl, copy, spec, wait=wait)


@click.command("retry-failed")
@click.argument("name")
@click.argument("copy", metavar="[NEW]", required=False)
@click.option("--wait", is_flag=True, help="Show the progress until the study has ended.")
@click.pass_obj
def retry_failed(kubectl: Kubectl, name: str, copy: str | None, wait: bool) -> None:
    """Create a study of the failed tasks of the study NAME; its name is NEW, by default NAME-retry.

    Results cannot change after they are stored, so the second try is an object of its own.
    """
    spec = _read_spec(kubectl, name)
    target = TargetType().convert(f"{spec['target']['kind'].lower()}/{spec['target']['name']}", None, None)
    kinds: dict[str, str] = {it.name: it.type for it in _find_parameters(kubectl, target, spec["action"])}
    rows = read_rows(kubectl, name)
    columns = Columns.read(next(rows))
    places, reason = columns.list_places(PARAMETER), columns.stored.index("reason")
    failed = [[row[place] for place in places] for row in rows if row[reason]]
    if not failed:
        raise Failure(f"study/{name} has no failed tasks")
    names = [columns.stored[place].removeprefix(PARAMETER) for place in places]
    spec["design"] = {"table": _make_table(kubectl, names, failed, kinds)}
    spec.pop("chunkTasks", None)
    _create(kubectl, copy or f"{name}-retry", spec, wait=wait)


def _create(
    kubectl: Kubectl, name: str, spec: Json, *, wait: bool, dry_run: bool = False, output: str | None = None
) -> None:
    study = {"apiVersion": API_VERSION, "kind": STUDIES.kind, "metadata": {"name": name}, "spec": spec}
    if dry_run:
        print_object(study, output or "yaml")
        return
    created = kubectl.create(study)
    if output:
        print_object(created, output)
    else:
        say(f"study.{STUDIES.group}/{name} created")
    if wait:
        follow_study(kubectl, name)


def _read_spec(kubectl: Kubectl, name: str) -> Json:
    """Return the spec of a study without the fields that end or pause it."""
    spec: Json = kubectl.get(STUDIES, name)["spec"]
    return {key: value for key, value in spec.items() if key not in ("cancel", "suspend")}


def _find_parameters(kubectl: Kubectl, target: Target, action: str) -> Sequence[DeclaredValue]:
    """Return the declared parameters of an action.

    Raises:
        Failure: the service does not declare the action.
    """
    actions = target.get_service(kubectl).spec.interface.actions
    for item in actions:
        if item.name == action:
            return item.parameters
    names = ", ".join(item.name for item in actions) or "none"
    raise Failure(f"the service does not declare the action {action}; it declares: {names}")


def read_parameters(
    kubectl: Kubectl, texts: Iterable[str], declared: Iterable[DeclaredValue]
) -> tuple[Json, list[Json]]:
    """Return the fixed parameters and the axes; files of fixed parameters are uploaded."""
    kinds = {item.name: item.type for item in declared}
    fixed: Json = {}
    axes: list[Json] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} has no =: write NAME=VALUES", param_hint="--parameter")
        if name in fixed or any(axis["name"] == name for axis in axes):
            raise click.BadParameter(f"{name} is given twice: write a list, {name}=A,B", param_hint="--parameter")
        if name not in kinds:
            names = ", ".join(kinds) or "none"
            raise click.BadParameter(f"the action has no parameter {name}; it has: {names}", param_hint="--parameter")
        kind = kinds[name]
        try:
            axis = parse_axis(name, value, kind)
            if axis is not None:
                axes.append(axis)
            else:
                fixed[name] = make_reference(kubectl, value) if kind == "file" else parse_value(value, kind)
        except RangeError as error:
            raise click.BadParameter(f"{name}: {error}", param_hint="--parameter") from None
    return fixed, axes


def _make_design(
    kubectl: Kubectl,
    design: str,
    count: int | None,
    seed: int,
    axes: list[Json],
    table: Path | None,
    kinds: dict[str, str],
    search: SearchOptions,
) -> Json:
    if search.given and (table is not None or design != "grid" or count is not None):
        raise click.UsageError("a search chooses its points: leave out --table, --design and --count")
    if table is not None:
        if axes or design != "grid":
            given = " ".join(f"{axis['name']}={format_axis(axis)}" for axis in axes) or f"--design {design}"
            raise click.UsageError(f"--table has all points: leave out {given}")
        return {"table": _read_table(kubectl, table, kinds)}
    if not axes:
        raise click.UsageError("no parameter varies: give a list or a range, such as -p length=500:3450:50")
    if search.given:
        return search.make_design(axes, seed)
    if design == "grid":
        if count is not None:
            raise click.UsageError("a grid has all combinations: --count belongs to the other designs")
        return {"grid": {"axes": axes}}
    if count is None:
        raise click.UsageError(f"--design {design} needs --count, the number of samples")
    return {SAMPLED[design]: {"axes": axes, "count": count, "seed": seed}}


def _read_table(kubectl: Kubectl, path: Path, kinds: dict[str, str]) -> Json:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
        if len(rows) < 2:
            raise Failure(f"{path}: has no points: write a header with names of parameters, and a line for each point")
        return _make_table(kubectl, rows[0], [row for row in rows[1:] if row], kinds)
    except (csv.Error, UnicodeDecodeError, RangeError) as error:
        raise Failure(f"{path}: {error}") from None


def _make_table(kubectl: Kubectl, header: Sequence[str], rows: list[list[str]], kinds: dict[str, str]) -> Json:
    """Return the table design of some points; many of them are uploaded as a file.

    Raises:
        RangeError: a cell is no value of the declared type of its column.
    """
    points = read_points(header, rows, kinds)
    if len(rows) <= MAX_INLINE_ROWS:
        return points
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "points.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([points["columns"], *rows])
        return {"file": upload(kubectl, path).address}


def _parse_workers(text: str | None) -> Json | None:
    try:
        return None if text is None else read_workers(text)
    except RangeError as error:
        raise click.BadParameter(str(error), param_hint="--workers") from None


def _read_share(text: str | None) -> Any:
    return int(text) if text is not None and text.isdecimal() else text
