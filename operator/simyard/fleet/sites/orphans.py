# SPDX-License-Identifier: Apache-2.0
"""Finds the machines of a site that have no Worker, and permits their deletion after a grace period."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from prometheus_client import Counter

from simyard.fleet.registry import Registry
from simyard_sites.base import Machine, MachineState

ORPHANS = Counter("simyard_site_orphans_total", "Machines that were deleted because they had no Worker.", ["site"])


class Orphans:
    """Record of the Workers that are missing although one site has machines for them, by uid.

    The object calls ``removed`` with each machine whose Worker was missing for ``grace_seconds``. It does not call
    ``removed`` if this process saw the deletion of the Worker.
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
        """Uids of the missing Workers."""
        return self._since.keys()

    def note(self, uid: str) -> None:
        """Start the grace period for the machine of an unknown Worker."""
        self._since.setdefault(uid, self._clock())

    def forget(self, uid: str) -> None:
        """Forget a missing Worker, because it has appeared or its machine is gone."""
        self._since.pop(uid, None)

    def may_be(self, uid: str, machine: Machine) -> bool:
        """Return whether a machine may be an orphan.

        If this process saw the deletion of the Worker, its machine is not an orphan, and is deleted at once.
        """
        if self._registry.find_worker(uid) is not None or machine.state is MachineState.TERMINATING:
            return False
        return uid in self._since or self._registry.get_gone_since(uid) is None

    async def fetch_owner(self, uid: str, machine: Machine) -> float:
        """Ask the API server for the Worker of a machine; return the seconds that are left of the grace period.

        The result is 0 if the Worker exists, or if the machine can be deleted now.
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
