# SPDX-License-Identifier: Apache-2.0
"""The window of a consumer: its deliveries that are not acknowledged or rejected yet. The module does no I/O.

Deliveries may finish in any order, so that a slow write does not delay other deliveries. If all deliveries up to one
are finished, a single acknowledgement with ``multiple`` covers them.

The share of one sender is half of the window, in number and in bytes, so that there is room for other senders.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from simyard_adapter.limits import MIB


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """The bounds of a window.

    Attributes:
        deliveries: the maximum number of deliveries (the prefetch). When a pool starts, its registrations wait in the
            window for their writes; the registrations of 10,000 workers fit into the share of one sender. Deliveries
            above the share pass the broker a second time, which increases the CPU time of a start by a tenth.
        held_bytes: the maximum total size of the bodies.
    """

    deliveries: int = 25_000
    held_bytes: int = 24 * MIB


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """An answer to the broker for one delivery; with ``multiple``, also for all deliveries before it."""

    tag: int
    accepted: bool
    multiple: bool = False


@dataclass(frozen=True, slots=True)
class _Held:
    sender: str
    size: int
    since: float


class Window:
    """The unfinished deliveries of one consumer by delivery tag."""

    def __init__(self, settings: WindowSettings) -> None:
        self._settings = settings
        self._held: dict[int, _Held] = {}
        self._finished: dict[int, bool] = {}
        self._bytes = 0
        self._counts: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def oldest(self) -> float | None:
        """Arrival time of the oldest unfinished delivery; None if all are finished."""
        return next(iter(self._held.values())).since if self._held else None

    def add(self, tag: int, sender: str, size: int, now: float) -> bool:
        """Add a delivery; return whether it fits into its sender's share and into the window."""
        shared = self._counts[sender] < self._settings.deliveries // 2
        shared = shared and self._sizes[sender] + size <= self._settings.held_bytes // 2
        fits = shared and self._bytes + size <= self._settings.held_bytes
        self._held[tag] = _Held(sender, size, now)
        self._counts[sender] += 1
        self._sizes[sender] += size
        self._bytes += size
        return fits

    def finish(self, tag: int, *, accepted: bool) -> None:
        """Record that the handler has accepted or refused a delivery."""
        self._finished[tag] = accepted

    def collect_acknowledgements(self) -> list[Acknowledgement]:
        """Remove the finished deliveries from the window, and return the answers for them to the broker."""
        answers: list[Acknowledgement] = []
        first: int | None = None
        for tag in self._held:
            if not self._finished.get(tag, False):
                break
            first = tag
        if first is not None:
            answers.append(Acknowledgement(first, accepted=True, multiple=True))
        answers += [
            Acknowledgement(tag, accepted) for tag, accepted in self._finished.items() if first is None or tag > first
        ]
        for tag in self._finished:
            self._release(tag)
        self._finished = {}
        return answers

    def _release(self, tag: int) -> None:
        held = self._held.pop(tag)
        self._bytes -= held.size
        self._counts[held.sender] -= 1
        self._sizes[held.sender] -= held.size
        if not self._counts[held.sender]:
            del self._counts[held.sender], self._sizes[held.sender]
