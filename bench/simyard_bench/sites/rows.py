# SPDX-License-Identifier: Apache-2.0
"""Define the results of sites, and read and write the file that keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import Field, TypeAdapter

from simyard_bench.results import FILE as START_FILE
from simyard_bench.results import Machine, Record, Writes, write_rows

FILE = START_FILE.with_name("sites.json")


class Figures(Record):
    """The figures of one case at one site. Each figure is the median of several rounds.

    Attributes:
        site: the provider, a member of ``spec.provider`` of a CloudSite.
        case: the kind of work; see docs/performance.md.
        n: the number of machines.
        finished: the number of machines that had ended before; 0 if the case does not vary it.
        cloud: the cloud of the measurement, with its simulated parts.
        ours_s: our time.
        yardstick_s: the time of the yardstick; None without a yardstick.
        cpu_s: CPU seconds of the provider and its caller.
        yardstick_cpu_s: CPU seconds of the yardstick, if its client belongs to this benchmark.
        ours_rounds_s, yardstick_rounds_s: the time of each round.
        accepted_s, yardstick_accepted_s: for starts: time until the last machine was accepted.
        writes_per_worker: requests to the cloud that change a resource, per machine.
        writes: these requests by resource and verb (Kubernetes), or by object and method (OpenNebula).
        calls, yardstick_calls: OpenNebula: all calls by method.
        server_ms, yardstick_server_ms: OpenNebula: the cost of these calls for oned, in the model.
        calls_at_once, batch: the last setting of the fleet's tuner.
        yardstick_concurrency: the best number of concurrent requests of the yardstick.
        time_scale: factor on the times of the scheduler and the drivers of a simulated cloud.
        cost_scale: factor on the cost of calls to a simulated oned.
        load_average: load over the minute before.
    """

    site: str
    case: str
    n: int
    finished: int = 0
    cloud: str
    ours_s: float
    yardstick_s: float | None
    cpu_s: float
    yardstick_cpu_s: float | None
    ours_rounds_s: list[float]
    yardstick_rounds_s: list[float]
    accepted_s: float | None = None
    yardstick_accepted_s: float | None = None
    writes_per_worker: float
    writes: Writes = Field(default_factory=dict)
    calls: dict[str, int] = Field(default_factory=dict)
    yardstick_calls: dict[str, int] = Field(default_factory=dict)
    server_ms: float | None = None
    yardstick_server_ms: float | None = None
    calls_at_once: int | None = None
    batch: int | None = None
    yardstick_concurrency: int | None = None
    time_scale: float = 1.0
    cost_scale: float = 1.0
    load_average: float


class Row(Figures):
    """The figures of a case, with the place and the date of the measurement.

    Attributes:
        revision: revision of the source; ends in ``+`` if files had been changed.
    """

    machine: Machine
    versions: dict[str, str]
    date: datetime = Field(description="When it ended.")
    revision: str

    @property
    def key(self) -> tuple[str, str, int, int]:
        """The key of the row; a new row replaces an earlier one with the same key."""
        return self.site, self.case, self.n, self.finished


_ROWS = TypeAdapter(list[Row])


def load(file: Path) -> list[Row]:
    """Return all rows of the file; an empty list if there is no file.

    Raises:
        pydantic.ValidationError: the file does not have this form; the message names the field.
    """
    return _ROWS.validate_json(file.read_bytes()) if file.exists() else []


def store(file: Path, rows: Sequence[Row]) -> None:
    """Add rows to the file; they replace rows with the same key."""
    merged = {row.key: row for row in (*load(file), *rows)}
    write_rows(file, _ROWS.dump_python([merged[key] for key in sorted(merged)], mode="json"))
