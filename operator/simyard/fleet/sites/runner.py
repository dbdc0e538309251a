# SPDX-License-Identifier: Apache-2.0
"""Runs one site: follows the events of the site and the changes of its Workers, and reconciles machines with Workers.

A change passes the parts of the runner in this order:

1. :class:`~simyard.fleet.sites.inventory.Inventory` holds the machines that the site reported.
2. :class:`~simyard.fleet.sites.machine_reconciler.MachineReconciler` compares these machines with the Workers and
requests steps.
3. :class:`~simyard.fleet.sites.batch_queue.BatchQueue` holds the steps until a call to the site is permitted.
4. :class:`~simyard.fleet.sites.sender.Sender` sends the steps, and passes the answers to the reconciler.

:class:`~simyard.fleet.sites.health.SiteHealth` judges the site by its answers.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from simyard.api.cloud_site import CloudSite, CloudSiteSpec
from simyard.api.worker import Worker
from simyard.fleet.registry import find_removed
from simyard.fleet.sites.context import SiteContext
from simyard.fleet.sites.event_stream import follow
from simyard.fleet.sites.machine_reconciler import MachineReconciler
from simyard.fleet.sites.machine_requests import MachineRequests
from simyard.fleet.sites.machines import MachineTable
from simyard.fleet.sites.parts import SiteParts
from simyard.fleet.sites.sender import Sender
from simyard.plan.site import SiteObservation, count_machines
from simyard_sites.base import Changed, Gone, Site, SiteEvent, Snapshot


class SiteRunner:
    """Runner of one CloudSite whose provider could be created."""

    def __init__(self, site: CloudSite, provider: Site, context: SiteContext) -> None:
        parts = SiteParts.create(site, provider, context)
        self.name = parts.name
        self.health = parts.health
        self.reconciler = MachineReconciler(parts)
        self._provider = provider
        self._context = context
        self._inventory = parts.inventory
        self._requests = parts.requests
        self._orphans = parts.orphans
        self._bodies = MachineRequests(site, context, parts.inventory.machines)
        self._sender = Sender(parts, self.reconciler, self._bodies)

    @property
    def machines(self) -> MachineTable:
        """The known machines of the site."""
        return self._inventory.machines

    @property
    def complete(self) -> bool:
        """True once all machines of the site are known."""
        return self._inventory.complete

    def observe(self) -> SiteObservation:
        """Return the observations from which the status of the CloudSite is planned."""
        desired = self._context.registry.workers.count("site", self.name)
        machines = count_machines(self.machines.states)
        return self.health.observe(machines, desired, self._requests.list_observations())

    def adjust(self, spec: CloudSiteSpec) -> None:
        """Apply the limits, the grace period and the permissions of a changed spec, but not ``spec.provider``."""
        self._requests.set_limits(spec.limits)
        self._orphans.grace_seconds = spec.orphan_grace_seconds
        for uid in (*self._orphans.uids, *self._bodies.adjust(spec)):
            self.reconciler.wake(uid)

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Reconcile a Worker that is new, changed or deleted. A waiting Worker gets the place of a deleted one."""
        self.reconciler.worker_changed(old, new)
        if (left := find_removed(old, new)) is not None:
            for uid in self._bodies.forget(left.metadata.uid):
                self.reconciler.reconcile(uid)

    async def clear(self) -> None:
        """Delete the operator's other objects at the site; the site must not have machines of the operator any more.

        Raises:
            SiteError: the site did not delete all of them.
        """
        await self._provider.clear()

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                events = follow(
                    self.name, self._provider, self.health, self._apply_event, self._inventory.mark_incomplete
                )
                group.create_task(events, name=f"events of {self.name}")
                group.create_task(self.health.probe(), name=f"probe of {self.name}")
                group.create_task(self.reconciler.run(), name=f"machines of {self.name}")
                group.create_task(self._requests.run(self._sender.send), name=f"requests to {self.name}")
        finally:
            self._inventory.mark_incomplete()
            await self._provider.aclose()
        raise AssertionError("the tasks do not end")

    def _apply_event(self, event: SiteEvent) -> None:
        match event:
            case Changed(machine=machine):
                self.reconciler.machine_seen(machine)
            case Gone(id=machine_id):
                self.reconciler.machine_gone(machine_id)
            case Snapshot(machines=machines):
                self._inventory.suspect_absent(machines)
                for machine in machines:
                    self.reconciler.machine_seen(machine)
                self._inventory.mark_complete()
                self.health.record_stream(None)
                self.reconciler.inventory_complete()
        self._context.changed()
