# SPDX-License-Identifier: Apache-2.0
"""A machine that a pool does not show is not taken for lost before it was asked for by itself."""

from typing import Any

import pytest

from simyard_simulators.oned import Lcm, State
from simyard_simulators.oned.objects import Permissions
from simyard_simulators.oned.wire import Arguments
from simyard_sites.base import MachineState


@pytest.fixture
def hide(yard: Any) -> Any:
    """Has pools show these machines no more."""
    hidden: set[int] = set()
    methods = yard.oned._methods._methods
    info_set, info = methods["one.vmpool.infoset"], methods["one.vmpool.info"]

    def some(user: Any, given: Arguments) -> Any:
        shown = [each for each in given.string(1).split(",") if int(each) not in hidden]
        return info_set(user, Arguments([given.string(0), ",".join(shown) or "999999", False]))

    def all_of_a_state(user: Any, given: Arguments) -> Any:
        away = [(ids, oid) for ids in yard.oned.cloud.by_state.values() for oid in hidden if oid in ids]
        for ids, oid in away:
            del ids[oid]
        try:
            return info(user, given)
        finally:
            for ids, oid in away:
                ids[oid] = None

    methods["one.vmpool.infoset"], methods["one.vmpool.info"] = some, all_of_a_state
    return lambda machine: hidden.add(int(machine.id))


async def test_a_machine_that_a_pool_does_not_show_is_still_there_and_seen_to_change(yard: Any, hide: Any) -> None:
    site = yard.site()
    seen = yard.watch(site)
    [a, _] = await yard.create(site, "a", "b")
    await seen.until_all("Running", "a", "b")
    hide(a)
    assert {machine.name for machine in await site.list_owned()} == {"a", "b"}
    yard.oned.cloud.index(yard.vm(a), State.ACTIVE, Lcm.BOOT_FAILURE)
    await seen.until(lambda machines: machines["a"].state is MachineState.FAILED)
    yard.oned.cloud.index(yard.vm(a), State.DONE, Lcm.LCM_INIT)
    await seen.until_all("Running", "b")


async def test_a_machine_that_does_not_exist_any_more_is_gone(yard: Any) -> None:
    site = yard.site()
    seen = yard.watch(site)
    [a, _] = await yard.create(site, "a", "b")
    await seen.until_all("Running", "a", "b")
    yard.oned.cloud.index(yard.vm(a), State.DONE, Lcm.LCM_INIT)
    del yard.oned.cloud.by_state[State.DONE][int(a.id)]  # as after onedb purge-done
    del yard.oned.cloud.vms[int(a.id)]
    await seen.until_all("Running", "b")


async def test_a_machine_that_the_account_may_not_see_any_more_is_not_told_to_be_gone(yard: Any) -> None:
    site = yard.site()
    [a, b] = await yard.create(site, "a", "b")
    vm, before = yard.vm(a), (yard.vm(a).uid, yard.vm(a).permissions)
    vm.uid, vm.permissions, vm.rendered = 0, Permissions([False] * 9), None
    assert {machine.id for machine in await site.list_owned()} == {a.id, b.id}
    vm.uid, vm.permissions = before
    vm.rendered = None
    async for outcome in site.delete([a.id, b.id]):
        assert outcome.error is None
    seen = yard.watch(site)
    await seen.until(lambda machines: not machines)


async def test_machines_that_are_known_to_be_others_are_not_asked_for_again(yard: Any) -> None:
    site = yard.site()
    [theirs] = yard.oned.fill(running=1)
    yard.oned.counters.reset()
    for _ in range(3):
        async for outcome in site.delete([str(theirs)]):
            assert outcome.error is None
    assert yard.oned.counters.calls["one.vm.action"] == 0
    assert yard.oned.cloud.vms[theirs].state is State.ACTIVE
