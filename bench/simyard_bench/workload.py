# SPDX-License-Identifier: Apache-2.0
"""Define the objects that a benchmark creates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simyard.api import names
from simyard.api.base import Json
from simyard_adapter.python_backend import load_class
from simyard_sites.kubernetes.resource import Resource

NAMESPACE = "bench"
NAME = "bench"
"""Name of the service, of the site and of the pool."""
MAX_PROCESS_GUESTS = 100
PATIENCE_SECONDS = 14_400
PROGRAM = Path(__file__).with_name("program.py")
PROGRAM_CLASS = "program:Program"


@dataclass(frozen=True)
class Load:
    """A start: ``n`` workers at a cloud with a profile, whose times are multiplied by the scale.

    ``guests`` is ``process`` or ``shared``, see :func:`guests_for`.
    """

    n: int
    profile: str
    time_scale: float
    guests: str

    @property
    def provider(self) -> Json:
        """The member ``emulated`` of the site's provider."""
        return {
            "guests": self.guests,
            "profile": self.profile,
            "timeScalePercent": round(self.time_scale * 100),
        }


def guests_for(n: int) -> str:
    """Return the kind of guests: ``process`` for few machines; ``shared`` for many, which takes less memory."""
    return "process" if n <= MAX_PROCESS_GUESTS else "shared"


def namespace() -> Json:
    """Return the namespace of the other objects."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def objects(load: Load, program: Path = PROGRAM) -> list[Json]:
    """Return a service, a site, and a pool without workers; the program is a file `program.py` with a PROGRAM_CLASS."""
    content = {"path": "program.py", "content": program.read_text()}
    service = {
        "interface": load_class(PROGRAM_CLASS, program.parent).interface.to_json(),
        "connector": {"python": {"class": PROGRAM_CLASS}, "files": [content]},
        # Some profiles are about slow clouds: the platform must not replace slow workers.
        "readinessDeadlineSeconds": PATIENCE_SECONDS,
    }
    pool = {"serviceRef": {"name": NAME}, "replicas": 0, "placement": {"sites": [NAME]}}
    return [
        _object(names.SIMULATION_SERVICES, service),
        _object(names.CLOUD_SITES, {"provider": {"emulated": load.provider}}),
        _object(names.WORKER_POOLS, pool),
    ]


def pool_manifest() -> Json:
    """Return a manifest that names the pool."""
    return _object(names.WORKER_POOLS, {})


def _object(kind: Resource, spec: Json) -> Json:
    metadata = {"name": NAME, **({"namespace": NAMESPACE} if kind.namespaced else {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
