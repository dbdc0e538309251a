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

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from simyard.api.base import Condition, find_condition, set_condition
from simyard.api.licence import Licence
from simyard.api.licence import LicenceStatus as SharedStatus
from simyard.api.names import ConditionType, Reason
from simyard.api.simulation_service import LicenceStatus, SimulationService
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.plan.times import after

NOBODY: Mapping[str, int] = MappingProxyType({})
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
        namespace: the namespace of the pool.
    """

    pool: str
    held: int
    granted: int
    desired: int
    since: datetime | None = None
    namespace: str = ""

    @property
    def kept(self) -> int:
        """Return the seats that nobody takes from the pool."""
        return max(self.held, self.granted)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a licence offers to the services of one namespace.

    Attributes:
        seats: all seats of the licence.
        limit: the most seats of one namespace; None when there is no such limit.
        refusal: reason and message when the services may not use it; then no pool of theirs gets another seat.
    """

    seats: int
    limit: int | None = None
    refusal: tuple[str, str] | None = None


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
        limit: the most seats of this namespace; None when there is no such limit.
        refusal: reason and message when the service may not use the licence.
    """

    licence: str
    total: int
    taken: int
    seats: int
    place: int
    since: datetime
    here: Mapping[str, int] = field(default_factory=dict)
    limit: int | None = None
    refusal: tuple[str, str] | None = None


def licence_key(service: SimulationService) -> str:
    """Services with the same key share their seats; empty when the service has no licence."""
    licence, metadata = service.spec.licence, service.metadata
    if licence is None:
        return ""
    return licence.licence_ref.name if licence.licence_ref is not None else f"{metadata.namespace}/{metadata.name}"


def terms_of(service: SimulationService, licence: Licence | None) -> Terms:
    """Return what the licence of a service offers; ``licence`` is the Licence that it names, if there is one."""
    own, namespace = service.spec.licence, service.metadata.namespace
    if own is None or own.licence_ref is None:
        return Terms(own.seats or 0 if own is not None else 0)
    name = own.licence_ref.name
    if licence is None:
        message = f"Licence {name} does not exist: have the platform team create it, or name another one in"
        return Terms(0, refusal=(Reason.LICENCE_NOT_FOUND, f"{message} spec.licence.licenceRef of the service"))
    spec = licence.spec
    if spec.allowed_namespaces.from_ == "Selected" and namespace not in spec.allowed_namespaces.names:
        message = f"Licence {name} is not open to namespace {namespace}: have the platform team add it to"
        refusal = (Reason.LICENCE_FORBIDDEN, f"{message} spec.allowedNamespaces of the Licence")
        return Terms(spec.seats, spec.max_seats_per_namespace, refusal)
    return Terms(spec.seats, spec.max_seats_per_namespace)


def allot(
    seats: int, others: int, claims: Iterable[Claim], *, limit: int | None = None, outside: Mapping[str, int] = NOBODY
) -> dict[str, int]:
    """Return how many workers each pool may have.

    Args:
        seats: the seats of the licence.
        others: seats that are taken by Workers without a pool.
        claims: of all pools that share the licence.
        limit: the most seats of one namespace.
        outside: the seats that Workers without a pool take in each namespace.

    The sum with ``others`` is at most ``seats``, or else nobody gets more than the Workers that exist already.
    """
    known = list(claims)
    result = {claim.pool: claim.held for claim in known}
    free = max(0, seats - others - sum(result.values()))
    room: Counter[str] = Counter()
    if limit is not None:
        for claim in known:
            room[claim.namespace] -= claim.held
        for namespace in list(room):
            room[namespace] += limit - outside.get(namespace, 0)

    def give(claim: Claim, wanted: int) -> int:
        given = max(0, min(free, wanted, wanted if limit is None else room[claim.namespace]))
        result[claim.pool] += given
        room[claim.namespace] -= given
        return given

    for claim in sorted(known, key=lambda claim: claim.pool):  # seats that were granted and have no Worker yet
        free -= give(claim, claim.kept - claim.held)
    for claim in in_queue(known):
        free -= give(claim, claim.desired - result[claim.pool])
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
    granted = status.licensed_replicas or 0
    return Claim(pool.metadata.uid, held, granted, desired, since, pool.metadata.namespace)


def allotment_of(
    claim: Claim,
    claims: Sequence[Claim],
    *,
    licence: str,
    terms: Terms,
    others: int,
    here: Mapping[str, int],
    outside: Mapping[str, int] = NOBODY,
) -> Allotment:
    """Return what the pool of one claim gets, among all ``claims`` (its own is one of them, and has ``since``)."""
    result = allot(terms.seats, others, claims, limit=terms.limit, outside=outside)
    waiting = [item.pool for item in in_queue(claims) if item.pool == claim.pool or result[item.pool] < item.desired]
    if claim.since is None:
        raise ValueError("the claim of a pool that is planned has a time")
    return Allotment(
        licence=licence,
        total=terms.seats,
        taken=others + sum(result.values()) - (result[claim.pool] - claim.held),
        seats=claim.held if terms.refusal is not None else result[claim.pool],
        place=waiting.index(claim.pool) + 1 if claim.pool in waiting else 1,
        since=claim.since,
        here=here,
        limit=terms.limit,
        refusal=terms.refusal,
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
        if given.limit is not None:
            message += f"; a namespace has at most {given.limit}"
    if given.refusal is not None:
        waits = True
    said_reason, said = given.refusal or (reason, message)
    condition = Condition(
        type=ConditionType.LICENCE_AVAILABLE,
        status="False" if waits else "True",
        reason=said_reason,
        message=said,
        last_transition_time=min(now, given.since) if waits and given.refusal is None else now,
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


def licence_condition(service: SimulationService, terms: Terms | None, now: datetime) -> Condition | None:
    """Return, of a service that names a Licence, the condition that says whether it may use it."""
    licence = service.spec.licence
    if licence is None or licence.licence_ref is None or terms is None:
        return None
    reason, message = terms.refusal or (Reason.LICENCE_FOUND, "")
    return Condition(
        type=ConditionType.LICENCE_PERMITTED,
        status="True" if terms.refusal is None else "False",
        reason=reason,
        message=message,
        last_transition_time=now,
        observed_generation=service.metadata.generation,
    )


def shared_status(licence: Licence, services: int, others: int, claims: Sequence[Claim], now: datetime) -> SharedStatus:
    """Return the status of a Licence that so many services name."""
    seen = licence_status(licence.spec.seats, others, claims)
    left = seen.taken < seen.seats
    condition = Condition(
        type=ConditionType.AVAILABLE,
        status="True" if left else "False",
        reason=Reason.SEATS_LEFT if left else Reason.SEATS_TAKEN,
        message="" if left else "every seat is taken: pools wait for workers to end, or for more spec.seats",
        last_transition_time=now,
        observed_generation=licence.metadata.generation,
    )
    return SharedStatus(
        observed_generation=licence.metadata.generation,
        services=services,
        used=seen.taken,
        waiting=seen.waiting,
        conditions=set_condition(licence.status.conditions, condition),
    )


def licence_status(seats: int, others: int, claims: Sequence[Claim]) -> LicenceStatus:
    """The seats of a licence, for the status of its services."""
    waiting = sum(claim.desired - claim.kept for claim in in_queue(claims))
    return LicenceStatus(seats=seats, taken=others + sum(claim.held for claim in claims), waiting=waiting)
