# SPDX-License-Identifier: Apache-2.0
"""Parts of the fleet that the runner of a site uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simyard.fleet.broker.provisioning import Broker
from simyard.fleet.metering import SiteMeter
from simyard.fleet.registry import Registry
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.fleet.worker_statuses import WorkerStatuses
from simyard_sites.base import Machine


@dataclass(frozen=True, slots=True)
class SiteContext:
    """The surroundings of one site's runner; :class:`~simyard.fleet.sites.reconciler.Sites` creates one per site.

    Attributes:
        meter: counts the time for which the site's machines run.
        changed: called when the status of the CloudSite may have changed.
        orphan_removed: called with each machine that is deleted because it has no Worker.
        evacuate: called with each machine that must leave its host.
    """

    registry: Registry
    statuses: WorkerStatuses
    broker: Broker
    meter: SiteMeter
    changed: Callable[[], None]
    orphan_removed: Callable[[Machine], None]
    evacuate: Callable[[Machine], None]
    timing: Timing = PRODUCTION
