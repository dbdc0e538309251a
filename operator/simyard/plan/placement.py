"""Which site each new worker of a pool goes to."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from simyard.api.base import find_condition
from simyard.api.cloud_site import CloudSite
from simyard.api.names import ConditionType, Reason
from simyard.api.quantities import cores_of
from simyard.api.simulation_service import Resources
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.plan.replacement import RECONNECT_SECONDS, is_starting
from simyard.plan.texts import count_of
from simyard.plan.workforce import Clock, Removal

MOVE_SECONDS = 10.0
"""So long a worker waits for a machine before it goes to another site."""
ROOM_SECONDS = 5.0
"""So often it is looked again whether there is room, where nothing tells."""


@dataclass(frozen=True, slots=True)
class SiteState:
    """A site and what is known of it beside its object.

    Attributes:
        workers: how many Workers of all pools are there.
        exhausted: it is full, or a quota is used up.
        boot_seconds: the median T_boot seen there, None when unknown.
        capacity: how many machines fit there in all, as the site says; None when it does not.
        full_at: with how many machines it was full, if nothing has shown since that more fit.
    """

    site: CloudSite
    workers: int = 0
    exhausted: bool = False
    boot_seconds: float | None = None
    capacity: int | None = None
    full_at: int | None = None

    @property
    def name(self) -> str:
        """The CloudSite's name."""
        return self.site.metadata.name

    @property
    def room(self) -> int:
        """How many more workers the limits permit there, and the site has places for as far as it says."""
        return 0 if self.exhausted else max(0, self.most - self.workers)

    @property
    def most(self) -> int:
        """How many workers there may be."""
        most = self.site.spec.limits.max_workers
        return most if self.capacity is None else min(most, self.capacity)

    @property
    def shown_room(self) -> int:
        """How many more workers it has places for, where it was full once: those that others have left."""
        return self.room if self.full_at is None else max(0, min(self.room, self.full_at - self.workers))


@dataclass(frozen=True, slots=True)
class Choice:
    """The sites that the pool may use now, in order of preference, and why others are out.

    ``crowded`` are those among the others that would be permitted if fewer workers were there: each that leaves makes
    room for one. ``full`` are those that would be permitted if they were not exhausted, ``away`` if they were Ready.
    ``order`` are those that the pool would use if they had room, in order of preference.
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
        """Whether there may be (more) room without any object that says so."""
        return bool(self.permitted or self.crowded or self.full)

    @property
    def reason(self) -> Reason:
        """Why there is none."""
        return Reason.SITE_NOT_FOUND if self.missing else Reason.NO_SITE_AVAILABLE

    @property
    def message(self) -> str:
        """Every site that is out, with its reason."""
        parts = [f"CloudSite {name} does not exist" for name in self.missing]
        parts += [f"{name}: {why}" for name, why in self.refused.items()]
        return "; ".join(parts) or "there is no CloudSite"


def permitted_sites(pool: WorkerPool, sites: Mapping[str, SiteState], resources: Resources) -> Choice:
    """Sites that exist, are Ready, not cordoned, open to the namespace, and consented to where they are External.

    Fastest goes by the medians that this process has seen; a site of which none is known comes after those of which
    one is, in the order of sites: it is tried when the others are full, and nobody waits for an experiment.
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
        elif why := refusal(state.site, pool.metadata.namespace, placement.consent):
            refused[name] = why
        elif why := _absence(state):
            refused[name] = why
            away.append(name)
        elif state.exhausted:
            refused[name] = "is full"
            full.append(name)
        else:
            usable.append(state)
            if state.room == 0:
                refused[name] = f"has its maximum of {count_of(state.most, 'worker')}"
                crowded.append(name)
    if placement.strategy == "Cheapest":
        usable = _cheapest_first(usable, resources)
    elif placement.strategy == "Fastest":
        usable.sort(key=_boot_seconds)
    return Choice(
        permitted=tuple(state for state in usable if state.name not in crowded),
        refused=refused,
        missing=tuple(missing),
        crowded=frozenset(crowded),
        full=frozenset(full),
        away=frozenset(away),
        order=tuple(state.name for state in usable),
    )


def waited_for(choice: Choice, sites: Mapping[str, SiteState], now: datetime) -> dict[str, float | None]:
    """Sites whose lost workers may come back by themselves: those that are away (None), and those that are back for
    less than ``RECONNECT_SECONDS``, each with the seconds that are left.
    """
    waits: dict[str, float | None] = dict.fromkeys(choice.away)
    for name in choice.order:
        ready = find_condition(sites[name].site.status.conditions, ConditionType.READY)
        back = (now - ready.last_transition_time).total_seconds() if ready is not None else RECONNECT_SECONDS
        if 0 <= back < RECONNECT_SECONDS:
            waits[name] = RECONNECT_SECONDS - back
    return waits


def place(count: int, choice: Choice, own: Mapping[str, int] | None = None) -> list[str]:
    """The site of each new worker, as many as there is room for.

    With ``own``, the numbers of the pool's workers by site, they are spread: these numbers are kept even, and of equal
    sites the one with the fewest workers of all pools is taken. Every other strategy fills one after the other.
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


def refusal(site: CloudSite, namespace: str, consent: Collection[str] | None) -> str:
    """Return why no worker may start at the site, or an empty text.

    Args:
        site: the CloudSite.
        namespace: the namespace of the worker.
        consent: the External sites that the worker's pool consents to; None for a worker without a pool.
    """
    spec, name = site.spec, site.metadata.name
    if site.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if spec.cordoned:
        return "is cordoned"
    if spec.allowed_namespaces.from_ == "Selected" and namespace not in spec.allowed_namespaces.names:
        return f"is not open to namespace {namespace}"
    if spec.trust != "External":
        return ""
    if consent is None:
        return "is External: it runs only workers of a WorkerPool whose spec.placement.consent names it"
    return "" if name in consent else "is External, and spec.placement.consent does not name it"


def _absence(state: SiteState) -> str:
    ready = find_condition(state.site.status.conditions, ConditionType.READY)
    if ready is None or ready.status != "True":
        return f"is not Ready ({ready.reason}: {ready.message})" if ready is not None else "is not Ready yet"
    return ""


def stranded(
    workers: Sequence[Worker], choice: Choice, clock: Clock, *, most: int, missing: int, stay: Container[str] = ()
) -> tuple[list[Removal], float | None]:
    """Workers that wait for a machine at a site that gives none now, where another site has room: they go there.

    At most ``most`` at once, and so many that room is left for the ``missing`` ones. Those at the sites ``stay`` wait.
    One that was made a short time ago waits first; the second value is after how many seconds the next one has waited
    enough, or to look for room.
    """
    count = min(most, sum(state.room for state in choice.permitted) - missing)
    found: list[Removal] = []
    look_again: float | None = None
    if count <= 0 and not choice.may_change:
        return found, look_again
    usable = set(choice.order)
    for worker in workers:
        site = worker.spec.site
        if site in usable or site in stay or not _waits(worker):
            continue
        if count <= 0:
            if (usable | choice.full) - {site}:
                return found, ROOM_SECONDS
            continue
        waits = MOVE_SECONDS - clock.seconds(worker)
        if waits > 0:
            look_again = waits if look_again is None else min(look_again, waits)
        elif len(found) < count:
            why = choice.refused.get(site, "the pool may not use it any more")
            found.append(Removal(worker, Reason.WORKERS_MOVED, f"{site}: {why}"))
    return found, look_again


def _waits(worker: Worker) -> bool:
    """Whether its site has not accepted the request for its machine."""
    return is_starting(worker) and not worker.status.machine_id and worker.status.stages.pending is None


def _cheapest_first(sites: Sequence[SiteState], resources: Resources) -> list[SiteState]:
    """Sites by price in the currency of the first one that has a price; those in other currencies after them, in order.

    What costs nothing costs nothing in any currency.
    """
    priced = next((state.site.spec.cost.currency for state in sites if _price(state, resources)), "")
    foreign = [state for state in sites if _price(state, resources) and state.site.spec.cost.currency != priced]
    others = {state.name for state in foreign}
    known = [state for state in sites if state.name not in others]
    return [*sorted(known, key=lambda state: _price(state, resources)), *foreign]


def _price(state: SiteState, resources: Resources) -> float:
    cost = state.site.spec.cost
    return cost.worker_hour_millis + cost.core_hour_millis * cores_of(resources.cpu)


def _boot_seconds(state: SiteState) -> float:
    return state.boot_seconds if state.boot_seconds is not None else float("inf")
