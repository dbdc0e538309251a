# SPDX-License-Identifier: Apache-2.0
"""What a cloud's clients see of its limits and faults, over the wire."""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest

from simyard_dev.providers import complete_emulated
from simyard_sites.base import (
    MachineNotFoundError,
    MachineState,
    Snapshot,
    ThrottledError,
    UnknownOutcomeError,
)
from simyard_sites.emulated import client
from simyard_sites.emulated.portions import yield_portions
from simyard_sites.emulated.protocol import Create, Forget, Resurrect
from simyard_sites.emulated.settings import Settings

AN_HOUR = 3_600_000


async def test_a_lost_answer_leaves_one_machine_and_repeating_the_call_is_answered(
    clouds: Any, observe: Any, requests_for: Any, outcomes: Any
) -> None:
    site = clouds.site(lostAnswersPercent=100)
    observer = observe(site)
    with pytest.raises(UnknownOutcomeError):
        await outcomes(site.create(requests_for("a", "b")))
    await observer.until_all(MachineState.RUNNING, 2)
    again = await outcomes(site.create(requests_for("a", "b")))
    assert [outcome.machine.id for outcome in again] == ["0", "1"]
    with pytest.raises(UnknownOutcomeError):
        await outcomes(site.delete(["0", "1"]))
    await observer.until(lambda machines: not machines)
    assert [outcome.error for outcome in await outcomes(site.delete(["0", "1"]))] == [None, None]


async def test_creates_that_come_too_fast_are_refused_one_by_one_with_the_time_to_come_again(
    clouds: Any, requests_for: Any, outcomes: Any
) -> None:
    site = clouds.site(api={"createsPerSecond": 1, "createBurst": 2, "retryAfterMilliseconds": 500}, latencies={})
    names = ("a", "b", "c", "d")
    found = {outcome.key: outcome for outcome in await outcomes(site.create(requests_for(*names)))}
    assert [found[name].machine is not None for name in names[:2]] == [True, True]
    for name in names[2:]:
        assert isinstance(found[name].error, ThrottledError)
        assert found[name].error.retry_after_seconds == 0.5
    assert [machine.name for machine in await site.list_owned()] == ["a", "b"]


async def test_a_call_beside_too_many_others_is_refused_as_a_whole_and_reading_goes_on(
    clouds: Any, requests_for: Any, outcomes: Any
) -> None:
    api = {"callsInFlight": 1, "callMilliseconds": AN_HOUR}
    site = clouds.site(api=api)
    await site.probe()
    connection, _ = await client.connect(clouds.files(), Settings.from_provider(complete_emulated(api=api)), ("false",))
    await connection.send(Create(requests_for("a")))
    with pytest.raises(ThrottledError) as refused:
        await outcomes(site.create(requests_for("b")))
    assert refused.value.retry_after_seconds is None
    assert isinstance((await outcomes(site.get(["0"])))[0].error, MachineNotFoundError)
    connection.close()


async def test_calls_are_under_way_beside_each_other(clouds: Any, requests_for: Any, outcomes: Any) -> None:
    site = clouds.site(api={"itemMilliseconds": 10})
    calls = [outcomes(site.create(requests_for(f"a{number}", f"b{number}"))) for number in range(20)]
    created = [outcome for call in await asyncio.gather(*calls) for outcome in call]
    assert sorted(int(outcome.machine.id) for outcome in created) == list(range(40))


async def test_a_call_that_is_abandoned_is_carried_out(clouds: Any, observe: Any, requests_for: Any) -> None:
    site = clouds.site(api={"itemMilliseconds": 10})
    observer = observe(site)
    async with aclosing(site.create(requests_for(*(f"m{number}" for number in range(20))))) as call:
        await anext(call)
    await observer.until_all(MachineState.RUNNING, 20)


async def test_lost_events_are_made_up_for_by_a_snapshot(
    clouds: Any, observe: Any, requests_for: Any, outcomes: Any
) -> None:
    site = clouds.site(lostEventsPercent=100, timeScalePercent=1)
    observer = observe(site)
    await observer.until(lambda machines: not machines)
    await outcomes(site.create(requests_for("a")))
    await observer.until_all(MachineState.RUNNING, 1)
    await outcomes(site.delete(["0"]))
    await observer.until(lambda machines: not machines)
    assert all(isinstance(event, Snapshot) for event in observer.events)


async def test_a_forgotten_machine_leaves_no_guest_and_a_resurrected_one_can_be_deleted(
    clouds: Any, observe: Any, requests_for: Any, outcomes: Any
) -> None:
    site = clouds.site(timeScalePercent=1)
    observer = observe(site)
    await outcomes(site.create(requests_for("a", "b")))
    await clouds.until_guests(lambda guests: len(guests) == 2)
    await client.inject(clouds.files(), Forget(["0"]))
    await observer.until(lambda machines: machines.keys() == {"b"})
    await clouds.until_guests(lambda guests: len(guests) == 1)
    await clouds.until(lambda: [path.name for path in clouds.files().machines.iterdir()] == ["1"])
    await client.inject(clouds.files(), Resurrect(["0"]))
    await observer.until_all(MachineState.RUNNING, 2)
    with pytest.raises(MachineNotFoundError):
        await client.inject(clouds.files(), Resurrect(["0"]))
    await outcomes(site.delete(["0"]))
    await observer.until(lambda machines: machines.keys() == {"b"})


async def test_the_version_names_the_profile_and_a_cloud_that_was_killed_is_started_with_it_again(clouds: Any) -> None:
    site = clouds.site(profile="kubevirt-tuned", timeScalePercent=10)
    version = (await site.probe()).version
    assert version.startswith("emulated ")
    assert version.endswith(" kubevirt-tuned at 10 % of its time")
    process_id = clouds.process_id()
    os.kill(process_id, signal.SIGKILL)
    assert (await site.probe()).version == version
    assert clouds.process_id() != process_id


async def test_portions_come_in_time_with_empty_ones_between_and_end_when_the_cloud_does() -> None:
    closing = asyncio.Event()
    now = time.time()
    handed: list[Sequence[str]] = []
    async for portion in yield_portions(["a", "b", "c"], [now, now, now + 3600], 0.01, closing):
        handed.append(portion)
        if len(handed) == 3:
            closing.set()
    assert handed == [["a", "b"], [], []]
    assert [portion async for portion in yield_portions([], [], 0.01, closing)] == [[]]
