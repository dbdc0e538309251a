# SPDX-License-Identifier: Apache-2.0
"""Define the results of transfers, and read and write the file that keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from pydantic import Field, TypeAdapter

from simyard_bench.results import FILE as START_FILE
from simyard_bench.results import Machine, Record, write_rows

FILE = START_FILE.with_name("files.json")
MIB = 2**20


class Case(StrEnum):
    """The kind of work: one file up or down, or actions that share an input."""

    UPLOAD = "upload"
    DOWNLOAD = "download"
    SHARED = "shared"


class Way(StrEnum):
    """The client: a bare S3 client, ``kubectl simyard cp``, or a worker."""

    BARE = "bare"
    USER = "cp"
    WORKER = "worker"


class Figures(Record):
    """The figures of one case. Each figure is the median of several rounds, unless it says otherwise.

    Attributes:
        case: the kind of work.
        way: the client.
        size: the number of bytes of a file.
        files: the number of files, or of actions, in a round.
        seconds: the time of one file; of all actions together for ``shared``.
        rounds_s: the time of one file in each round.
        round_trips: the requests of the client to the platform and to the store, and its questions over the broker,
            for one file.
        store_requests: all requests to the store for one file, with those of the platform.
        client_cpu_s: CPU of the client, or of the adapters, for one file.
        cpu_s: CPU of each other process for one file, less its idle use in the same time.
        rss_mib: peak memory of the client, or of an adapter, since its start.
        store_rss_mib: peak memory of the store since its start.
        workers: the number of workers.
        downloads: for ``shared``: how often the input was downloaded.
        load_average: load over the minute before.
    """

    case: Case
    way: Way
    size: int
    files: int
    seconds: float
    rounds_s: list[float]
    round_trips: float
    store_requests: float
    client_cpu_s: float
    cpu_s: dict[str, float]
    rss_mib: float
    store_rss_mib: float
    workers: int = 1
    downloads: int | None = None
    load_average: float

    @property
    def rate(self) -> float:
        """The rate of the transfer in MiB per second."""
        return self.size / MIB / self.seconds


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
    def key(self) -> tuple[str, str, int]:
        """The key of the row; a new row replaces an earlier one with the same key."""
        return self.case, self.way, self.size


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


def find(rows: Sequence[Row], case: Case, way: Way, size: int) -> Row | None:
    """Return the row of a transfer; None if it was not measured."""
    return next((row for row in rows if (row.case, row.way, row.size) == (case, way, size)), None)
