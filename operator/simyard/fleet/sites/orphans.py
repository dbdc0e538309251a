# SPDX-License-Identifier: Apache-2.0
"""Finds the machines of a site that have no Worker, and releases them for deletion after a grace period."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from prometheus_client import Counter

from simyard.fleet.registry import Registry
from simyard_sites.base import Machine, MachineState

ORPHANS = Counter("simyard_site_orphans_total", "Machines that were deleted because they had no Worker.", ["site"])


class Orphans:
    """Missing Workers of one site's machines, by uid.

    ``removed`` is called with a machine that has had no Worker for ``grace_seconds``. It is not called if this process
    saw the deletion of the Worker.
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
        """Start the grace period of a machine whose Worker is unknown."""
        self._since.setdefault(uid, self._clock())

    def forget(self, uid: str) -> None:
        """Forget a Worker that exists after all, or whose machine is gone."""
        self._since.pop(uid, None)

    def may_be(self, uid: str, machine: Machine) -> bool:
        """Return whether a machine may be an orphan.

        If this process saw the deletion of its Worker, a machine is no orphan, and is deleted at once.
        """
        if self._registry.find_worker(uid) is not None or machine.state is MachineState.TERMINATING:
            return False
        return uid in self._since or self._registry.get_gone_since(uid) is None

    async def fetch_owner(self, uid: str, machine: Machine) -> float:
        """Ask the API server for the Worker of a machine; return the seconds to wait for it.

        The result 0 means that the Worker exists, or that it is known to be deleted and the machine can be deleted.
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
