# SPDX-License-Identifier: Apache-2.0
"""Search of a study: its islands, their generations, and the migration between them. Pure; it waits for nothing.

The search is a function of the design and of the results that it receives: the same results in the same order lead to
the same points. A stored search is therefore continued by a replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from simyard.api.optimisation import BestPoint, NamedValue, OptimisationStatus, OptimisedDesign, SearchEnd
from simyard.files.generations import Generation
from simyard.guest.rows import TaskRow
from simyard.optimiser.islands import make_island
from simyard.plan.studies.evaluations import Archive, Values, evaluate
from simyard.plan.studies.generations import Generations
from simyard.plan.studies.sequences import derive_key

T = TypeVar("T")
Points = list[list[float]]


class Search:
    """The state of the search of a study.

    Attributes:
        generations: the tasks of each generation.
        chosen: number of generations whose points are chosen.
        missing: indexes of tasks whose results the search has not received.
        status: the state as the Study shows it.
    """

    def __init__(self, design: OptimisedDesign) -> None:
        self.generations = Generations.read(design)
        self.chosen = 0
        self.missing: set[int] = set()
        self.status = OptimisationStatus()
        self._design = design
        self._archive = Archive(design)
        count = self.generations.islands
        self._islands = [make_island(design, derive_key(design.seed, place, "island") >> 33) for place in range(count)]

    def replay(self, stored: Generation) -> bool:
        """Repeat a stored step; return whether the choice was the same.

        If it differs, as with another version of a library, the search continues with the points in the store.
        """
        self._receive(stored.told)
        self.status = stored.status
        if not stored.points:
            return True
        points = self._ask()
        if same := points == stored.points:
            return True
        for island, part in zip(self._islands, self._split(stored.points), strict=True):
            island.adopt(np.array(part))
        return same

    def choose(self, rows: Mapping[int, TaskRow | None]) -> Generation:
        """Receive the rows of tasks, and return the next generation; its points are empty if the search ends.

        A task whose row is None has failed.
        """
        told = {index: None if row is None else row.results for index, row in sorted(rows.items())}
        self._receive(told)
        ended = self._archive.find_end(self.chosen, self.generations.count) if self.chosen else None
        points = [] if ended is not None else self._ask()
        self.status = self._make_status(rows, ended)
        return Generation(points, told, self.status)

    def _receive(self, told: Mapping[int, Values | None]) -> None:
        """Give the results to the archive, and those of the newest generation to the islands."""
        if not self.chosen:
            return
        self.missing.difference_update(told)
        self._archive.add_generation(told)
        newest = self.generations.get_tasks(self.chosen - 1)
        evaluations = [evaluate(self._design, told.get(index)) for index in newest]
        for island, part in zip(self._islands, self._split(evaluations), strict=True):
            island.tell(part)
        settings = self._design.islands
        if settings is not None and self.chosen % settings.interval == 0:
            self._migrate(settings.migrants, complete=settings.topology == "Complete")

    def _migrate(self, migrants: int, *, complete: bool) -> None:
        emigrants = [island.select_emigrants(migrants) for island in self._islands]
        count = len(self._islands)
        for sender in range(count):
            receivers = range(sender + 1, sender + (count if complete else min(2, count)))
            for receiver in receivers:
                self._islands[receiver % count].add_immigrants(emigrants[sender])

    def _ask(self) -> Points:
        points: Points = [row for island in self._islands for row in island.ask().tolist()]
        self.missing.update(self.generations.get_tasks(self.chosen))
        self.chosen += 1
        return points

    def _split(self, items: Sequence[T]) -> list[Sequence[T]]:
        """Return the items of each island."""
        length = self.generations.population
        return [items[start : start + length] for start in range(0, len(items), length)]

    def _make_status(self, rows: Mapping[int, TaskRow | None], ended: SearchEnd | None) -> OptimisationStatus:
        archive, several = self._archive, len(self._design.objectives) > 1
        return OptimisationStatus(
            generations=self.chosen,
            evaluations=archive.evaluations,
            feasible=archive.feasible,
            best=self._make_best(rows),
            front_size=len(archive.front) if several else None,
            ended=ended,
        )

    def _make_best(self, rows: Mapping[int, TaskRow | None]) -> BestPoint | None:
        index = self._archive.best
        row = None if index is None else rows.get(index)
        if index is None or row is None or row.results is None:
            return self.status.best  # the best point is that of an earlier generation
        parameters = [NamedValue(name=name, value=text) for name, text in row.parameters.items()]
        return BestPoint(index=index, value=f"{row.results[0]:.10g}", parameters=parameters)
