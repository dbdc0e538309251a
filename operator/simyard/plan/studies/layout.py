# SPDX-License-Identifier: Apache-2.0
"""Chunks of a study: which tasks belong to which chunk, and the set of finished chunks.

A study whose chunk length is not given begins with some chunks of one task. Their duration decides the length of all
others. The layout is a function of three numbers, so nothing is stored per chunk but one bit.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from dataclasses import dataclass

from simyard.api.study import MAX_CHUNK_TASKS, MAX_CHUNKS

TRIAL_CHUNKS = 16
"""Number of chunks of one task with which a study begins; each goes to a worker of its own if there are enough."""
TARGET_SECONDS = 30.0
"""Desired duration of a chunk."""
MIN_SECONDS = 0.25
"""Least desired duration of a chunk: to assign, send, store and count a chunk costs CPU, whatever its length."""
SHARES_PER_WORKER = 4
"""Least number of chunks for each worker, so that all workers end at about the same time."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Division of the tasks of a study.

    Attributes:
        tasks: number of tasks of the study.
        trials: number of first chunks that have one task each.
        length: number of tasks of each further chunk; the last may have fewer. None while it is not known.
        generation: number of tasks of each generation of an optimisation; the last chunk of a generation may have
            fewer tasks than the others. None without generations.
    """

    tasks: int
    trials: int
    length: int | None
    generation: int | None = None

    @property
    def chunks(self) -> int:
        """Number of chunks, as far as they are known."""
        if self.length is None:
            return self.trials
        if self.generation is not None:
            return self.tasks // self.generation * math.ceil(self.generation / self.length)
        return self.trials + math.ceil((self.tasks - self.trials) / self.length)

    def list_chunks(self, generation: int) -> range:
        """Return the chunks of a generation of an optimisation; none while their length is not known."""
        if self.length is None or self.generation is None:
            return range(0)
        chunks = math.ceil(self.generation / self.length)
        return range(generation * chunks, (generation + 1) * chunks)

    def get_tasks(self, chunk: int) -> range:
        """Return the indexes of the tasks of a chunk."""
        if chunk < self.trials:
            return range(chunk, chunk + 1)
        length = self.length or 1
        if self.generation is not None:
            generation, place = divmod(chunk, math.ceil(self.generation / length))
            first = generation * self.generation + place * length
            return range(first, min(first + length, (generation + 1) * self.generation))
        first = self.trials + (chunk - self.trials) * length
        return range(first, min(first + length, self.tasks))


def make_layout(tasks: int, wanted: int | None, decided: int | None) -> Layout:
    """Return the layout of a study.

    Args:
        tasks: number of tasks.
        wanted: ``spec.chunkTasks``.
        decided: ``status.chunkTasks``; None if it is not decided yet.
    """
    if wanted is not None:
        return Layout(tasks, 0, _limit_length(tasks, 0, wanted))
    if tasks > (MAX_CHUNKS - TRIAL_CHUNKS) * MAX_CHUNK_TASKS:
        return Layout(tasks, 0, MAX_CHUNK_TASKS)  # there are no chunks left for a choice
    trials = min(tasks, TRIAL_CHUNKS)
    return Layout(tasks, trials, 1 if trials == tasks else decided)


def choose_length(layout: Layout, mean_seconds: float, workers: int) -> int:
    """Return the length of chunks after the first tasks have ended.

    Args:
        layout: the layout, without a length.
        mean_seconds: mean duration of the tasks that have ended.
        workers: number of workers that can run tasks.
    """
    mean_seconds = max(mean_seconds, 1e-6)
    by_share = math.ceil((layout.tasks - layout.trials) / (SHARES_PER_WORKER * max(1, workers)))
    wanted = min(max(by_share, int(MIN_SECONDS / mean_seconds)), int(TARGET_SECONDS / mean_seconds))
    return _limit_length(layout.tasks, layout.trials, min(wanted, layout.tasks - layout.trials))


def _limit_length(tasks: int, trials: int, length: int) -> int:
    least = math.ceil((tasks - trials) / (MAX_CHUNKS - trials))
    return min(max(length, least, 1), MAX_CHUNK_TASKS)


class ChunkSet:
    """A set of chunks, one bit for each."""

    def __init__(self, bits: int = 0) -> None:
        self._bits = bits

    @classmethod
    def decode(cls, text: str) -> ChunkSet:
        """Return the set in a status (``status.finishedChunks``)."""
        return cls(int.from_bytes(base64.b64decode(text), "little"))

    def encode(self) -> str:
        """Return the set as a status stores it: the first chunk in the lowest bit of the first byte; base64."""
        return base64.b64encode(self._bits.to_bytes((self._bits.bit_length() + 7) // 8, "little")).decode()

    def __contains__(self, chunk: int) -> bool:
        return bool(self._bits >> chunk & 1)

    def __len__(self) -> int:
        return self._bits.bit_count()

    def __iter__(self) -> Iterator[int]:
        return (chunk for chunk in range(self._bits.bit_length()) if chunk in self)

    def add(self, chunk: int) -> None:
        """Add a chunk."""
        self._bits |= 1 << chunk

    def find_missing(self, start: int, end: int) -> int:
        """Return the first chunk from ``start`` on that is not in the set; ``end`` if all are."""
        rest = ~(self._bits >> start)
        return min(end, start + (rest & -rest).bit_length() - 1)
