# SPDX-License-Identifier: Apache-2.0
"""Limit of the cost of a study (``spec.maxCost``)."""

from __future__ import annotations

from simyard.api.names import Reason
from simyard.api.study import Study
from simyard.plan.studies.layout import Layout
from simyard.plan.studies.progress import Progress
from simyard.plan.studies.study import Ending


def count_affordable(study: Study, progress: Progress, layout: Layout, assigned: int) -> int:
    """Return how many further chunks fit into the limit, if their tasks cost what the others have cost on average.

    Args:
        study: the study.
        progress: sums over the chunks that have ended.
        layout: division of the tasks.
        assigned: number of chunks that workers have.
    """
    if study.spec.max_cost is None or not progress.cost_millis:
        return layout.chunks
    chunk = progress.cost_millis / progress.tasks * (layout.length or 1)
    left = 1000 * float(study.spec.max_cost) - progress.cost_millis - chunk * assigned
    return max(0, int(min(left / chunk, layout.chunks)))  # a limit of 1e999 is infinite


def plan_cost_end(study: Study, progress: Progress, layout: Layout, assigned: int) -> Ending | None:
    """Return the end of a study that has reached the limit of its cost; None if it goes on."""
    if study.spec.max_cost is None:
        return None
    spent = f"{progress.cost_millis / 1000:.2f} of spec.maxCost {study.spec.max_cost} is spent"
    if progress.cost_millis >= 1000 * float(study.spec.max_cost):
        return Ending(Reason.MAX_COST_REACHED, spent)
    if not assigned and not count_affordable(study, progress, layout, 0):
        return Ending(Reason.MAX_COST_REACHED, f"{spent}, and the next chunk would cost more than the rest")
    return None
