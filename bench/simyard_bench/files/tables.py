# SPDX-License-Identifier: Apache-2.0
"""Write the results of transfers as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence

from simyard_bench.files.promises import NAMES
from simyard_bench.files.rows import MIB, Case, Row, Way, find
from simyard_bench.files.watching import STORE
from simyard_bench.tables import measured_on, table

CONTROL_PLANE = ("operator", "aggregated apiserver", "kube-apiserver", "etcd", "rabbitmq")
_TRANSFERS = ("client", "time", "rate", "rounds", "x bare client's rate", "round trips", "requests to the store",
              "CPU: client, store", "memory of the client", "load")  # fmt: skip
_COSTS = ("a file of 1 kB", *CONTROL_PLANE, STORE, "together")


def results(rows: Sequence[Row]) -> str:
    """Return the tables of uploads, of downloads, and of the costs of the control plane."""
    if not rows:
        return "Not measured.\n"
    parts = []
    for case in (Case.UPLOAD, Case.DOWNLOAD):
        if found := sorted(
            (row for row in rows if row.case is case), key=lambda row: (row.size, list(Way).index(row.way))
        ):
            title = table((case, *_TRANSFERS), [_transfer(row, rows) for row in found])
            parts.append(title)
    parts.append(table(_COSTS, map(_cost, _smallest(rows))))
    parts += [_shared(row) for row in rows if row.case is Case.SHARED]
    last = max(rows, key=lambda row: row.date)
    return "\n".join([*parts, measured_on(last.machine, last.versions, last.date)])


def name_size(size: int) -> str:
    """Return a number of bytes as text with the unit that fits."""
    units = {"GiB": 2**30, "MiB": MIB, "KiB": 2**10, "GB": 10**9, "kB": 1000, "bytes": 1}
    count, unit = min((size // factor, unit) for unit, factor in units.items() if size % factor == 0 and size >= factor)
    return f"{count} {unit}"


def _transfer(row: Row, rows: Sequence[Row]) -> Sequence[str]:
    bare = find(rows, row.case, Way.BARE, row.size)
    return (
        name_size(row.size),
        NAMES[row.way],
        _time(row.seconds),
        f"{row.rate:.1f} MiB/s" if row.size >= MIB else "-",
        ", ".join(map(_time, row.rounds_s)),
        f"{row.rate / bare.rate:.2f}" if bare is not None else "-",
        f"{row.round_trips:g}",
        f"{row.store_requests:g}",
        f"{_time(row.client_cpu_s)}, {_time(row.cpu_s[STORE])}",
        f"{row.rss_mib:.0f} MiB",
        f"{row.load_average:.1f}",
    )


def _smallest(rows: Sequence[Row]) -> list[Row]:
    """Return the transfers of the smallest files through the platform."""
    size = min(row.size for row in rows)
    return [row for row in rows if row.size == size and row.way is not Way.BARE and row.case is not Case.SHARED]


def _cost(row: Row) -> Sequence[str]:
    names = (*CONTROL_PLANE, STORE)
    cells = [f"{1000 * row.cpu_s.get(name, 0.0):.1f} ms" for name in names]
    return f"{row.case} by {NAMES[row.way]}", *cells, f"{1000 * sum(row.cpu_s.values()):.1f} ms"


def _shared(row: Row) -> str:
    cpu = sum(row.cpu_s.values())
    return (
        f"{row.files} actions that share a file of {name_size(row.size)}, at {row.workers} workers: {row.seconds:.1f} s"
        f" and {row.downloads} downloads of the file; for each action, {1000 * cpu:.0f} ms of CPU of the platform and"
        f" {1000 * row.client_cpu_s:.0f} ms of the adapters.\n"
    )


def _time(seconds: float) -> str:
    return (
        f"{seconds:.2f} s"
        if seconds >= 1
        else f"{1000 * seconds:.1f} ms"
        if seconds < 0.1
        else f"{1000 * seconds:.0f} ms"
    )
