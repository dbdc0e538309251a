# SPDX-License-Identifier: Apache-2.0
"""Computes the shortest possible start at an emulated cloud: the model in virtual time, with an ideal client."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simyard_sites.base import Owner, Stage
from simyard_sites.emulated.cloud import Cloud
from simyard_sites.emulated.queueing import Front, Rate
from simyard_sites.emulated.settings import Settings


@dataclass(frozen=True, slots=True)
class Bound:
    """The shortest possible times from the request until a machine is RUNNING: their mean and maximum, in real seconds.

    ``running_seconds`` has the time of each machine, shortest first; machines that fail are omitted.
    """

    mean_seconds: float
    last_seconds: float
    running_seconds: Sequence[float]


def bound(provider: Mapping[str, Any], machines: int) -> Bound:
    """Return the shortest time in which machines can run if one call that is never refused asks for all of them.

    Args:
        provider: The member ``emulated`` of ``spec.provider`` of a CloudSite.
        machines: The number of machines, at least 1.

    Raises:
        InvalidSpecError: The provider's settings cannot be used.
        ValueError: The machines cannot run: all of them fail, or the hosts have too little room.
    """
    settings = Settings.from_provider(provider)
    room = settings.hosts * settings.machines_per_host
    if room and machines > room:
        raise ValueError(f"the hosts of this emulated cloud have room for {room} machines, not for {machines}")
    cloud = Cloud(settings)
    owner = Owner("bound", "bound", "bound")
    pace, creates = settings.compute_interval(settings.creates_per_second), Rate()
    for number, served in enumerate(Front().serve(machines, settings, 0.0)):
        cloud.create(f"bound-{number}", owner, max(served, creates.reserve(1, settings.create_burst, pace, 0.0)))
    while (due := cloud.get_next_change()) is not None:
        cloud.advance(due)
    found = [machine.entered for machine in map(cloud.find_machine, cloud.list_ids()) if machine]
    running = sorted(entered[Stage.RUNNING] for entered in found if Stage.RUNNING in entered)
    if not running:
        raise ValueError("every machine of this emulated cloud fails")
    return Bound(statistics.fmean(running), running[-1], running)
