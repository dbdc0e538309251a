# SPDX-License-Identifier: Apache-2.0
"""Command ``usage``, which shows the usage of machines and its cost."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from datetime import UTC, datetime

import click

from simyard.api.base import Json
from simyard.api.names import SIMULATION_SERVICES, USAGES, WORKER_POOLS
from simyard.api.usage import HOUR_MILLISECONDS, Usage, UsageRow
from simyard.cli.kubectl import Kubectl
from simyard.cli.listing import everywhere_option
from simyard.cli.output import Row, make_output_option, print_object, print_table, say
from simyard.cli.targets import Target, TargetType
from simyard.plan.usage import Group, Used, sum_usage

ROW = ("pool", "service", "site")


@click.command()
@click.argument("target", metavar="[POOL]", required=False, type=TargetType())
@everywhere_option
@click.option(
    "--by",
    type=click.Choice(["namespace", *ROW]),
    help="Sum the usage by this key. By default: by pool, service and site.",
)
@make_output_option("csv")
@click.pass_obj
def usage(kubectl: Kubectl, target: Target | None, everywhere: bool, by: str | None, output: str | None) -> None:
    """Show the usage of all workers up to now, or only the workers of one POOL (or service/NAME).

    Worker-seconds are the sum of the times for which machines ran. Core-hours and licence-seconds multiply these times
    by the cores and by the licence seats of each machine. Machines that still run count until now.
    """
    found = [Usage.model_validate(item) for item in kubectl.list_all(USAGES, everywhere=everywhere)]
    rows = [(item.metadata.namespace, row) for item in found for row in item.status.rows]
    if target is not None:
        rows = [(namespace, row) for namespace, row in rows if _is_of(target, row)]
    keys = (by,) if by else ("namespace", *ROW) if everywhere else ROW
    used = sum_usage(rows, lambda namespace, row: _group(keys, namespace, row), datetime.now(UTC))
    if output == "csv":
        say(_csv(keys, used), nl=False)
    elif output:
        print_object([_entry(keys, group, sums) for group, sums in used.items()], output)
    elif not used:
        say("No usage found.", err=True)
    else:
        total = sum_usage(rows, lambda *_: (), datetime.now(UTC))[()]
        header = [*(key.upper() for key in keys), "RUNNING", "WORKER-SECONDS", "CORE-HOURS", "LICENCE-SECONDS", "COST"]
        lines: list[Row] = [[*group, *_cells(sums)] for group, sums in used.items()]
        if len(lines) > 1:
            lines.append(["TOTAL", *([" "] * (len(keys) - 1)), *_cells(total)])
        print_table(header, lines)


def _is_of(target: Target, row: UsageRow) -> bool:
    names = {WORKER_POOLS: row.pool, SIMULATION_SERVICES: row.service}
    if target.resource not in names:
        raise click.UsageError("usage is counted by pool and service, not for single workers: name a pool or a service")
    return names[target.resource] == target.name


def _group(keys: tuple[str, ...], namespace: str, row: UsageRow) -> Group:
    values: Mapping[str, str] = {"namespace": namespace, "pool": row.pool, "service": row.service, "site": row.site}
    return tuple(values[key] for key in keys)


def _cells(used: Used) -> list[object]:
    cost = ", ".join(f"{_units(millis)[:-1]} {currency}" for currency, millis in used.get_cost_millis().items())
    seconds = (used.worker_milliseconds // 1000, used.licence_milliseconds // 1000)
    return [used.workers, seconds[0], f"{used.core_milliseconds / HOUR_MILLISECONDS:.2f}", seconds[1], cost or "0"]


def _entry(keys: tuple[str, ...], group: Group, used: Used) -> Json:
    return {
        **dict(zip(keys, group, strict=True)),
        "runningWorkers": used.workers,
        "workerSeconds": used.worker_milliseconds / 1000,
        "coreHours": used.core_milliseconds / HOUR_MILLISECONDS,
        "licenceSeconds": used.licence_milliseconds / 1000,
        "cost": {currency: _units(millis) for currency, millis in used.get_cost_millis().items()},
    }


def _csv(keys: tuple[str, ...], used: Mapping[Group, Used]) -> str:
    """Return one line for each group and currency.

    Only the first line of a group has values in the other columns, so that a reader can sum each column.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, "running_workers", "worker_seconds", "core_hours", "licence_seconds", "cost", "currency"])
    for group, sums in used.items():
        seconds = (sums.worker_milliseconds / 1000, sums.licence_milliseconds / 1000)
        hours = sums.core_milliseconds / HOUR_MILLISECONDS
        values: list[object] = [sums.workers, f"{seconds[0]:.3f}", f"{hours:.6f}", f"{seconds[1]:.3f}"]
        for currency, millis in list(sums.get_cost_millis().items()) or [("", 0)]:
            writer.writerow([*group, *values, _units(millis), currency])
            values = [0, 0, 0, 0]
    return text.getvalue()


def _units(millis: int) -> str:
    """Return a number of thousandths as a decimal number with three digits after the point."""
    return f"{millis // 1000}.{millis % 1000:03}"
