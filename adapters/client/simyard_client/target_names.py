# SPDX-License-Identifier: Apache-2.0
"""Names of targets: the objects on which actions are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simyard_client.paths import SIMULATION_SERVICES, WORKER_POOLS, WORKERS, Json

KINDS: Mapping[str, str] = {WORKERS: "Worker", WORKER_POOLS: "WorkerPool", SIMULATION_SERVICES: "SimulationService"}


@dataclass(frozen=True)
class TargetName:
    """The object on which actions are called: its resource, namespace and name."""

    plural: str
    namespace: str
    name: str

    @property
    def reference(self) -> Json:
        """The target as ``spec.target`` of a ServiceAction or a Study."""
        return {"kind": KINDS[self.plural], "name": self.name}
