# SPDX-License-Identifier: Apache-2.0
"""Rollout: the outdated workers, and those among them that can be replaced now."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from simyard.api.base import Json
from simyard.api.names import LABEL_REVISION
from simyard.api.worker import Worker
from simyard.plan.lost_workers import is_disconnected
from simyard.plan.placement import Choice, SiteState
from simyard.plan.revision import compute_revision
from simyard.plan.service import PublishedService
from simyard.plan.worker import is_ready


@dataclass(frozen=True, slots=True)
class Outdated:
    """Workers without the present revision.

    Attributes:
        workers: Workers with an old revision.
        unknown: Workers without a revision label, each with the revision that it gets. An earlier version created them,
            or a user removed the label; they are not replaced on a guess.
        uids: Uids of ``workers``.
    """

    workers: Sequence[Worker] = ()
    unknown: Sequence[tuple[Worker, str]] = ()
    uids: frozenset[str] = field(default_factory=frozenset)


def compute_revisions(service: PublishedService, attributes: Json, sites: Mapping[str, SiteState]) -> dict[str, str]:
    """Return the present revision of a pool's workers, by name of the site."""
    images = service.service.spec.images.to_json()
    kinds = {name: state.site.spec.provider.get_member()[0] for name, state in sites.items()}
    by_kind = {kind: compute_revision(service.digest, images.get(kind, ""), attributes) for kind in set(kinds.values())}
    return {name: by_kind[kind] for name, kind in kinds.items()}


def find_outdated(workers: Sequence[Worker], wanted: Mapping[str, str]) -> Outdated:
    """Return the workers whose revision differs from the ``wanted`` one; workers at unknown sites stay."""
    outdated: list[Worker] = []
    unknown: list[tuple[Worker, str]] = []
    for worker in workers:
        expected = wanted.get(worker.spec.site)
        found = worker.metadata.labels.get(LABEL_REVISION)
        if expected is None or found == expected:
            continue
        if found:
            outdated.append(worker)
        else:
            unknown.append((worker, expected))
    return Outdated(outdated, unknown, frozenset(worker.metadata.uid for worker in outdated))


def parse_max_unavailable(value: str | int, desired: int) -> int:
    """Return ``maxUnavailable`` as a number: a percentage of ``desired`` is rounded down, but is at least 1."""
    if isinstance(value, int):
        return value
    return max(1, desired * int(value.removesuffix("%")) // 100)


def find_replaceable(outdated: Outdated, choice: Choice, going: Container[str]) -> tuple[list[Worker], list[Worker]]:
    """Return the outdated workers whose replacements would find a place: the ready ones, and the others.

    If no site has room, the place that a worker frees at its own site counts, unless the site accepts no workers.
    Disconnected workers are in neither list: they reconnect, or are replaced as failed.
    """
    found = [
        worker
        for worker in outdated.workers
        if worker.metadata.uid not in going and (choice.permitted or worker.spec.site in choice.order)
    ]
    ready = [worker for worker in found if is_ready(worker)]
    return ready, [worker for worker in found if not is_ready(worker) and not is_disconnected(worker)]
