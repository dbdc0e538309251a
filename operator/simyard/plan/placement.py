# SPDX-License-Identifier: Apache-2.0
"""Placement: the sites that a pool may use, and the site of each new worker."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from simyard.api.base import find_condition
from simyard.api.cloud_site import CloudSite
from simyard.api.names import ConditionType, Reason
from simyard.api.quantities import parse_cores
from simyard.api.simulation_service import Resources
from simyard.api.site_permission import find_refusal
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.plan.lost_workers import RECONNECT_SECONDS, is_starting
from simyard.plan.texts import format_count
from simyard.plan.workforce import Clock, Removal

MOVE_DELAY_SECONDS = 10.0
"""Time for which a worker waits for a machine before the operator moves it to another site."""
ROOM_CHECK_SECONDS = 5.0
"""Interval between checks for room at sites; not every site reports when a place becomes free."""


@dataclass(frozen=True, slots=True)
class SiteState:
    """CloudSite, with facts about the site that are not in this object.

    Attributes:
        workers: Number of Workers of all pools at the site.
        exhausted: True if the site is full, or a quota is used up.
        boot_seconds: Median time from the request for a machine until it runs, as this process measured it at the
            site; None if unknown.
        capacity: Number of machines for which the site reports room; None if the site does not report it.
        full_at: Number of machines at which the site last refused another one; None if the site has since had more
            machines.
    """

    site: CloudSite
    workers: int = 0
    exhausted: bool = False
    boot_seconds: float | None = None
    capacity: int | None = None
    full_at: int | None = None

    @property
    def name(self) -> str:
        """Name of the CloudSite."""
        return self.site.metadata.name

    @property
    def room(self) -> int:
        """Number of additional workers that the limits and the reported capacity permit."""
        return 0 if self.exhausted else max(0, self.max_workers - self.workers)

    @property
    def max_workers(self) -> int:
        """Maximum number of workers at the site: the limit in its spec or its reported capacity, if that is smaller."""
        most = self.site.spec.limits.max_workers
        return most if self.capacity is None else min(most, self.capacity)

    @property
    def proven_room(self) -> int:
        """Number of places that are certainly free; if the site was full, only places that workers have left since."""
        return self.room if self.full_at is None else max(0, min(self.room, self.full_at - self.workers))


@dataclass(frozen=True, slots=True)
class Choice:
    """Sites that a pool may use now, and the reasons against all other sites.

    Attributes:
        permitted: Sites with room, in order of preference.
        refused: Reason against each site that is not permitted, by the site's name.
        missing: Names of sites in the pool's spec for which there is no CloudSite.
        crowded: Refused sites that have their maximum number of workers.
        full: Refused sites that are exhausted: they are full, or a quota is used up.
        away: Refused sites that are not Ready.
        order: Sites that the pool would use if they had room, in order of preference.
    """

    permitted: tuple[SiteState, ...]
    refused: Mapping[str, str]
    missing: tuple[str, ...] = ()
    crowded: frozenset[str] = frozenset()
    full: frozenset[str] = frozenset()
    away: frozenset[str] = frozenset()
    order: tuple[str, ...] = ()

    @property
    def may_change(self) -> bool:
        """True if room can become free at a site without a change of a pool or CloudSite."""
        return bool(self.permitted or self.crowded or self.full)

    @property
    def reason(self) -> Reason:
        """The reason to report if no site is permitted."""
        return Reason.SITE_NOT_FOUND if self.missing else Reason.NO_SITE_AVAILABLE

    @property
    def message(self) -> str:
        """Text that names all refused and missing sites, with the reasons."""
        parts = [f"CloudSite {name} does not exist" for name in self.missing]
        parts += [f"{name}: {why}" for name, why in self.refused.items()]
        return "; ".join(parts) or "there is no CloudSite"


def choose_sites(pool: WorkerPool, sites: Mapping[str, SiteState], resources: Resources) -> Choice:
    """Return the sites that a pool may use.

    A permitted site exists, is Ready, has room, is not cordoned, is open to the namespace and, if it is External, has
    the pool's consent. The strategy Fastest compares the median boot times that this process has measured. A site
    without a measurement comes after the measured sites, so that no pool starts slowly only to measure a site.
    """
    placement = pool.spec.placement
    names = placement.sites or sorted(sites)
    usable: list[SiteState] = []
    refused: dict[str, str] = {}
    missing: list[str] = []
    crowded: list[str] = []
    full: list[str] = []
    away: list[str] = []
    for name in names:
        state = sites.get(name)
        if state is None:
            missing.append(name)
        elif why := find_refusal(state.site, pool.metadata.namespace, placement.consent):
            refused[name] = why
        elif why := _explain_absence(state):
            refused[name] = why
            away.append(name)
        elif state.exhausted:
            refused[name] = "is full"
            full.append(name)
        else:
            usable.append(state)
            if state.room == 0:
                refused[name] = f"has its maximum of {format_count(state.max_workers, 'worker')}"
                crowded.append(name)
    if placement.strategy == "Cheapest":
        usable = _sort_by_price(usable, resources)
    elif placement.strategy == "Fastest":
        usable.sort(key=_get_boot_seconds)
    return Choice(
        permitted=tuple(state for state in usable if state.name not in crowded),
        refused=refused,
        missing=tuple(missing),
        crowded=frozenset(crowded),
        full=frozenset(full),
        away=frozenset(away),
        order=tuple(state.name for state in usable),
    )


def find_awaited_sites(choice: Choice, sites: Mapping[str, SiteState], now: datetime) -> dict[str, float | None]:
    """Return the sites for whose disconnected workers the pool still waits, with the seconds that are left.

    The pool waits while a site is not Ready, without a limit (None), and for ``RECONNECT_SECONDS`` after a site has
    become Ready again.
    """
    waits: dict[str, float | None] = dict.fromkeys(choice.away)
    for name in choice.order:
        ready = find_condition(sites[name].site.status.conditions, ConditionType.READY)
        back = (now - ready.last_transition_time).total_seconds() if ready is not None else RECONNECT_SECONDS
        if 0 <= back < RECONNECT_SECONDS:
            waits[name] = RECONNECT_SECONDS - back
    return waits


def place_workers(count: int, choice: Choice, own: Mapping[str, int] | None = None) -> list[str]:
    """Return the site of each new worker: ``count`` sites, or fewer if there is not enough room.

    Args:
        count: Number of new workers.
        choice: Permitted sites.
        own: Numbers of the pool's workers by site, for the strategy Spread: each worker goes to the site with the
            fewest workers of the pool, and among equal sites to the site with the fewest workers of other pools. With
            None, the workers fill one site after the other.
    """
    if own is None:
        placed: list[str] = []
        for state in choice.permitted:
            placed += [state.name] * min(state.room, count - len(placed))
        return placed
    load = {state.name: own.get(state.name, 0) for state in choice.permitted}
    others = {state.name: state.workers - load[state.name] for state in choice.permitted}
    room = {state.name: state.room for state in choice.permitted}
    rank = {name: index for index, name in enumerate(load)}
    placed = []
    while len(placed) < count:
        free = [name for name in load if room[name] > 0]
        if not free:
            break
        name = min(free, key=lambda item: (load[item], others[item], rank[item]))
        load[name] += 1
        room[name] -= 1
        placed.append(name)
    return placed


def _explain_absence(state: SiteState) -> str:
    ready = find_condition(state.site.status.conditions, ConditionType.READY)
    if ready is None or ready.status != "True":
        return f"is not Ready ({ready.reason}: {ready.message})" if ready is not None else "is not Ready yet"
    return ""


def find_stranded(
    workers: Sequence[Worker], choice: Choice, clock: Clock, *, most: int, missing: int, stay: Container[str] = ()
) -> tuple[list[Removal], float | None]:
    """Return the workers that move to another site, and the seconds until the next check; None if no check is needed.

    A worker moves if its site creates no machine now, another site has room, and the worker has waited for
    ``MOVE_DELAY_SECONDS``.

    Args:
        workers: Workers to choose from.
        choice: Sites that the pool may use.
        clock: Clock that tells how long each worker has waited.
        most: Maximum number of workers that move.
        missing: Number of free places that other new workers need.
        stay: Names of sites whose workers do not move.
    """
    count = min(most, sum(state.room for state in choice.permitted) - missing)
    found: list[Removal] = []
    look_again: float | None = None
    if count <= 0 and not choice.may_change:
        return found, look_again
    usable = set(choice.order)
    for worker in workers:
        site = worker.spec.site
        if site in usable or site in stay or not _is_waiting(worker):
            continue
        if count <= 0:
            if (usable | choice.full) - {site}:
                return found, ROOM_CHECK_SECONDS
            continue
        waits = MOVE_DELAY_SECONDS - clock.get_seconds(worker)
        if waits > 0:
            look_again = waits if look_again is None else min(look_again, waits)
        elif len(found) < count:
            why = choice.refused.get(site, "the pool may not use it any more")
            found.append(Removal(worker, Reason.WORKERS_MOVED, f"{site}: {why}"))
    return found, look_again


def _is_waiting(worker: Worker) -> bool:
    """Return whether the site has not accepted the request for the worker's machine yet."""
    return is_starting(worker) and not worker.status.machine_id and worker.status.stages.pending is None


def _sort_by_price(sites: Sequence[SiteState], resources: Resources) -> list[SiteState]:
    """Sort the sites by price, in the currency of the first site that has a price.

    Sites with prices in other currencies come last, in their given order. A price of zero counts in every currency.
    """
    priced = next((state.site.spec.cost.currency for state in sites if _compute_price(state, resources)), "")
    foreign = [state for state in sites if _compute_price(state, resources) and state.site.spec.cost.currency != priced]
    others = {state.name for state in foreign}
    known = [state for state in sites if state.name not in others]
    return [*sorted(known, key=lambda state: _compute_price(state, resources)), *foreign]


def _compute_price(state: SiteState, resources: Resources) -> float:
    cost = state.site.spec.cost
    return cost.worker_hour_millis + cost.core_hour_millis * parse_cores(resources.cpu)


def _get_boot_seconds(state: SiteState) -> float:
    return state.boot_seconds if state.boot_seconds is not None else float("inf")
