# SPDX-License-Identifier: Apache-2.0
"""Define the results of OCCI frontends, and read and write the file that keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import Field, TypeAdapter

from simyard_bench.results import FILE as START_FILE
from simyard_bench.results import Machine, Record, write_rows

FILE = START_FILE.with_name("occi.json")


class Row(Record):
    """The figures of one case. Each figure is the median of several rounds.

    Attributes:
        case: the kind of requests; see docs/performance.md.
        workers: number of workers.
        finished: number of Workers that were created and deleted before the case, and of finished ServiceActions.
        frontends: number of frontends.
        connections: concurrent connections for ``per_second`` and ``cpu_us_per_request``.
        p50_ms, p99_ms: time from a request to the end of its response, as the client sees it; the requests are
            sequential, over one connection.
        cpu_us_per_request: CPU time of all frontends.
        client_cpu_us_per_request: CPU time of the client, which has the other core.
        rss_mib: peak memory of a frontend by then.
        body_bytes: size of one response.
        limit_p50_ms, limit_p99_ms, limit_per_second, limit_cpu_us_per_request: the same figures of a bare handler that
        sends the same bytes; None if not measured. visible_ms: for ``register``: time from the last registration until
        all new workers were visible. messages: for ``register``: number of messages by which the new workers
        registered. load_average: load over the minute before. revision: revision of the source; ends in ``+`` if files
        had been changed.
    """

    case: str
    workers: int
    finished: int
    frontends: int
    connections: int
    p50_ms: float
    p99_ms: float
    per_second: float
    cpu_us_per_request: float
    client_cpu_us_per_request: float
    rss_mib: float
    body_bytes: int
    limit_p50_ms: float | None = None
    limit_p99_ms: float | None = None
    limit_per_second: float | None = None
    limit_cpu_us_per_request: float | None = None
    visible_ms: float | None = None
    messages: int | None = None
    load_average: float
    machine: Machine
    versions: dict[str, str]
    date: datetime = Field(description="When it ended.")
    revision: str


_ROWS = TypeAdapter(list[Row])


def load(file: Path) -> list[Row]:
    """Return all rows of the file in the order of measurement; an empty list if there is no file.

    Raises:
        pydantic.ValidationError: the file does not have this form; the message names the field.
    """
    return _ROWS.validate_json(file.read_bytes()) if file.exists() else []


def store(file: Path, rows: Sequence[Row]) -> None:
    """Write the rows of one run; they replace the rows of the previous run."""
    write_rows(file, _ROWS.dump_python(list(rows), mode="json"))
