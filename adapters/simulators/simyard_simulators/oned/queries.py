# SPDX-License-Identifier: Apache-2.0
"""Answers queries of pools: filters, ranges, states, order, and their costs for the database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from simyard_simulators.oned.cloud import Cloud
from simyard_simulators.oned.machine import Vm
from simyard_simulators.oned.objects import Owned, User
from simyard_simulators.oned.settings import Costs
from simyard_simulators.oned.states import Code, RefusedError, State
from simyard_simulators.oned.wire import Answer, Arguments, Escaped

MINE_AND_GROUPS, ALL, MINE, GROUP = -1, -2, -3, -4
NOT_DONE, ANY_STATE = -1, -2

_Kind = TypeVar("_Kind", bound=Owned)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a method, with its cost in milliseconds, without that of the request, and a flag for a write.

    ``scanned`` is the number of rows that the database read.
    """

    value: Answer
    cost: float = 0.0
    writes: bool = False
    scanned: int = 0


def select(objects: Iterable[_Kind], user: User, who: int, start: int, end: int) -> list[_Kind]:
    """Return the objects of a pool in a filter and range, newest first (API_LIST_ORDER is DESC by default).

    If ``end`` is below -1 it is a page: ``start`` is its offset, ``-end`` its length.

    Raises:
        RefusedError: 0x1000 for a filter below -4.
    """
    if who < GROUP:
        raise RefusedError(Code.XML_RPC_API, "Incorrect filter_flag")
    paged = end < -1
    chosen = [
        one
        for one in objects
        if _admits(one, user, who) and (paged or start < 0 or one.oid >= start) and (paged or end < 0 or one.oid <= end)
    ]
    chosen.sort(key=lambda one: -one.oid)
    return chosen[max(start, 0) :][:-end] if paged else chosen


def _admits(one: Owned, user: User, who: int) -> bool:
    match who:
        case -3:
            return one.uid == user.oid
        case -1:
            return one.uid == user.oid or one.gid in user.groups
        case -4:
            return one.gid == user.gid
        case -2:
            return one.allows(user, "USE")
        case _:
            return one.uid == who and one.allows(user, "USE")


def query_vms(cloud: Cloud, user: User, given: Arguments, extended: bool) -> Result:
    """Answer ``one.vmpool.info`` and ``infoextended``: filter, start, end, state, and from 5.12 on a search.

    A query for exactly one state uses an index. Queries for "not done" (-1) and "any" (-2) read every row in the range,
    so their cost grows with the whole table, which includes VMs that ended long ago.

    Raises:
        RefusedError: 0x1000 for an unknown filter or state, 0x2000 for a search that the database does not support.
    """
    who, start, end, state = (given.integer(position) for position in range(1, 5))
    search = given.string(5) if len(given) > 5 else ""
    if search and not cloud.settings.full_text_search:
        raise RefusedError(Code.INTERNAL, "Full text search is not supported by the SQL backend")
    if not ANY_STATE <= state <= State.CLONING_FAILURE:
        raise RefusedError(Code.XML_RPC_API, "Incorrect filter_flag, state")
    ranged = end >= -1 and start > 0
    if state == ANY_STATE:
        candidates: Iterable[int] = cloud.vms
    elif state == NOT_DONE:
        candidates = [oid for each, ids in cloud.by_state.items() if each is not State.DONE for oid in ids]
    else:
        candidates = cloud.by_state[State(state)]
    chosen = select((cloud.vms[oid] for oid in candidates), user, who, start, end)
    if search:
        chosen = [vm for vm in chosen if _found(vm, search)]
    scanned = 0
    if state < 0:
        last = cloud.next_vm_id() if end < 0 else min(end + 1, cloud.next_vm_id())
        scanned = max(0, last - start) if ranged else (last if end >= -1 else len(cloud.vms))
    return vm_pool(cloud.settings.costs, chosen, extended, scanned)


def vm_pool(costs: Costs, vms: list[Vm], extended: bool, scanned: int) -> Result:
    """Return a VM_POOL with its cost."""
    inner = (vm.whole(1) if extended else vm.short() for vm in vms)
    pieces = (b"&lt;VM_POOL&gt;", *inner, b"&lt;/VM_POOL&gt;")
    cost = len(vms) * (costs.extended_row if extended else costs.row)
    if scanned:
        cost += costs.scan + scanned * costs.scanned_row
    return Result(Escaped(pieces), cost, scanned=scanned)


def _found(vm: Vm, search: str) -> bool:
    """Return True if ``KEY=VALUE`` is in the name, the owner or a template, as the full text index stores them."""
    key, _, wanted = search.partition("=")
    known = {"NAME": vm.name, "UNAME": vm.uname, "GNAME": vm.gname}
    if key in known:
        return known[key] == wanted
    for template in (vm.template, vm.user_template):
        for name, value in template.items():
            single = {name: value} if isinstance(value, str) else value
            if single.get(key) == wanted:
                return True
    return False
