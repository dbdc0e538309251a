# SPDX-License-Identifier: Apache-2.0
"""Workers that studies ask of their pool.

A study changes no pool. The pool has as many workers as its own spec says, or as the most demanding of its studies
asks, whichever is more. So the user, an autoscaler and several studies cannot undo each other's changes, and the
workers leave as soon as the study has ended, also if the operator was away meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from simyard.api.study import Study
from simyard.plan.studies.study import is_finished


def compute_demand(studies: Iterable[Study]) -> int:
    """Return the number of workers that the studies of a pool ask for."""
    return max(map(_compute, studies), default=0)


def _compute(study: Study) -> int:
    """Return the number of workers that a study asks for: at most one for each chunk that has not ended."""
    wanted, status = study.spec.workers, study.status
    idle = study.spec.suspend or study.spec.cancel or is_finished(study)
    if wanted is None or idle or study.metadata.deletion_timestamp is not None or status.tasks is None:
        return 0
    chunks = math.ceil((status.tasks - status.succeeded - status.failed) / (status.chunk_tasks or 1))
    return max(wanted.min, min(wanted.max, chunks))
