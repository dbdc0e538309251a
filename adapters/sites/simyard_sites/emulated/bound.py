"""What an emulated cloud can do at best: its model in virtual time, asked by a client that never lets it wait."""

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
    """From the first request until a machine is RUNNING: the mean and the longest time, in seconds that pass here.

    ``running_seconds`` has the time of each machine, shortest first; machines that fail are left out.
    """

    mean_seconds: float
    last_seconds: float
    running_seconds: Sequence[float]


def bound(provider: Mapping[str, Any], machines: int) -> Bound:
    """How soon so many machines can run if all are asked for in one call that is never refused.

    Args:
        provider: the member ``emulated`` of ``spec.provider`` of a CloudSite.
        machines: how many, at least 1.

    Raises:
        InvalidSpecError: the provider's settings cannot be used.
        ValueError: they cannot run: all fail, or the hosts have room for fewer.
    """
    settings = Settings.from_provider(provider)
    room = settings.hosts * settings.machines_per_host
    if room and machines > room:
        raise ValueError(f"the hosts of this emulated cloud have room for {room} machines, not for {machines}")
    cloud = Cloud(settings)
    owner = Owner("bound", "bound", "bound")
    pace, creates = settings.seconds_per(settings.creates_per_second), Rate()
    for number, served in enumerate(Front().serve(machines, settings, 0.0)):
        cloud.create(f"bound-{number}", owner, max(served, creates.take(1, settings.create_burst, pace, 0.0)))
    while (due := cloud.next_change()) is not None:
        cloud.advance(due)
    found = [machine.entered for machine in map(cloud.machine, cloud.ids()) if machine]
    running = sorted(entered[Stage.RUNNING] for entered in found if Stage.RUNNING in entered)
    if not running:
        raise ValueError("every machine of this emulated cloud fails")
    return Bound(statistics.fmean(running), running[-1], running)
