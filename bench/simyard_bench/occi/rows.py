"""What a case gives, and the file that keeps the cases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import Field, TypeAdapter

from simyard_bench.results import FILE as START_FILE
from simyard_bench.results import Machine, Record, write_rows

FILE = START_FILE.with_name("occi.json")


class Row(Record):
    """One case. Each figure is the median of several rounds.

    Attributes:
        case: what was asked for; see docs/performance.md.
        workers: how many there were.
        finished: how many Workers had been made and deleted, and how many ServiceActions had finished, before.
        frontends: how many ran.
        connections: at once, for ``per_second`` and ``cpu_us_per_request``.
        p50_ms, p99_ms: from a request to the end of its response, as the client sees it; one request after another over
            one connection.
        cpu_us_per_request: of all frontends.
        client_cpu_us_per_request: of the client, which has the other core.
        rss_mib: the most memory that a frontend had ever held by then.
        body_bytes: of one response.
        limit_p50_ms: the same of a bare handler that sends the same bytes; None where it was not measured. Likewise
            ``limit_p99_ms``, ``limit_per_second``, ``limit_cpu_us_per_request``.
        visible_ms: for ``register``: from the last registration until all new workers were visible.
        messages: for ``register``: how many messages the new workers sent to register.
        load_average: over the minute before.
        revision: of the source; ends in ``+`` when files had been changed.
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
    """All rows of the file, in the order in which they were measured; none if there is no file.

    Raises:
        pydantic.ValidationError: the file is not of this form; names the field.
    """
    return _ROWS.validate_json(file.read_bytes()) if file.exists() else []


def store(file: Path, rows: Sequence[Row]) -> None:
    """Write the rows of one run in place of those of the run before."""
    write_rows(file, _ROWS.dump_python(list(rows), mode="json"))
