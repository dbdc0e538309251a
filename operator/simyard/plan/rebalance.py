"""Which workers go back to a site that the pool prefers, once it takes workers again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simyard.api.worker import Worker
from simyard.plan.placement import Choice


def misplaced(workers: Sequence[Worker], choice: Choice, *, spread: bool) -> list[Worker]:
    """The workers that would be placed elsewhere today, no more than there is room for.

    ``workers`` are all that serve. Spread moves from the site with most to that with fewest as long as that makes them
    more even; every other strategy from the least preferred site to the more preferred ones. Nobody leaves a machine
    for a place that is not shown to exist. A site that takes nobody keeps those that it has: it may be cordoned for a
    reason that does not touch them.
    """
    return _uneven(workers, choice) if spread else _behind(workers, choice)


def _behind(workers: Sequence[Worker], choice: Choice) -> list[Worker]:
    rank = {name: index for index, name in enumerate(choice.order)}
    room = {state.name: state.shown_room for state in choice.permitted}
    found: list[Worker] = []
    known = [worker for worker in workers if worker.spec.site in rank]
    for worker in sorted(known, key=lambda worker: -rank[worker.spec.site]):
        better = next((name for name in choice.order[: rank[worker.spec.site]] if room.get(name, 0) > 0), None)
        if better is not None:
            room[better] -= 1
            found.append(worker)
    return found


def _uneven(workers: Sequence[Worker], choice: Choice) -> list[Worker]:
    own = Counter(worker.spec.site for worker in workers)
    load = {name: own[name] for name in choice.order}
    room = {state.name: state.shown_room for state in choice.permitted}
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
