# SPDX-License-Identifier: Apache-2.0
"""Define the results of many tasks, and read and write the file that keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from pydantic import Field, TypeAdapter

from simyard_bench.results import FILE as START_FILE
from simyard_bench.results import Machine, Record, write_rows

FILE = START_FILE.with_name("studies.json")


class System(StrEnum):
    """The system that runs the tasks."""

    STUDY = "study"
    DASK = "dask"
    RAY = "ray"
    JOB = "job"


class Table(Record):
    """The download of the merged table: ``kubectl simyard study results NAME``.

    Attributes:
        seconds: its time.
        cpu_s: CPU of the command.
        bytes: size of the CSV file.
    """

    seconds: float
    cpu_s: float
    bytes: int


class Figures(Record):
    """The figures of one run.

    Attributes:
        system: the system that ran the tasks.
        tasks: the number of tasks; each does nothing.
        workers: the number of workers; threads of Dask, processes of Ray, the parallelism of the Job.
        seconds: the time from the request until the requester knows that all tasks have ended.
        cpu_s: CPU of each process in this time.
        rss_mib: the sum of the peaks of the memory of all processes.
        writes: writes to the Kubernetes API in this time, without Leases.
        etcd_bytes: growth of etcd's database in this time.
        object_bytes: size of the Study as JSON at the end.
        table: the download of the table.
        load_average: load over the minute before.
    """

    system: System
    tasks: int
    workers: int
    seconds: float
    cpu_s: dict[str, float]
    rss_mib: float
    writes: int | None = None
    etcd_bytes: int | None = None
    object_bytes: int | None = None
    table: Table | None = None
    load_average: float

    @property
    def rate(self) -> float:
        """The tasks per second."""
        return self.tasks / self.seconds

    @property
    def cpu_us(self) -> float:
        """The microseconds of CPU of all processes for one task."""
        return 1e6 * sum(self.cpu_s.values()) / self.tasks

    @property
    def writes_per_thousand(self) -> float | None:
        """The writes to the Kubernetes API for 1,000 tasks."""
        return None if self.writes is None else 1000 * self.writes / self.tasks


class Row(Figures):
    """The figures of a run, with the place and the date of the measurement.

    Attributes:
        revision: revision of the source; ends in ``+`` if files had been changed.
    """

    machine: Machine
    versions: dict[str, str]
    date: datetime = Field(description="When it ended.")
    revision: str

    @property
    def key(self) -> tuple[int, int, str]:
        """The key of the row; a new row replaces an earlier one with the same key."""
        return self.workers, self.tasks, self.system


_ROWS = TypeAdapter(list[Row])


def load(file: Path) -> list[Row]:
    """Return all rows of the file; an empty list if there is no file.

    Raises:
        pydantic.ValidationError: the file does not have this form; the message names the field.
    """
    return _ROWS.validate_json(file.read_bytes()) if file.exists() else []


def store(file: Path, rows: Sequence[Row]) -> None:
    """Add rows to the file, in place of those with the same key."""
    merged = {row.key: row for row in (*load(file), *rows)}
    write_rows(file, _ROWS.dump_python([merged[key] for key in sorted(merged)], mode="json"))


def find(rows: Sequence[Row], system: System, workers: int, tasks: int | None = None) -> Row | None:
    """Return the row of a system with a number of workers; without ``tasks``, that with the fewest tasks."""
    found = [row for row in rows if (row.system, row.workers) == (system, workers) and tasks in (None, row.tasks)]
    return min(found, key=lambda row: row.tasks, default=None)
