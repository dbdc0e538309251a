# SPDX-License-Identifier: Apache-2.0
"""The optimiser's process: it keeps its copy of the studies current, and continues their searches."""

from __future__ import annotations

import asyncio

from simyard.api.names import STUDIES
from simyard.api.study import Study
from simyard.files.store import ObjectStore
from simyard.kube.cache import ALL_NAMESPACES, MAX_AGE_SECONDS, Cache
from simyard.optimiser.reconciler import Optimisations
from simyard.serving.checks import HealthCheck
from simyard_sites.kubernetes.client import KubeClient


class Optimiser:
    """The parts of the process."""

    def __init__(self, client: KubeClient, store: ObjectStore, namespaces: tuple[str, ...] = ALL_NAMESPACES) -> None:
        indexes = {"uid": lambda study: [study.metadata.uid]}
        self.studies = Cache(client, STUDIES, Study.model_validate, indexes=indexes, namespaces=namespaces)
        self._optimisations = Optimisations(client, self.studies, store)
        self.studies.subscribe(self._optimisations.study_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.studies.run(), name="cache of studies")
            group.create_task(self._optimisations.run(), name="optimisations")

    def list_checks(self) -> list[HealthCheck]:
        """Return the checks that decide about readiness."""
        age = self.studies.measure_age_seconds()
        synced = self.studies.synced.is_set()
        return [
            HealthCheck(
                "studies", synced and age < MAX_AGE_SECONDS, f"heard of {age:.0f} s ago" if synced else "not listed"
            )
        ]
