"""What a case gives, and the file that keeps the cases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import Field, TypeAdapter

from simyard_bench.results import FILE as START_FILE
from simyard_bench.results import Machine, Record, Writes, write_rows

FILE = START_FILE.with_name("sites.json")


class Figures(Record):
    """What was measured of one case at one site. Each figure is the median of several rounds.

    Attributes:
        site: the provider, a member of ``spec.provider`` of a CloudSite.
        case: what was done; see docs/performance.md.
        n: with how many machines.
        finished: how many machines had ended before; only where that was varied.
        cloud: what stood for the cloud, and what of it is simulated.
        ours_s: how long it took.
        yardstick_s: how long the yardstick took; None where there is none.
        cpu_s: seconds of CPU of the provider and of what drives it.
        yardstick_cpu_s: the same of the yardstick, where its client is of this benchmark.
        ours_rounds_s, yardstick_rounds_s: of each round.
        accepted_s, yardstick_accepted_s: for starts: until the last machine was accepted.
        writes_per_worker: requests to the cloud that change something, for each machine.
        writes: these by resource and verb (Kubernetes), or by object and method (OpenNebula).
        calls, yardstick_calls: of OpenNebula: all calls by method.
        server_ms, yardstick_server_ms: of OpenNebula: what these calls cost oned, in the model.
        calls_at_once, batch: as the fleet's tuner had settled at the end.
        yardstick_concurrency: requests at once with which the yardstick was best.
        time_scale: the times of a simulated cloud's scheduler and drivers are multiplied by this.
        cost_scale: what calls cost a simulated oned is multiplied by this.
        load_average: over the minute before.
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
    """The same, and where and when that was.

    Attributes:
        revision: of the source; ends in ``+`` when files had been changed.
    """

    machine: Machine
    versions: dict[str, str]
    date: datetime = Field(description="When it ended.")
    revision: str

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What tells rows apart: a new one replaces the one before."""
        return self.site, self.case, self.n, self.finished


_ROWS = TypeAdapter(list[Row])


def load(file: Path) -> list[Row]:
    """All rows of the file; none if there is no file.

    Raises:
        pydantic.ValidationError: the file is not of this form; names the field.
    """
    return _ROWS.validate_json(file.read_bytes()) if file.exists() else []


def store(file: Path, rows: Sequence[Row]) -> None:
    """Put rows into the file, in place of those with the same key."""
    merged = {row.key: row for row in (*load(file), *rows)}
    write_rows(file, _ROWS.dump_python([merged[key] for key in sorted(merged)], mode="json"))
