# SPDX-License-Identifier: Apache-2.0
"""Write the results as Markdown tables between the markers of a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path

from simyard_bench.check import Verdict
from simyard_bench.results import Machine, Run, StageTimes
from simyard_bench.writes import total
from simyard_dev.errors import SetupError

BEGIN, END = "<!-- begin of {}, written by `{}` -->", "<!-- end of {} -->"
_PROCESSES = ("operator", "kube-apiserver", "etcd", "rabbitmq", "emulated cloud and guests")
_WORDS = {True: "met", False: "**not met**", None: "not measured"}


def write_section(document: Path, name: str, text: str) -> None:
    """Replace the text between the markers of that name.

    Raises:
        SetupError: the document has no such markers.
    """
    document.write_text(replace_section(document, name, text, "make bench-plot"))


def replace_section(document: Path, name: str, text: str, command: str) -> str:
    """Return the document with the text between the markers of ``name``; the markers state the command.

    Raises:
        SetupError: the document has no such markers.
    """
    first, last = BEGIN.format(name, command), END.format(name)
    before, begin, rest = document.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise SetupError(f"{document} lacks the lines {first} and {last}: add them")
    return f"{before}{begin}\n\n{text}\n{end}{after}"


def results(runs: Sequence[Run]) -> str:
    """Return the tables of all runs, one section for each profile."""
    parts = []
    for (profile, scale), group in groupby(runs, lambda run: (run.profile, run.time_scale)):
        scaled = "" if scale == 1 else f", times multiplied by {scale:g}"
        same = list(group)
        parts += [f"### {profile} (emulated{scaled})\n", starts(same), costs(same)]
    if runs:
        parts.append(measured_on(runs[-1].machine, runs[-1].versions, runs[-1].date))
    return "\n".join(parts)


def promises(found: Sequence[Verdict]) -> str:
    """Return a table with one row for each promise."""
    rows = ((item.figure, item.required, item.measured, _WORDS[item.met]) for item in found)
    return table(("figure", "required", "measured", ""), rows)


def starts(runs: Sequence[Run]) -> str:
    """Return a table of the times of starts, in seconds."""
    head = ("workers", "T_boot", "T_r", "T_m", "T_r - T_boot", "T_m - T_r", "running: mean, last", "bound", "limit",
            "peer", "scale-in")  # fmt: skip
    rows = (
        (
            f"{run.n:,}", _seconds(run.t_boot_s), _seconds(run.t_r_s), _seconds(run.t_m_s),
            _seconds(run.t_r_minus_t_boot_s), _seconds(run.t_m_minus_t_r_s), _stage(run.stages.get("running")),
            _seconds(run.bound_s), _seconds(run.limit_s), _seconds(run.peer_s), _seconds(run.scale_in_machines_s),
        )
        for run in runs
    )  # fmt: skip
    return table(head, rows)


def costs(runs: Sequence[Run]) -> str:
    """Return a table of the costs of starts; CPU in seconds from the request until T_m."""
    head = (
        "workers",
        "writes per worker: start, scale-in",
        *_PROCESSES,
        "all others",
        "operator's memory",
        "load before",
    )
    rows = []
    for run in runs:
        used = [run.cpu_s.get(name, 0.0) for name in _PROCESSES]
        others = run.machine_cpu_s - sum(run.cpu_s.values())
        writes = f"{run.writes_per_worker:.2f}, {total(run.scale_in_writes) / run.n:.2f}"
        cpu = (f"{seconds:.1f}" for seconds in (*used, others))
        rows.append((f"{run.n:,}", writes, *cpu, f"{run.operator_rss_mib:.0f} MiB", f"{run.load_average:.1f}"))
    return table(head, rows)


def measured_on(where: Machine, versions: Mapping[str, str], date: datetime) -> str:
    """Return a line that names the machine, the date and the versions."""
    programs = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"Measured on {where.cores} cores ({where.cpu}), {where.memory_mib / 1024:.0f} GiB, {where.kernel}; {programs};"
        f" the last run on {date:%Y-%m-%d}.\n"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.1f}"


def _stage(times: StageTimes | None) -> str:
    return f"{_seconds(times.mean_s)}, {_seconds(times.last_s)}" if times else "-"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
