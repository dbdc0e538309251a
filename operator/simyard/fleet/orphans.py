"""Machines of a site that have no Worker: found, waited for, and given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from prometheus_client import Counter

from simyard.fleet.registry import Registry
from simyard_sites.base import Machine, MachineState

ORPHANS = Counter("simyard_site_orphans_total", "Machines found without a Worker, and removed.", ["site"])


class Orphans:
    """Those of one site, by the uid of their Worker. ``removed`` is called with a machine whose Worker nobody saw
    deleted, when it has had none for ``grace_seconds``.
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
        """The Workers that are missing."""
        return self._since.keys()

    def note(self, uid: str) -> None:
        """A machine has come up whose Worker is not known."""
        self._since.setdefault(uid, self._clock())

    def forget(self, uid: str) -> None:
        """The Worker is there, or the machine is not."""
        self._since.pop(uid, None)

    def may_be(self, uid: str, machine: Machine) -> bool:
        """Whether it may be one. A machine whose Worker was seen to go is none: it goes as well."""
        if self._registry.worker(uid) is not None or machine.state is MachineState.TERMINATING:
            return False
        return uid in self._since or self._registry.worker_gone(uid) is None

    async def look_for_owner(self, uid: str, machine: Machine) -> float:
        """For how many seconds more its Worker is waited for. After 0 it has none, and is no orphan any more."""
        owner = machine.owner
        await self._registry.look_for_worker(owner.namespace, owner.worker, uid)
        if self._registry.worker(uid) is None:
            self.note(uid)
            waits = self._since[uid] + self.grace_seconds - self._clock()
            if waits > 0:
                return waits
            ORPHANS.labels(self._name).inc()
            self._removed(machine)
        self.forget(uid)
        return 0.0
