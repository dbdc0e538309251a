# SPDX-License-Identifier: Apache-2.0
"""Distribution of the seats of a licence to pools.

The rule is first come, first served. The oldest claim gets every free seat until it has all the seats it wants; a
smaller claim does not overtake it. A pool uses its seats at once, so a large pool may start with a part of its workers.
A pool that cannot use a seat (no site, no broker, workers that keep failing) gets no seat, but keeps its place in the
queue. The operator deletes no worker to free a seat, not even if a change of the licence reduced the number of seats.

The operator derives the distribution from objects alone, so a restarted operator continues with it:

- A Worker occupies a seat as long as it exists.
- ``status.licensedReplicas`` of a pool is the number of seats that the pool was granted. So the pool keeps the seat of
  a worker that is being replaced.
- A pool waits since the transition time of its condition ``LicenceAvailable``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from simyard.api.base import Condition, find_condition, set_condition
from simyard.api.licence import MAX_NAMESPACES, Licence, SeatsOfNamespace
from simyard.api.licence import LicenceStatus as SharedStatus
from simyard.api.names import ConditionType, Reason
from simyard.api.simulation_service import LicenceStatus, SimulationService
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.plan.times import add_seconds

NO_SEATS: Mapping[str, int] = MappingProxyType({})
MAX_NAMED_POOLS = 5
"""Maximum number of pools that a message names; it gives the number of the other pools."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim of a pool to seats of a licence.

    Attributes:
        pool: Uid of the pool.
        held: Number of the pool's existing Workers.
        granted: Number of seats that an earlier pass granted to the pool.
        desired: Desired number of workers.
        since: Time since which the pool waits for seats; None if it does not wait, or cannot use seats.
        namespace: Namespace of the pool.
    """

    pool: str
    held: int
    granted: int
    desired: int
    since: datetime | None = None
    namespace: str = ""

    @property
    def kept(self) -> int:
        """Number of seats that the pool keeps, even if other pools wait longer."""
        return max(self.held, self.granted)


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a licence for the services of one namespace.

    Attributes:
        seats: Number of seats of the licence.
        limit: Maximum number of seats of one namespace; None without a limit.
        refusal: Reason and message if the services may not use the licence. Their pools then get no further seats.
    """

    seats: int
    limit: int | None = None
    refusal: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Allotment:
    """Seats of one pool, and the facts about other pools that the users of this pool may know.

    Attributes:
        licence: Name of the licence in messages.
        total: Number of seats of the licence.
        taken: Number of seats that Workers occupy or that are granted to pools.
        seats: Maximum number of workers of this pool, including the existing ones.
        place: Place in the queue, counted from 1, if the pool wants more seats.
        since: Time since which it waits, if it wants more seats.
        here: Numbers of Workers in the pool's namespace, by pool; the empty name stands for Workers without a pool.
        limit: Maximum number of seats of this namespace; None without a limit.
        refusal: Reason and message if the service may not use the licence.
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


def get_licence_key(service: SimulationService) -> str:
    """Return the key of a service's licence, or an empty text; services with the same key share their seats."""
    licence, metadata = service.spec.licence, service.metadata
    if licence is None:
        return ""
    return licence.licence_ref.name if licence.licence_ref is not None else f"{metadata.namespace}/{metadata.name}"


def get_terms(service: SimulationService, licence: Licence | None) -> Terms:
    """Return the terms of a service's licence; ``licence`` is the Licence to which it refers, or None."""
    own, namespace = service.spec.licence, service.metadata.namespace
    if own is None or own.licence_ref is None:
        return Terms(own.seats or 0 if own is not None else 0)
    name = own.licence_ref.name
    if licence is None:
        message = f"Licence {name} does not exist: ask the platform team to create it, or change"
        return Terms(0, refusal=(Reason.LICENCE_NOT_FOUND, f"{message} spec.licence.licenceRef of the service"))
    spec = licence.spec
    if spec.allowed_namespaces.from_ == "Selected" and namespace not in spec.allowed_namespaces.names:
        message = f"Licence {name} is not open to namespace {namespace}: ask the platform team to add the namespace to"
        refusal = (Reason.LICENCE_FORBIDDEN, f"{message} spec.allowedNamespaces of the Licence")
        return Terms(spec.seats, spec.max_seats_per_namespace, refusal)
    return Terms(spec.seats, spec.max_seats_per_namespace)


def allot_seats(
    seats: int, others: int, claims: Iterable[Claim], *, limit: int | None = None, outside: Mapping[str, int] = NO_SEATS
) -> dict[str, int]:
    """Return the number of workers that each pool may have, by the pool's uid.

    The sum of these numbers and ``others`` is at most ``seats``, unless more Workers exist already. In this case, no
    pool gets a further seat.

    Args:
        seats: Number of seats of the licence.
        others: Number of seats that Workers without a pool occupy.
        claims: Claims of all pools that share the licence.
        limit: Maximum number of seats of one namespace.
        outside: Number of seats that Workers without a pool occupy, by namespace.
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

    for claim in sorted(known, key=lambda claim: claim.pool):  # granted seats without a Worker yet
        free -= give(claim, claim.kept - claim.held)
    for claim in sort_queue(known):
        free -= give(claim, claim.desired - result[claim.pool])
    return result


def sort_queue(claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims of the pools that wait for more seats, the oldest first."""
    found = [(claim.since, claim.pool, claim) for claim in claims if claim.since and claim.desired > claim.kept]
    return [claim for _, _, claim in sorted(found, key=lambda item: item[:2])]


def make_claim(
    pool: WorkerPool, status: WorkerPoolStatus, held: int, *, asks: datetime | None = None, demand: int = 0
) -> Claim:
    """Return the claim of a pool.

    A pool that no pass has planned yet waits since its creation. The function rounds this time up, because the API
    server stores it in whole seconds.

    Args:
        pool: Pool that claims seats.
        status: Newest status of the pool.
        held: Number of the pool's existing Workers.
        asks: Present time if the caller plans this pool now, else None.
        demand: Number of workers that studies ask for.
    """
    condition = find_condition(status.conditions, ConditionType.LICENCE_AVAILABLE)
    created = pool.metadata.creation_timestamp
    since = asks
    if condition is not None and condition.status == "False":
        since = condition.last_transition_time if asks or condition.reason == Reason.WAITING_FOR_SEATS else None
    elif condition is None and status.observed_generation == 0 and created is not None:
        since = add_seconds(created, 1.0)
    stopped = pool.spec.suspend or pool.metadata.deletion_timestamp is not None
    desired = 0 if stopped else max(pool.spec.replicas, demand)
    granted = status.licensed_replicas or 0
    return Claim(pool.metadata.uid, held, granted, desired, since, pool.metadata.namespace)


def make_allotment(
    claim: Claim,
    claims: Sequence[Claim],
    *,
    licence: str,
    terms: Terms,
    others: int,
    here: Mapping[str, int],
    outside: Mapping[str, int] = NO_SEATS,
) -> Allotment:
    """Return the seats of the pool of one claim.

    Args:
        claim: Claim of the pool, with ``since``.
        claims: Claims of all pools that share the licence, including ``claim``.
        licence: Name of the licence in messages.
        terms: Terms of the licence for the pool's namespace.
        others: Number of seats that Workers without a pool occupy.
        here: Numbers of Workers of the same namespace, by pool.
        outside: Number of seats that Workers without a pool occupy, by namespace.

    Raises:
        ValueError: The claim has no ``since``.
    """
    result = allot_seats(terms.seats, others, claims, limit=terms.limit, outside=outside)
    waiting = [item.pool for item in sort_queue(claims) if item.pool == claim.pool or result[item.pool] < item.desired]
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


def count_licensed_replicas(
    given: Allotment | None, *, desired: int, held: int, created: int, able: bool
) -> int | None:
    """Return the number of seats that a pool keeps; None if its service has no licence.

    A pool that can use seats (``able``) keeps the seats for its desired workers. A pool that cannot use seats keeps
    only the seats of its existing workers (``held``) and of the workers that this pass creates (``created``).
    """
    if given is None:
        return None
    return max(held + created, min(given.seats, desired)) if able else held + created


def add_licence_condition(
    conditions: list[Condition],
    given: Allotment | None,
    *,
    pool: WorkerPool,
    desired: int,
    held: int,
    able: bool,
    now: datetime,
) -> list[Condition]:
    """Return the conditions with an updated ``LicenceAvailable``, or without it if the service has no licence."""
    if given is None:
        return [item for item in conditions if item.type != ConditionType.LICENCE_AVAILABLE]
    waits = desired > given.seats
    reason, message = Reason.SEATS_GRANTED, f"licence {given.licence} has {given.total} seats"
    if waits:
        reason, missing = Reason.WAITING_FOR_SEATS if able else Reason.PASSED_OVER, desired - given.seats
        message = (
            f"waits for {missing} more seats, as number {given.place} in the queue"
            if able
            else f"needs {missing} more seats and cannot use them now: other pools come first, and it keeps its place"
        )
        message += f"; {_describe_seats(given, pool.metadata.name, held)}"
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


def _describe_seats(given: Allotment, pool: str, held: int) -> str:
    """Describe the occupied seats in a text; it gives only one number for all other namespaces."""
    parts = [f"{held} by this pool"]
    others = [(name, count) for name, count in given.here.items() if name and name != pool and count]
    here = sorted(others, key=lambda item: (-item[1], item[0]))
    parts += [f"{count} by pool {name}" for name, count in here[:MAX_NAMED_POOLS]]
    if rest := sum(count for _, count in here[MAX_NAMED_POOLS:]):
        parts.append(f"{rest} by other pools of this namespace")
    if alone := given.here.get("", 0):
        parts.append(f"{alone} by workers without a pool")
    known = held + sum(count for name, count in given.here.items() if name != pool)
    if elsewhere := max(0, given.taken - known):
        parts.append(f"{elsewhere} elsewhere")
    return f"licence {given.licence} has {given.total} seats, {given.taken} taken: {', '.join(parts)}"


def plan_licence_condition(service: SimulationService, terms: Terms | None, now: datetime) -> Condition | None:
    """Return the condition that says whether a service may use its Licence; None if it refers to no Licence."""
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


def plan_shared_status(
    licence: Licence, services: int, outside: Mapping[str, int], claims: Sequence[Claim], now: datetime
) -> SharedStatus:
    """Return the status of a Licence.

    Args:
        licence: Licence whose status is planned.
        services: Number of services that refer to the Licence.
        outside: Number of seats that Workers without a pool occupy, by namespace.
        claims: Claims of all pools that share the licence.
        now: Present time.
    """
    seen = sum_seats(licence.spec.seats, sum(outside.values()), claims)
    used = Counter(outside)
    for claim in claims:
        used[claim.namespace] += claim.held
    holders = sorted((-count, namespace) for namespace, count in used.items() if count)[:MAX_NAMESPACES]
    left = seen.taken < seen.seats
    condition = Condition(
        type=ConditionType.AVAILABLE,
        status="True" if left else "False",
        reason=Reason.SEATS_LEFT if left else Reason.SEATS_TAKEN,
        message="" if left else "every seat is taken: pools wait until workers end or spec.seats is increased",
        last_transition_time=now,
        observed_generation=licence.metadata.generation,
    )
    return SharedStatus(
        observed_generation=licence.metadata.generation,
        services=services,
        used=seen.taken,
        waiting=seen.waiting,
        namespaces=[SeatsOfNamespace(name=namespace, used=-count) for count, namespace in holders],
        conditions=set_condition(licence.status.conditions, condition),
    )


def sum_seats(seats: int, others: int, claims: Sequence[Claim]) -> LicenceStatus:
    """Return the numbers of seats of a licence, for the status of its services."""
    waiting = sum(claim.desired - claim.kept for claim in sort_queue(claims))
    return LicenceStatus(seats=seats, taken=others + sum(claim.held for claim in claims), waiting=waiting)
