# SPDX-License-Identifier: Apache-2.0
"""Workers that studies ask of their pool.

A study changes no pool. The pool has as many workers as its own spec says, or as the most demanding of its studies
asks, whichever is more. So the user, an autoscaler and several studies cannot undo each other's changes, and the
workers leave as soon as the study has ended, also if the operator was away meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from simyard.api.base import find_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.optimisation import OptimisedDesign
from simyard.api.study import Study
from simyard.plan.studies.generations import Generations
from simyard.plan.studies.study import is_finished


def compute_demand(studies: Iterable[Study]) -> int:
    """Return the number of workers that the studies of a pool ask for."""
    return max(map(_compute, studies), default=0)


def _compute(study: Study) -> int:
    """Return the number of workers that a study asks for: at most one for each chunk that it can run."""
    wanted, status = study.spec.workers, study.status
    idle = study.spec.suspend or study.spec.cancel or is_finished(study)
    if wanted is None or idle or study.metadata.deletion_timestamp is not None or status.tasks is None:
        return 0
    tasks = status.tasks - status.succeeded - status.failed
    if study.spec.design.optimise is not None:
        tasks = min(tasks, _count_search_tasks(study, study.spec.design.optimise))
    asked = max(wanted.min, min(wanted.max, math.ceil(tasks / (status.chunk_tasks or 1))))
    return asked if study.spec.parallelism is None else min(asked, study.spec.parallelism)


def _count_search_tasks(study: Study, design: OptimisedDesign) -> int:
    """Return the number of tasks of a search that can run at the same time: its generation; 0 without points.

    The number does not fall towards the end of a generation, and the short time until the points of the next
    generation are chosen does not count. Otherwise, each generation would stop and start the workers.
    """
    search = study.status.optimisation
    if search is None or not search.generations:
        return 0
    complete = find_condition(study.status.conditions, ConditionType.COMPLETE)
    if complete is not None and complete.reason == Reason.WAITING_FOR_OPTIMISER:
        return 0
    return Generations.read(design).size
