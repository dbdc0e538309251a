# SPDX-License-Identifier: Apache-2.0
"""Creation of a pool's workers: the reasons against it, the permitted sites, and the new workers' names and sites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from simyard.api.names import Reason
from simyard.plan.backoff import Backoff
from simyard.plan.placement import Choice, choose_sites, place_workers
from simyard.plan.pool_conditions import Blocked
from simyard.plan.pool_input import PoolInput
from simyard.plan.rollout import compute_revisions
from simyard.plan.service import find_values_problem
from simyard.plan.slots import find_free_slots
from simyard.plan.texts import format_count

MAX_CREATES_PER_PASS = 500
"""Maximum number of workers that one pass creates, so that the operator sees a changed spec before it creates more."""


@dataclass(frozen=True, slots=True)
class NewWorker:
    """Worker to be created."""

    name: str
    site: str
    revision: str


@dataclass(frozen=True, slots=True)
class Sources:
    """Sites at which workers can be created now.

    Attributes:
        blocked: Reason why no worker can be created; None if workers can be created.
        choice: Permitted sites; None if ``blocked`` does not depend on a site.
        revisions: Revision that a new worker gets, by site.
    """

    blocked: Blocked | None
    choice: Choice | None
    revisions: Mapping[str, str]


def find_sources(given: PoolInput) -> Sources:
    """Return the sites at which workers can be created, or the reason why no worker can be created."""
    obstacle, service = _find_obstacle(given), given.service
    if obstacle is not None or service is None:
        return Sources(obstacle, None, {})
    wanted = compute_revisions(service, given.pool.spec.attributes, given.sites)
    choice = choose_sites(given.pool, given.sites, service.service.spec.resources)
    blocked = None if choice.permitted else Blocked(choice.reason, choice.message)
    return Sources(blocked, choice, wanted)


def create_workers(
    given: PoolInput, sources: Sources, backoff: Backoff, desired: int, missing: int, freed: frozenset[str]
) -> tuple[Blocked | None, list[NewWorker]]:
    """Return the new workers, and the reason if they are fewer than ``missing``.

    Args:
        given: Input of the plan.
        sources: Sites at which workers can be created.
        backoff: Backoff that delays the creation.
        desired: Desired number of workers.
        missing: Number of workers to create.
        freed: Names of workers that this plan deletes; the new workers may use these names.
    """
    blocked, choice = sources.blocked, sources.choice
    if blocked is not None or choice is None or missing <= 0 or backoff.is_waiting(given.now):
        return blocked, []
    missing, blocked = _limit_by_licence(given, desired, missing)
    if missing <= 0:
        return blocked, []
    spread = given.pool.spec.placement.strategy == "Spread"
    own = Counter(worker.spec.site for worker in given.workers) if spread else None
    sites = place_workers(min(missing, MAX_CREATES_PER_PASS), choice, own)
    taken = given.taken | ({worker.metadata.name for worker in given.workers} - freed)
    names = find_free_slots(given.pool.metadata.name, len(sites), taken)
    if len(sites) < min(missing, MAX_CREATES_PER_PASS):
        full = ", ".join(state.name for state in choice.permitted)
        text = f"no room for {format_count(missing - len(sites), 'more worker')} at: {full}"
        blocked = Blocked(Reason.MAX_WORKERS_REACHED, text)
    return blocked, [NewWorker(name, site, sources.revisions[site]) for name, site in zip(names, sites, strict=True)]


def may_find_room(blocked: Blocked | None, choice: Choice | None) -> bool:
    """Return whether new workers wait for room at a site, and this room may appear without a change of an object."""
    why = (Reason.MAX_WORKERS_REACHED, Reason.NO_SITE_AVAILABLE, Reason.SITE_NOT_FOUND)
    return blocked is not None and blocked.reason in why and choice is not None and choice.may_change


def _limit_by_licence(given: PoolInput, desired: int, missing: int) -> tuple[int, Blocked | None]:
    """Return the number of new workers for which the licence has seats, and the reason if it grants too few.

    If workers that are being deleted still occupy granted seats, the number is smaller too, but there is no reason to
    report.
    """
    if given.licence is None or (room := given.licence.seats - len(given.workers)) >= missing:
        return missing, None
    if given.licence.refusal is not None:
        return room, Blocked(*given.licence.refusal)
    if (lacking := desired - given.licence.seats) > 0:
        text = f"no seats of licence {given.licence.licence} for {min(lacking, missing - room)} more"
        return room, Blocked(Reason.WAITING_FOR_SEATS, text)
    return room, None


def _find_obstacle(given: PoolInput) -> Blocked | None:
    """Return the reason why no site can get new workers; None if there is no such reason."""
    pool, service = given.pool, given.service
    if service is None or service.metadata.deletion_timestamp is not None:
        return Blocked(Reason.SERVICE_NOT_FOUND, f"SimulationService {pool.spec.service_ref.name} does not exist")
    if service.problem:
        return Blocked(Reason.INTERFACE_INVALID, f"SimulationService {service.metadata.name}: {service.problem}")
    if problem := find_values_problem(service, pool.spec.attributes):
        return Blocked(Reason.ATTRIBUTES_INVALID, problem)
    if given.refused:
        return Blocked(Reason.WORKERS_REFUSED, f"the API server refuses the pool's workers: {given.refused}")
    if given.broker_problem:
        return Blocked(Reason.BROKER_UNREACHABLE, given.broker_problem)
    return None
