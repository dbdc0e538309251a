"""Which workers are outdated, and which of them are replaced now."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from simyard.api.base import Json
from simyard.api.names import LABEL_REVISION
from simyard.api.worker import Worker
from simyard.plan.placement import Choice, SiteState
from simyard.plan.replacement import is_disconnected
from simyard.plan.revision import revision
from simyard.plan.service import PublishedService
from simyard.plan.worker import is_ready


@dataclass(frozen=True, slots=True)
class Outdated:
    """Workers that are not as the service and the pool say now.

    ``unknown`` are those that do not say what they were made from (an earlier version made them, or somebody removed
    the label), each with the revision that it is from now on taken for: they are not replaced on a guess.
    """

    workers: Sequence[Worker] = ()
    unknown: Sequence[tuple[Worker, str]] = ()
    uids: frozenset[str] = field(default_factory=frozenset)


def revisions(service: PublishedService, attributes: Json, sites: Mapping[str, SiteState]) -> dict[str, str]:
    """The revision that a worker of a pool should have, by the name of its site."""
    images = service.service.spec.images.to_json()
    kinds = {name: state.site.spec.provider.member()[0] for name, state in sites.items()}
    by_kind = {kind: revision(service.digest, images.get(kind, ""), attributes) for kind in set(kinds.values())}
    return {name: by_kind[kind] for name, kind in kinds.items()}


def compare(workers: Sequence[Worker], wanted: Mapping[str, str]) -> Outdated:
    """Compare workers with what they should be; those at a site that nobody knows stay as they are."""
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


def most_unavailable(value: str | int, desired: int) -> int:
    """``maxUnavailable`` as a number: a percentage is rounded down, and one is always permitted."""
    if isinstance(value, int):
        return value
    return max(1, desired * int(value.removesuffix("%")) // 100)


def replaceable(outdated: Outdated, choice: Choice, going: Container[str]) -> tuple[list[Worker], list[Worker]]:
    """Outdated workers whose successors would find a place: those that serve, and those that do not.

    Where there is no room elsewhere, the place that a worker leaves at its own site is one, unless the site takes
    nobody. A worker that is disconnected for the moment belongs to neither: it comes back, or is replaced as failed.
    """
    found = [
        worker
        for worker in outdated.workers
        if worker.metadata.uid not in going and (choice.permitted or worker.spec.site in choice.order)
    ]
    ready = [worker for worker in found if is_ready(worker)]
    return ready, [worker for worker in found if not is_ready(worker) and not is_disconnected(worker)]
