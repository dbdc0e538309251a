# SPDX-License-Identifier: Apache-2.0
"""The generations of optimisations in the store: what the algorithm chose, and the results by which it chose.

The process ``simyard optimiser`` creates one object for each generation, and never replaces it: of two processes, the
first wins. All objects of a study together are the checkpoint of its algorithm. They have the results that the
algorithm has received, in the order in which it received them. A process that starts again gives these results to a new
algorithm with the same seed, which then has the same random state and makes the same choices.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

import orjson
from pydantic import ValidationError

from simyard.api.optimisation import OptimisationStatus
from simyard.files.keys import StudyKeys
from simyard.files.objects import Objects
from simyard.files.store import MAX_TABLE_BYTES, StoreError
from simyard.plan.studies.evaluations import Values


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation as the store keeps it.

    Attributes:
        points: coordinates in [0, 1] of its points; empty if the search has ended.
        told: the results of tasks of former generations that the algorithm received before it chose the points, by the
            index of the task; None for a task that failed.
        status: the state of the search.
    """

    points: Sequence[Sequence[float]]
    told: Mapping[int, Values | None] = field(default_factory=dict)
    status: OptimisationStatus = field(default_factory=OptimisationStatus)

    def to_bytes(self) -> bytes:
        """Return the content of the object."""
        told = [[index, values] for index, values in self.told.items()]
        return orjson.dumps({"points": self.points, "told": told, "status": self.status.to_json()})

    @classmethod
    def read(cls, content: bytes) -> Generation:
        """Read the content of an object.

        Raises:
            ValueError: the content has another form.
        """
        try:
            data = orjson.loads(content)
            return cls(
                [[float(item) for item in point] for point in data["points"]],
                {int(index): None if values is None else tuple(values) for index, values in data["told"]},
                OptimisationStatus.model_validate(data["status"]),
            )
        except (KeyError, TypeError, ValidationError) as error:
            raise ValueError(f"has another form: {error}") from None


class GenerationStore:
    """The generations of all studies. Every method raises a StoreError if the store does not answer."""

    def __init__(self, store: Objects) -> None:
        self._store = store

    async def read(self, keys: StudyKeys, number: int) -> Generation | None:
        """Return a generation; None if it is not chosen yet.

        Raises:
            StoreError: the generation cannot be read.
        """
        content = await self._store.get_object(keys.make_generation(number), MAX_TABLE_BYTES)
        try:
            return None if content is None else Generation.read(content)
        except ValueError as error:
            raise StoreError(f"the generation {number} of the study {keys.study_uid} {error}") from None

    async def read_all(self, keys: StudyKeys) -> AsyncIterator[Generation]:
        """Yield all generations, in their order."""
        number = 0
        while (found := await self.read(keys, number)) is not None:
            yield found
            number += 1

    async def create(self, keys: StudyKeys, number: int, generation: Generation) -> bool:
        """Store a generation unless there is one with this number; return whether it was stored."""
        return await self._store.create_object(keys.make_generation(number), generation.to_bytes())
