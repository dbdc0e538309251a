# SPDX-License-Identifier: Apache-2.0
"""Finds the machines of a site that have no Worker, and gives them up after a grace period."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from prometheus_client import Counter

from simyard.fleet.registry import Registry
from simyard_sites.base import Machine, MachineState

ORPHANS = Counter("simyard_site_orphans_total", "Machines that were deleted because they had no Worker.", ["site"])


class Orphans:
    """The Workers, by uid, that machines of one site name and that do not exist.

    ``removed`` is called with a machine that has had no Worker for ``grace_seconds``, unless its Worker was seen to be
    deleted.
    """

    def __init__(self, name: str, registry: Registry, grace_seconds: float, removed: Callable[[Machine], None]) -> None:
        self.grace_seconds = grace_seconds
        self._name = name
        self._registry = registry
        self._removed = removed
        self._since: dict[str, float] = {}
        self._clock = asyncio.get_running_loop().time

    @property
    def uids(self) -> Collection[str]:
        """The uids of the missing Workers."""
        return self._since.keys()

    def note(self, uid: str) -> None:
        """Start the grace period of a machine whose Worker is not known."""
        self._since.setdefault(uid, self._clock())

    def forget(self, uid: str) -> None:
        """Forget a Worker that exists, or that has no machine any more."""
        self._since.pop(uid, None)

    def may_be(self, uid: str, machine: Machine) -> bool:
        """Return whether a machine may be an orphan.

        A machine whose Worker was seen to be deleted is no orphan: it is deleted at once.
        """
        if self._registry.find_worker(uid) is not None or machine.state is MachineState.TERMINATING:
            return False
        return uid in self._since or self._registry.get_gone_since(uid) is None

    async def fetch_owner(self, uid: str, machine: Machine) -> float:
        """Ask the API server for the Worker of a machine; return the seconds to wait for it.

        After 0 seconds the Worker exists, or the machine is given up and its Worker is known to be gone.
        """
        owner = machine.owner
        await self._registry.fetch_worker(owner.namespace, owner.worker, uid)
        if self._registry.find_worker(uid) is None:
            self.note(uid)
            waits = self._since[uid] + self.grace_seconds - self._clock()
            if waits > 0:
                return waits
            ORPHANS.labels(self._name).inc()
            self._removed(machine)
        self.forget(uid)
        return 0.0
