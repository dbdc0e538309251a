# SPDX-License-Identifier: Apache-2.0
"""Define the results of starts, and read and write the file that keeps them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from simyard.api.base import Json
from simyard_dev.files import write_whole

FILE = Path(__file__).resolve().parents[1] / "results" / "start.json"
STAGES = ("pending", "prolog", "boot", "running", "registered")
QUANTILES = 20
Writes = dict[str, dict[str, int]]
"""Numbers of writes by resource and verb (``post``, ``patch``, ``put``, ``delete``)."""


class Record(BaseModel):
    """A record of a results file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Machine(Record):
    """The machine of a measurement."""

    cpu: str
    cores: int
    memory_mib: int
    kernel: str


class StageTimes(Record):
    """Times at which workers entered a stage, in seconds since the request for the start.

    ``quantiles`` go from the first worker to the last one in :data:`QUANTILES` even steps.
    """

    mean_s: float
    last_s: float
    quantiles: list[float]


class Idle(Record):
    """Cost of a pool whose workers are all ready and do nothing.

    ``writes`` excludes the renewals of Leases, which ``lease_writes`` counts.
    """

    seconds: float
    writes: int
    lease_writes: int
    operator_cpu_percent: float


class Run(Record):
    """A start of ``n`` workers, and the yardsticks measured on the same machine right after it.

    Attributes:
        guests: contents of the machines: one adapter process each, or one process with all adapters.
        t_boot_s: time until all machines have booted, as the site sees it (``status.start`` of the pool).
        t_r_s: time until all services have registered, as the platform sees it (``status.start``).
        t_m_s: time until the requester sees all workers ready: from the request until ``kubectl wait`` has returned.
        bound_s: shortest possible time at the emulated cloud with this profile; None if the model has no bound.
        limit_s: time in which a minimal client stores as many Workers, with two status patches each; None if not
        measured.
        limit_concurrency: best number of concurrent requests of that client.
        peer_s: time until a Deployment of as many pods is ready, with kwok as kubelets; None if not measured.
        writes: writes of the operator from the start until it is quiet, without Leases, counted by the API server.
        writes_told: the same writes, counted by the operator's own metrics (which exclude the requests of kopf).
        writes_per_worker: the sum of ``writes`` over ``n``.
        cpu_s: CPU seconds from the request until T_m, by process.
        machine_cpu_s: CPU seconds of the whole machine in this time; the difference to the sum of ``cpu_s`` is the use
            of other processes.
        operator_cpu_s: CPU seconds of the operator in this time, as in ``cpu_s``.
        operator_rss_mib: peak memory of the operator until it is quiet.
        scale_in_s: time from the request for 0 workers until kubectl shows 0 and no Worker is stored.
        scale_in_machines_s: time until the site reports no machine either.
        scale_in_writes: writes of the operator until then, as ``writes``.
        scale_in_operator_cpu_s: CPU seconds of the operator until then.
        load_average: load over the minute before the start.
        revision: revision of the source; ends in ``+`` if files had been changed.
    """

    n: int
    profile: str
    time_scale: float
    guests: str
    t_boot_s: float
    t_r_s: float
    t_m_s: float
    t_r_minus_t_boot_s: float
    t_m_minus_t_r_s: float
    bound_s: float | None
    limit_s: float | None
    limit_concurrency: int | None
    peer_s: float | None
    writes_per_worker: float
    writes: Writes
    writes_told: Writes
    operator_cpu_s: float
    operator_rss_mib: float
    cpu_s: dict[str, float]
    machine_cpu_s: float
    stages: dict[str, StageTimes]
    scale_in_s: float
    scale_in_machines_s: float
    scale_in_writes: Writes
    scale_in_operator_cpu_s: float
    idle: Idle | None
    load_average: float
    machine: Machine
    versions: dict[str, str]
    date: datetime = Field(description="When it ended.")
    revision: str

    @property
    def key(self) -> tuple[str, float, int]:
        """The key of the run; a new run replaces an earlier one with the same key."""
        return self.profile, self.time_scale, self.n


_RUNS = TypeAdapter(list[Run])


def load(file: Path) -> list[Run]:
    """Return all runs of the file, sorted; an empty list if there is no file.

    Raises:
        pydantic.ValidationError: the file does not have this form; the message names the field.
    """
    return _RUNS.validate_json(file.read_bytes()) if file.exists() else []


def store(file: Path, runs: Sequence[Run]) -> None:
    """Add runs to the file; they replace runs with the same key."""
    merged = {run.key: run for run in (*load(file), *runs)}
    write_rows(file, _RUNS.dump_python([merged[key] for key in sorted(merged)], mode="json"))


def write_rows(file: Path, rows: Sequence[Json]) -> None:
    """Write results as an array of objects."""
    write_whole(file, "[\n" + ",\n".join(map(_lines, rows)) + "\n]\n")


def _lines(row: Json) -> str:
    """Return a record as JSON with one field per line, so that people can read diffs of the file."""
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in row.items()) + "\n}"
