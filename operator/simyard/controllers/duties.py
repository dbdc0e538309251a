"""The objects that wait for kopf: evidence that kopf makes progress, whatever it says of itself.

kopf runs in a thread with a loop of its own, and some of its failures end in silence: it lives, but no object gets a
finalizer or loses one. So progress is measured at the objects. A pool or site waits for kopf while it has no finalizer,
and while it is being deleted and has one. As long as objects wait and none of them moves on, kopf stands still.
"""

from __future__ import annotations

from collections.abc import Callable

from simyard.api.names import FINALIZER
from simyard.kube.cache import HasMetadata


class Duties:
    """The pools and sites that wait for kopf, by uid, each with the time since when; the longest first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds."""
        self._clock = clock
        self._since: dict[str, float] = {}
        self._moved = clock()

    def changed(self, old: HasMetadata | None, new: HasMetadata | None) -> None:
        """Take a change of an object from its cache."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid or not _waits(new)):
            self._move(old.metadata.uid)
        if new is not None and _waits(new):
            self._since.setdefault(new.metadata.uid, self._clock())

    def called(self, uid: str) -> None:
        """Note that kopf has called the handler of an object: it goes on waiting from now."""
        if uid in self._since:
            self._move(uid)
            self._since[uid] = self._clock()

    def _move(self, uid: str) -> None:
        if self._since.pop(uid, None) is not None:
            self._moved = self._clock()

    def stalled_seconds(self) -> float:
        """Return for how long objects have waited without any of them moving on; 0 when none waits."""
        oldest = next(iter(self._since.values()), None)
        return 0.0 if oldest is None else self._clock() - max(oldest, self._moved)


def _waits(item: HasMetadata) -> bool:
    deleted = item.metadata.deletion_timestamp is not None
    return deleted == (FINALIZER in item.metadata.finalizers)
