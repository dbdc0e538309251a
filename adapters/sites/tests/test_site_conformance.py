"""What every provider does; a provider joins with one line in ``site``."""

from typing import Any

import pytest

from simyard_sites.base import Gone, MachineNotFoundError, MachineState, PowerAction, Site, Snapshot


@pytest.fixture(params=["emulated"])
def site(clouds: Any) -> Site:
    made: Site = clouds.site()
    return made


async def test_probe_says_what_answers(site: Site) -> None:
    assert (await site.probe()).version.startswith("emulated ")


async def test_create_adopts_the_machine_of_the_same_name(site: Site, requests_for: Any, outcomes: Any) -> None:
    [first] = await outcomes(site.create(requests_for("a")))
    [again] = await outcomes(site.create(requests_for("a")))
    assert first.machine.id == again.machine.id
    assert [machine.owner for machine in await site.list_owned()] == [requests_for("a")[0].owner]


async def test_machine_id_0_is_a_machine(site: Site, observe: Any, requests_for: Any, outcomes: Any) -> None:
    observer = observe(site)
    await outcomes(site.create(requests_for("a")))
    await observer.until_all(MachineState.RUNNING, 1)
    [found] = await outcomes(site.get(["0"]))
    assert found.machine.name == "a"
    [acted] = await outcomes(site.act(["0"], PowerAction.START))
    assert acted.error is None
    await outcomes(site.delete(["0"]))
    await observer.until(lambda machines: not machines)
    assert observer.told[-1] == Gone("0", "a")


async def test_deleting_an_absent_machine_succeeds_and_looking_at_it_finds_nothing(site: Site, outcomes: Any) -> None:
    [deleted] = await outcomes(site.delete(["0"]))
    assert deleted.error is None
    [found] = await outcomes(site.get(["0"]))
    assert isinstance(found.error, MachineNotFoundError)


async def test_one_bad_item_does_not_hold_up_the_rest(site: Site, requests_for: Any, outcomes: Any) -> None:
    await outcomes(site.create(requests_for("a")))
    found = await outcomes(site.get(["7", "0"]))
    assert [type(outcome.error) for outcome in found] == [MachineNotFoundError, type(None)]


async def test_events_begin_with_a_snapshot_of_what_is_there(
    site: Site, observe: Any, requests_for: Any, outcomes: Any
) -> None:
    first = observe(site)
    await outcomes(site.create(requests_for("a", "b")))
    machines = await first.until_all(MachineState.RUNNING, 2)
    second = observe(site)
    assert await second.until(lambda machines: len(machines) == 2) == machines
    assert isinstance(first.told[0], Snapshot)
    assert len(second.told) == 1
