# SPDX-License-Identifier: Apache-2.0
"""The chunks of one study that workers have: by chunk, by worker, and in the order in which they were sent.

A study with 1,000 workers has 2,000 chunks under way, and a pass runs for each message of a worker. So every question
of a pass is answered from an index, and costs as much as its answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Flight:
    """A chunk that was assigned to a worker and has not ended.

    Attributes:
        chunk: number of the chunk.
        attempt: number of the assignment, from 1.
        worker_uid: uid of the worker.
        size: bytes of its rows, as the worker said when it asked to upload them.
    """

    chunk: int
    attempt: int
    worker_uid: str
    size: int = 0


class Assigned:
    """The flights of one study. ``loads``, which all studies share, has the number of flights of each worker."""

    def __init__(self, loads: Counter[str]) -> None:
        self._loads = loads
        self._flights: dict[int, Flight] = {}
        self._of_worker: dict[str, dict[int, Flight]] = {}
        self._unsent: dict[int, Flight] = {}
        self._sent: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(list(self._flights.values()))

    def __contains__(self, chunk: int) -> bool:
        return chunk in self._flights

    @property
    def workers(self) -> int:
        """Number of workers that have chunks."""
        return len(self._of_worker)

    def find(self, chunk: int) -> Flight | None:
        """Return the flight of a chunk; None if no worker has it."""
        return self._flights.get(chunk)

    def list_of(self, worker_uid: str) -> list[Flight]:
        """Return the flights of a worker."""
        return list(self._of_worker.get(worker_uid, {}).values())

    def count(self, worker_uid: str) -> int:
        """Return the number of flights of a worker."""
        return len(self._of_worker.get(worker_uid, ()))

    def add(self, flight: Flight) -> None:
        """Add a flight that was not sent yet."""
        self._flights[flight.chunk] = self._unsent[flight.chunk] = flight
        self._of_worker.setdefault(flight.worker_uid, {})[flight.chunk] = flight
        self._loads[flight.worker_uid] += 1

    def remove(self, chunk: int) -> Flight | None:
        """Remove the flight of a chunk, and return it; None if no worker has the chunk."""
        flight = self._flights.pop(chunk, None)
        if flight is None:
            return None
        self._unsent.pop(chunk, None)
        self._sent.pop(chunk, None)
        mine = self._of_worker[flight.worker_uid]
        del mine[chunk]
        if not mine:
            del self._of_worker[flight.worker_uid]
        self._loads[flight.worker_uid] -= 1
        if not self._loads[flight.worker_uid]:
            del self._loads[flight.worker_uid]
        return flight

    def clear(self) -> None:
        """Remove all flights."""
        for chunk in list(self._flights):
            self.remove(chunk)

    def mark_unsent(self, flight: Flight) -> None:
        """Have a flight sent again."""
        self._sent.pop(flight.chunk, None)
        self._unsent[flight.chunk] = flight

    def mark_sent(self, flight: Flight, now: float) -> None:
        """Record that a flight was sent, unless it has ended meanwhile."""
        if flight.chunk in self._flights:
            self._unsent.pop(flight.chunk, None)
            self._sent.pop(flight.chunk, None)
            self._sent[flight.chunk] = now

    def list_unsent(self) -> list[Flight]:
        """Return the flights that must be sent."""
        return list(self._unsent.values())

    def list_sent_before(self, time: float) -> list[Flight]:
        """Return the flights that were last sent before a time."""
        found = []
        for chunk, sent in self._sent.items():  # the order of a dict is that of the additions, and so of the times
            if sent > time:
                break
            found.append(self._flights[chunk])
        return found

    def get_first_sent(self) -> float | None:
        """Return the time of the flight that was not sent for the longest time; None if none was sent."""
        return next(iter(self._sent.values()), None)
