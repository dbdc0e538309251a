"""The deliveries of one consumer that are not settled yet: no I/O.

A consumer settles each delivery when it is handled, in any order, so that one slow write holds up nobody else. What is
settled in the order of arrival is acknowledged in one go.

One sender holds at most half of the window, in number and in bytes: the rest belongs to the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from simyard_adapter.limits import MIB


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Bounds of what a consumer holds: deliveries in all (the prefetch), bytes in all."""

    deliveries: int = 1000
    held_bytes: int = 24 * MIB


@dataclass(frozen=True, slots=True)
class Settlement:
    """What the broker is told: ``multiple`` means this tag and all before it."""

    tag: int
    accepted: bool
    multiple: bool = False


@dataclass(frozen=True, slots=True)
class _Held:
    sender: str
    size: int
    since: float


class Window:
    """What a consumer was delivered and has not settled, by delivery tag."""

    def __init__(self, settings: WindowSettings) -> None:
        self._settings = settings
        self._held: dict[int, _Held] = {}
        self._settled: dict[int, bool] = {}
        self._bytes = 0
        self._counts: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def oldest(self) -> float | None:
        """When the oldest delivery came that is not settled."""
        return next(iter(self._held.values())).since if self._held else None

    def add(self, tag: int, sender: str, size: int, now: float) -> bool:
        """Take a delivery in; False when it is more than its sender's share, or than can be held."""
        shared = self._counts[sender] < self._settings.deliveries // 2
        shared = shared and self._sizes[sender] + size <= self._settings.held_bytes // 2
        fits = shared and self._bytes + size <= self._settings.held_bytes
        self._held[tag] = _Held(sender, size, now)
        self._counts[sender] += 1
        self._sizes[sender] += size
        self._bytes += size
        return fits

    def settle(self, tag: int, *, accepted: bool) -> None:
        """Note that a delivery is handled, or refused."""
        self._settled[tag] = accepted

    def take(self) -> list[Settlement]:
        """Return what to tell the broker of all that was settled since the last call."""
        settlements: list[Settlement] = []
        first: int | None = None
        for tag in self._held:
            if not self._settled.get(tag, False):
                break
            first = tag
        if first is not None:
            settlements.append(Settlement(first, accepted=True, multiple=True))
        settlements += [
            Settlement(tag, accepted) for tag, accepted in self._settled.items() if first is None or tag > first
        ]
        for tag in self._settled:
            self._release(tag)
        self._settled = {}
        return settlements

    def _release(self, tag: int) -> None:
        held = self._held.pop(tag)
        self._bytes -= held.size
        self._counts[held.sender] -= 1
        self._sizes[held.sender] -= held.size
        if not self._counts[held.sender]:
            del self._counts[held.sender], self._sizes[held.sender]
