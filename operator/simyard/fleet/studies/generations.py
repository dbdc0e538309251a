# SPDX-License-Identifier: Apache-2.0
"""Loads the points of optimisations, which another process chooses (:mod:`simyard.files.generations`)."""

from __future__ import annotations

from simyard.api.study import Study
from simyard.files.generations import GenerationStore
from simyard.files.store import StoreError
from simyard.fleet.studies.runs import Run
from simyard.plan.studies.designs import Searched

PATIENCE_SECONDS = 10.0
"""Time without points after which the status says so."""


async def load_generations(store: GenerationStore, study: Study, run: Run) -> None:
    """Load the points that were chosen since the last pass, and forget those of finished generations.

    Raises:
        StoreError: the store does not answer, or a generation cannot be read.
    """
    design = run.design
    if not isinstance(design, Searched):
        return
    chosen = study.status.optimisation.generations if study.status.optimisation is not None else 0
    for number in range(design.chosen, chosen):
        if not _is_finished(run, number):
            found = await store.read(run.keys, number)
            if found is None or len(found.points) != design.generations.size:
                raise StoreError(
                    f"the points of the generation {number} of the study {study.metadata.name} are missing"
                )
            design.coordinates[number] = found.points
        design.chosen = number + 1
    for number in [number for number in design.coordinates if _is_finished(run, number)]:
        del design.coordinates[number]


def misses_points(run: Run, time: float) -> bool:
    """Return whether workers have had nothing to do for a while, because the next points are not chosen."""
    if not isinstance(run.design, Searched) or run.assigned or run.count_open():
        run.idle_since = None
        return False
    run.idle_since = time if run.idle_since is None else run.idle_since
    return time - run.idle_since >= PATIENCE_SECONDS


def _is_finished(run: Run, number: int) -> bool:
    chunks = run.layout.list_chunks(number)
    return bool(chunks) and all(chunk in run.progress.finished for chunk in chunks)
