"""What a run gives, and the file that keeps the runs."""

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
"""How many writes there were, by resource, then by verb (``post``, ``patch``, ``put``, ``delete``)."""


class Record(BaseModel):
    """What is kept in a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Machine(Record):
    """Where it was measured."""

    cpu: str
    cores: int
    memory_mib: int
    kernel: str


class StageTimes(Record):
    """When workers entered a stage, in seconds since the start was asked for.

    ``quantiles``: from the first worker's to the last one's, in :data:`QUANTILES` even steps.
    """

    mean_s: float
    last_s: float
    quantiles: list[float]


class Idle(Record):
    """What a pool costs of which all workers are ready and do nothing.

    ``writes`` leaves out renewals of Leases, which are ``lease_writes``.
    """

    seconds: float
    writes: int
    lease_writes: int
    operator_cpu_percent: float


class Run(Record):
    """One start of ``n`` workers, and the yardsticks on the same machine right after it.

    Attributes:
        guests: what runs in the machines: an adapter process each, or one process with all adapters.
        t_boot_s: all machines booted, as the site sees it (``status.start`` of the pool).
        t_r_s: all services registered, as the platform sees it (``status.start``).
        t_m_s: the same as the requester sees it: from the request until ``kubectl wait`` has returned.
        bound_s: what the emulated cloud can do at best with this profile; None where the model has no bound.
        limit_s: a bare client makes the same objects with the same two status patches each; None if not measured.
        limit_concurrency: how many workers at once that client did best with.
        peer_s: a Deployment of as many pods is ready, with kwok for the kubelets; None if not measured.
        writes: of the operator during the start and until it was quiet, without Leases, as the API server counted them.
        writes_told: the same as the operator's own metrics tell (kopf's requests are not among them).
        writes_per_worker: the sum of ``writes`` over ``n``.
        cpu_s: seconds of CPU from the request until T_m, by process.
        machine_cpu_s: the same of the whole machine: what exceeds the sum of ``cpu_s`` was used by others.
        operator_cpu_s: that of the operator, again.
        operator_rss_mib: the most memory that the operator has ever held until all was quiet.
        scale_in_s: from the request for 0 until the pool says 0, as kubectl sees it, and no Worker is stored.
        scale_in_machines_s: until the site says 0 as well.
        scale_in_writes: of the operator until then, as ``writes``.
        scale_in_operator_cpu_s: its CPU until then.
        load_average: over the minute before the start.
        revision: of the source; ends in ``+`` when files had been changed.
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
        """What tells runs apart: a new one replaces the one before."""
        return self.profile, self.time_scale, self.n


_RUNS = TypeAdapter(list[Run])


def load(file: Path) -> list[Run]:
    """All runs of the file, sorted; none if there is no file.

    Raises:
        pydantic.ValidationError: the file is not of this form; names the field.
    """
    return _RUNS.validate_json(file.read_bytes()) if file.exists() else []


def store(file: Path, runs: Sequence[Run]) -> None:
    """Put runs into the file, in place of those with the same key."""
    merged = {run.key: run for run in (*load(file), *runs)}
    write_rows(file, _RUNS.dump_python([merged[key] for key in sorted(merged)], mode="json"))


def write_rows(file: Path, rows: Sequence[Json]) -> None:
    """Write results as an array of objects."""
    write_whole(file, "[\n" + ",\n".join(map(_lines, rows)) + "\n]\n")


def _lines(row: Json) -> str:
    """A run with one field per line, so that a difference can be read."""
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in row.items()) + "\n}"
