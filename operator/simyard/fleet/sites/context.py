# SPDX-License-Identifier: Apache-2.0
"""The other parts of the operator that the runner of a site uses."""

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
    """The other parts that one site's runner uses; :class:`~simyard.fleet.sites.reconciler.Sites` creates it.

    Attributes:
        meter: the meter that counts the time for which the site's machines run.
        changed: function to call when the status of the CloudSite may have changed.
        orphan_removed: function to call with each machine that is deleted because it has no Worker.
        evacuate: function to call with each machine that must leave its host.
    """

    registry: Registry
    statuses: WorkerStatuses
    broker: Broker
    meter: SiteMeter
    changed: Callable[[], None]
    orphan_removed: Callable[[Machine], None]
    evacuate: Callable[[Machine], None]
    timing: Timing = PRODUCTION
