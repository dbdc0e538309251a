# SPDX-License-Identifier: Apache-2.0
"""Rollout: the outdated workers of a pool, and the outdated workers that can be replaced now."""

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
        unknown: Workers without a revision label, each with the revision label that the operator adds. They count as up
            to date, because their real revision is unknown: a user has removed the label, or an old operator set none.
        uids: Uids of ``workers``.
    """

    workers: Sequence[Worker] = ()
    unknown: Sequence[tuple[Worker, str]] = ()
    uids: frozenset[str] = field(default_factory=frozenset)


def compute_revisions(service: PublishedService, attributes: Json, sites: Mapping[str, SiteState]) -> dict[str, str]:
    """Return the present revision of a pool's workers, by the site's name."""
    images = service.service.spec.images.to_json()
    kinds = {name: state.site.spec.provider.get_member()[0] for name, state in sites.items()}
    by_kind = {kind: compute_revision(service.digest, images.get(kind, ""), attributes) for kind in set(kinds.values())}
    return {name: by_kind[kind] for name, kind in kinds.items()}


def find_outdated(workers: Sequence[Worker], wanted: Mapping[str, str]) -> Outdated:
    """Return the workers whose revision differs from the ``wanted`` revision of their site.

    A worker at a site without a ``wanted`` revision does not count as outdated.
    """
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
    """Return ``maxUnavailable`` as a number; a percentage of ``desired`` is rounded down, to at least 1."""
    if isinstance(value, int):
        return value
    return max(1, desired * int(value.removesuffix("%")) // 100)


def find_replaceable(outdated: Outdated, choice: Choice, going: Container[str]) -> tuple[list[Worker], list[Worker]]:
    """Return two lists of outdated workers whose replacements would find a place: ready workers, and starting workers.

    If no site has room, a replacement can use the place that the worker itself frees, unless its site accepts no new
    workers. Disconnected workers are in neither list: they reconnect, or the pool replaces them as failed workers.
    """
    found = [
        worker
        for worker in outdated.workers
        if worker.metadata.uid not in going and (choice.permitted or worker.spec.site in choice.order)
    ]
    ready = [worker for worker in found if is_ready(worker)]
    return ready, [worker for worker in found if not is_ready(worker) and not is_disconnected(worker)]
