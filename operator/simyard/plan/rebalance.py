# SPDX-License-Identifier: Apache-2.0
"""Choice of the workers that move to a site which the pool prefers, once this site accepts workers again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simyard.api.worker import Worker
from simyard.plan.placement import Choice


def find_misplaced(workers: Sequence[Worker], choice: Choice, *, spread: bool) -> list[Worker]:
    """Return the workers that a new placement would put at another site, at most as many as the other sites have room.

    Spread moves workers from the site with the most workers to the site with the fewest, as long as this makes the
    numbers more even. Every other strategy moves workers from less preferred sites to more preferred sites. A worker
    moves only if the place at the other site is certainly free. Workers at a site that accepts no new workers stay
    there, because the reason (such as a cordon) need not concern existing workers.

    Args:
        workers: All workers of the pool that are ready or starting.
        choice: Sites that the pool may use.
        spread: True for the strategy Spread.
    """
    return _find_uneven(workers, choice) if spread else _find_behind(workers, choice)


def _find_behind(workers: Sequence[Worker], choice: Choice) -> list[Worker]:
    rank = {name: index for index, name in enumerate(choice.order)}
    room = {state.name: state.proven_room for state in choice.permitted}
    found: list[Worker] = []
    known = [worker for worker in workers if worker.spec.site in rank]
    for worker in sorted(known, key=lambda worker: -rank[worker.spec.site]):
        better = next((name for name in choice.order[: rank[worker.spec.site]] if room.get(name, 0) > 0), None)
        if better is not None:
            room[better] -= 1
            found.append(worker)
    return found


def _find_uneven(workers: Sequence[Worker], choice: Choice) -> list[Worker]:
    own = Counter(worker.spec.site for worker in workers)
    load = {name: own[name] for name in choice.order}
    room = {state.name: state.proven_room for state in choice.permitted}
    leaves: Counter[str] = Counter()
    while free := [name for name in load if room.get(name, 0) > 0]:
        fullest, emptiest = max(load, key=load.__getitem__), min(free, key=load.__getitem__)
        if load[fullest] - load[emptiest] < 2:
            break
        load[fullest] -= 1
        load[emptiest] += 1
        room[emptiest] -= 1
        leaves[fullest] += 1
    found: list[Worker] = []
    for worker in workers:
        if leaves[worker.spec.site] > 0:
            leaves[worker.spec.site] -= 1
            found.append(worker)
    return found
