# SPDX-License-Identifier: Apache-2.0
"""Generations of a study with the design ``optimise``: which tasks belong to which generation and island.

The process ``simyard optimiser`` chooses the points of a generation when enough tasks of the generation before it have
ended. All generations have the same number of tasks, so the index of a task tells its generation and its island.
"""

from __future__ import annotations

from dataclasses import dataclass

from simyard.api.optimisation import MAX_GENERATIONS, OptimisedDesign
from simyard.api.study import MAX_CHUNK_TASKS, MAX_CHUNKS
from simyard.plan.studies.layout import ChunkSet, Layout
from simyard_adapter.declarations import InvalidValueError

SHARES_PER_WORKER = 2
"""Least number of chunks of a generation for each worker, so that all workers end at about the same time."""


@dataclass(frozen=True, slots=True)
class Generations:
    """The generations of a study.

    Attributes:
        count: largest number of generations.
        islands: number of islands.
        population: number of tasks of each island in a generation.
        quorum: number of tasks of a generation that must have ended before the next one is chosen.
    """

    count: int
    islands: int
    population: int
    quorum: int

    @classmethod
    def read(cls, design: OptimisedDesign) -> Generations:
        """Return the generations of a design."""
        islands = design.islands.count if design.islands is not None else 1
        size = islands * design.population
        count = design.generations or MAX_GENERATIONS
        if design.evaluations is not None:
            count = min(count, max(1, design.evaluations // size))
        return cls(count, islands, design.population, -(-size * design.quorum_percent // 100))

    @property
    def size(self) -> int:
        """Number of tasks of a generation."""
        return self.islands * self.population

    @property
    def tasks(self) -> int:
        """Number of tasks of all generations."""
        return self.count * self.size

    def get_tasks(self, generation: int) -> range:
        """Return the indexes of the tasks of a generation."""
        return range(generation * self.size, (generation + 1) * self.size)

    def get_island(self, index: int) -> int:
        """Return the island of a task."""
        return index % self.size // self.population

    def check(self, path: str) -> None:
        """Raise an InvalidValueError if the generations need more chunks than a study may have."""
        if self.size > MAX_CHUNK_TASKS * (MAX_CHUNKS // self.count):
            problem = f"{self.count} generations of {self.size} tasks are too many: have fewer islands or evaluations"
            raise InvalidValueError(path, problem)

    def make_layout(self, wanted: int | None, decided: int | None) -> Layout:
        """Return the chunks: no chunk has tasks of two generations.

        Args:
            wanted: ``spec.chunkTasks``.
            decided: ``status.chunkTasks``; None if it is not decided yet.
        """
        length = self._limit_length(wanted) if wanted is not None else decided
        return Layout(self.tasks, 0, length, self.size)

    def choose_length(self, workers: int) -> int:
        """Return the number of tasks of a chunk for a number of workers."""
        return self._limit_length(self.size // (SHARES_PER_WORKER * max(1, workers)))

    def _limit_length(self, length: int) -> int:
        least = -(-self.size // (MAX_CHUNKS // self.count))
        return min(max(length, least, 1), MAX_CHUNK_TASKS)

    def is_ready(self, generation: int, layout: Layout, finished: ChunkSet) -> bool:
        """Return whether enough tasks of a generation have ended to choose the next one; all tasks of the last one."""
        chunks = (chunk for chunk in layout.list_chunks(generation) if chunk in finished)
        ended = sum(len(layout.get_tasks(chunk)) for chunk in chunks)
        return ended >= (self.size if generation == self.count - 1 else self.quorum)
