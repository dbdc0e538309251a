# SPDX-License-Identifier: Apache-2.0
"""The window of a consumer: deliveries that are neither acknowledged nor rejected. Pure.

Deliveries finish in any order, so that a slow write does not delay other deliveries. One acknowledgement with
``multiple`` covers all deliveries that finished in the order of arrival.

One sender holds at most half of the window, in number and in bytes; the other half belongs to other senders.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from simyard_adapter.limits import MIB


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """The bounds of a window.

    Attributes:
        deliveries: the largest number of deliveries (the prefetch). Registrations of a starting pool wait in the window
            for their writes, and all those of 10,000 workers fit into the share of one sender. Deliveries above this
            share pass the broker a second time, which costs the operator and the broker a tenth more CPU for a start.
        held_bytes: the largest total size of the bodies.
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
        """The arrival time of the oldest unfinished delivery; None if there is none."""
        return next(iter(self._held.values())).since if self._held else None

    def add(self, tag: int, sender: str, size: int, now: float) -> bool:
        """Add a delivery and return whether it fits into its sender's share and into the window."""
        shared = self._counts[sender] < self._settings.deliveries // 2
        shared = shared and self._sizes[sender] + size <= self._settings.held_bytes // 2
        fits = shared and self._bytes + size <= self._settings.held_bytes
        self._held[tag] = _Held(sender, size, now)
        self._counts[sender] += 1
        self._sizes[sender] += size
        self._bytes += size
        return fits

    def finish(self, tag: int, *, accepted: bool) -> None:
        """Note that a delivery was handled (``accepted``) or refused."""
        self._finished[tag] = accepted

    def collect_acknowledgements(self) -> list[Acknowledgement]:
        """Return the answers for all deliveries that finished since the last call, and release them."""
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
