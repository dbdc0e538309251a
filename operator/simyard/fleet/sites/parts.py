# SPDX-License-Identifier: Apache-2.0
"""Objects that the parts of one site's runner share."""

from __future__ import annotations

from dataclasses import dataclass

from simyard.api.cloud_site import CloudSite
from simyard.fleet.sites.batch_queue import BatchQueue
from simyard.fleet.sites.context import SiteContext
from simyard.fleet.sites.health import SiteHealth
from simyard.fleet.sites.inventory import Inventory
from simyard.fleet.sites.orphans import Orphans
from simyard.fleet.sites.restarts import Restarts
from simyard_sites.base import Site, stop_ends


@dataclass(frozen=True, slots=True)
class SiteParts:
    """Objects of one site that its runner, its reconciler and its sender share."""

    name: str
    provider: Site
    context: SiteContext
    inventory: Inventory
    requests: BatchQueue
    health: SiteHealth
    restarts: Restarts
    orphans: Orphans

    @classmethod
    def create(cls, site: CloudSite, provider: Site, context: SiteContext) -> SiteParts:
        """Create the objects for a new runner of a site."""
        name, registry = site.metadata.name, context.registry
        inventory = Inventory(context.meter)
        requests = BatchQueue(name, site.spec.limits, context.changed)
        return cls(
            name=name,
            provider=provider,
            context=context,
            inventory=inventory,
            requests=requests,
            health=SiteHealth(name, provider, requests, context.changed, context.timing.site_retry_first_seconds),
            restarts=Restarts(inventory.machines, registry, context.statuses, stop_ends(provider)),
            orphans=Orphans(name, registry, site.spec.orphan_grace_seconds, context.orphan_removed),
        )
