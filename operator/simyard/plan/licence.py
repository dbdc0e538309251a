"""Seats of licences: how many workers a pool may have when its service's licence limits them.

First come, first served. The oldest claim gets every seat that becomes free until it has all it asked for; a smaller
one behind it does not overtake it. What it gets it uses at once, so a large pool starts in part. A pool that could not
use a seat (no site, no broker, its workers keep failing) is passed over, and keeps its place. Nobody's worker is ended
for the sake of a seat, not even when there are fewer seats than before.

All of it is derived from objects: a Worker holds a seat as long as it exists; ``status.licensedReplicas`` of a pool are
the seats that it was granted (a replaced worker's seat stays with its pool); the transition time of the condition
``LicenceAvailable`` says since when it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from simyard.api.base import Condition, find_condition, set_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.simulation_service import LicenceStatus, SimulationService
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.plan.times import after

MOST_NAMES = 5
"""So many pools are named in a message; the others are summed up."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a pool has and wants of a licence.

    Attributes:
        pool: its uid.
        held: its Workers that exist.
        granted: the seats that it was granted before.
        desired: the workers that it should have.
        since: since when it waits for seats, None when it does not (or could not use them).
    """

    pool: str
    held: int
    granted: int
    desired: int
    since: datetime | None = None

    @property
    def kept(self) -> int:
        """What nobody takes from it."""
        return max(self.held, self.granted)


@dataclass(frozen=True, slots=True)
class Allotment:
    """What one pool gets of a licence, and what its users may know about the others.

    Attributes:
        licence: how the licence is called there.
        total: seats there are.
        taken: seats that are taken by Workers, or granted and about to be.
        seats: the workers that this pool may have at the same time, with those that it has.
        place: its place in the queue if it wants more, counted from 1.
        since: since when it waits if it wants more.
        here: Workers of the same namespace, by pool; the empty name stands for those without a pool.
    """

    licence: str
    total: int
    taken: int
    seats: int
    place: int
    since: datetime
    here: Mapping[str, int] = field(default_factory=dict)


def licence_key(service: SimulationService) -> str:
    """Services with the same key share their seats; empty when the service has no licence."""
    licence, metadata = service.spec.licence, service.metadata
    if licence is None:
        return ""
    return licence.name or f"{metadata.namespace}/{metadata.name}"


def allot(seats: int, others: int, claims: Iterable[Claim]) -> dict[str, int]:
    """How many workers each pool may have.

    Args:
        seats: the seats of the licence.
        others: seats that are taken by Workers without a pool.
        claims: of all pools that share the licence.

    The sum with ``others`` is at most ``seats``, or else nobody gets more than the Workers that exist already.
    """
    known = list(claims)
    result = {claim.pool: claim.held for claim in known}
    free = max(0, seats - others - sum(result.values()))
    for claim in sorted(known, key=lambda claim: claim.pool):  # seats that were granted and have no Worker yet
        given = min(free, claim.kept - claim.held)
        result[claim.pool] += given
        free -= given
    for claim in in_queue(known):
        given = max(0, min(free, claim.desired - result[claim.pool]))
        result[claim.pool] += given
        free -= given
    return result


def in_queue(claims: Iterable[Claim]) -> list[Claim]:
    """Those that wait for more than they have, the oldest first."""
    found = [(claim.since, claim.pool, claim) for claim in claims if claim.since and claim.desired > claim.kept]
    return [claim for _, _, claim in sorted(found, key=lambda item: item[:2])]


def claim_of(pool: WorkerPool, status: WorkerPoolStatus, held: int, *, asks: datetime | None = None) -> Claim:
    """The claim of a pool, whose newest status is given; ``asks``: it is the pool that is being planned, and when.

    A pool that no plan has seen yet waits since its creation (rounded up, as that has whole seconds only).
    """
    condition = find_condition(status.conditions, ConditionType.LICENCE_AVAILABLE)
    created = pool.metadata.creation_timestamp
    since = asks
    if condition is not None and condition.status == "False":
        since = condition.last_transition_time if asks or condition.reason == Reason.WAITING_FOR_SEATS else None
    elif condition is None and status.observed_generation == 0 and created is not None:
        since = after(created, 1.0)
    desired = 0 if pool.spec.suspend or pool.metadata.deletion_timestamp is not None else pool.spec.replicas
    return Claim(pool.metadata.uid, held, status.licensed_replicas or 0, desired, since)


def allotment_of(
    claim: Claim, claims: Sequence[Claim], *, licence: str, seats: int, others: int, here: Mapping[str, int]
) -> Allotment:
    """What the pool of one claim gets, among all ``claims`` (its own is one of them, and has ``since``)."""
    result = allot(seats, others, claims)
    waiting = [item.pool for item in in_queue(claims) if item.pool == claim.pool or result[item.pool] < item.desired]
    if claim.since is None:
        raise ValueError("the claim of a pool that is planned has a time")
    return Allotment(
        licence=licence,
        total=seats,
        taken=others + sum(result.values()) - (result[claim.pool] - claim.held),
        seats=result[claim.pool],
        place=waiting.index(claim.pool) + 1 if claim.pool in waiting else 1,
        since=claim.since,
        here=here,
    )


def licensed_replicas(given: Allotment | None, *, desired: int, held: int, created: int, able: bool) -> int | None:
    """The seats that a pool keeps: what it should have if it can use them, or else what it has and makes now."""
    if given is None:
        return None
    return max(held + created, min(given.seats, desired)) if able else held + created


def with_licence(
    conditions: list[Condition],
    given: Allotment | None,
    *,
    pool: WorkerPool,
    desired: int,
    held: int,
    able: bool,
    now: datetime,
) -> list[Condition]:
    """The conditions with ``LicenceAvailable`` as it is now; without it when the service has no licence."""
    if given is None:
        return [item for item in conditions if item.type != ConditionType.LICENCE_AVAILABLE]
    waits = desired > given.seats
    reason, message = Reason.SEATS_GRANTED, f"licence {given.licence} has {given.total} seats"
    if waits:
        reason, missing = Reason.WAITING_FOR_SEATS if able else Reason.PASSED_OVER, desired - given.seats
        message = (
            f"waits for {missing} more seats, as number {given.place} in the queue"
            if able
            else (f"needs {missing} more seats and could not use them now: others go first, and its place is kept")
        )
        message += f"; {_seats(given, pool.metadata.name, held)}"
    condition = Condition(
        type=ConditionType.LICENCE_AVAILABLE,
        status="False" if waits else "True",
        reason=reason,
        message=message,
        last_transition_time=min(now, given.since) if waits else now,
        observed_generation=pool.metadata.generation,
    )
    return set_condition(conditions, condition)


def _seats(given: Allotment, pool: str, held: int) -> str:
    """Who has the seats. Of other namespaces nothing but a number is told."""
    parts = [f"{held} by this pool"]
    others = [(name, count) for name, count in given.here.items() if name and name != pool and count]
    here = sorted(others, key=lambda item: (-item[1], item[0]))
    parts += [f"{count} by pool {name}" for name, count in here[:MOST_NAMES]]
    if rest := sum(count for _, count in here[MOST_NAMES:]):
        parts.append(f"{rest} by other pools of this namespace")
    if alone := given.here.get("", 0):
        parts.append(f"{alone} by workers without a pool")
    known = held + sum(count for name, count in given.here.items() if name != pool)
    if elsewhere := max(0, given.taken - known):
        parts.append(f"{elsewhere} elsewhere")
    return f"licence {given.licence} has {given.total} seats, {given.taken} taken: {', '.join(parts)}"


def licence_condition(
    service: SimulationService, sharing: Sequence[SimulationService], now: datetime
) -> Condition | None:
    """Of a service that names a licence: whether all that name it say the same number of seats."""
    licence = service.spec.licence
    if licence is None or not licence.name:
        return None
    numbers = {other.spec.licence.seats for other in sharing if other.spec.licence is not None} | {licence.seats}
    differ = len(numbers) > 1
    message = ""
    if differ:
        message = f"spec.licence.seats is {licence.seats} here, and other services that name the licence {licence.name}"
        message += f" say another number: the smallest counts, {min(numbers)}; give all of them the same"
    return Condition(
        type=ConditionType.LICENCE_CONSISTENT,
        status="False" if differ else "True",
        reason=Reason.SEATS_DIFFER if differ else Reason.SEATS_AGREE,
        message=message,
        last_transition_time=now,
        observed_generation=service.metadata.generation,
    )


def licence_status(seats: int, others: int, claims: Sequence[Claim]) -> LicenceStatus:
    """The seats of a licence, for the status of its services."""
    waiting = sum(claim.desired - claim.kept for claim in in_queue(claims))
    return LicenceStatus(seats=seats, taken=others + sum(claim.held for claim in claims), waiting=waiting)
