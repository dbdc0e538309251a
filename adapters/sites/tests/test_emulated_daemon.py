# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from simyard_dev.processes import kill_all
from simyard_dev.providers import complete_emulated, make_emulated_settings
from simyard_sites.base import (
    InvalidSpecError,
    MachineState,
    PowerAction,
    SiteConfig,
    Snapshot,
    Stage,
    UnavailableError,
    UnknownOutcomeError,
)
from simyard_sites.emulated import EmulatedSite, client
from simyard_sites.emulated.protocol import Create

pytestmark = pytest.mark.slow

NEVER = {"bootMilliseconds": 3_600_000}
CLIENT = """
import asyncio, json, sys
from simyard_sites.base import MachineRequest, Owner, SiteConfig
from simyard_sites.emulated import EmulatedSite

async def main():
    site = EmulatedSite(SiteConfig("here", json.loads(sys.argv[1])))
    requests = [MachineRequest(f"m{n}", Owner("default", f"m{n}", f"uid-m{n}", "pool"), b"{}") for n in range(200)]
    print(len([outcome async for outcome in site.create(requests)]), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_200_machines_of_one_call_run_each_with_a_guest_and_end_without_a_trace(
    clouds: Any, observe: Any, requests_for: Any, outcomes: Any
) -> None:
    site = clouds.site(latencies={"prologMilliseconds": 20, "bootMilliseconds": 30}, jitterPercent=50)
    observer = observe(site)
    names = [f"m{number}" for number in range(200)]
    created = await outcomes(site.create(requests_for(*names)))
    assert [outcome.key for outcome in created] == names
    assert [outcome.machine.id for outcome in created] == [str(number) for number in range(200)]
    machines = await observer.until_all(MachineState.RUNNING, 200)
    assert all(
        machine.entered[Stage.RUNNING] >= machine.entered[Stage.PENDING] + 0.025 for machine in machines.values()
    )
    assert len(await clouds.until_guests(lambda guests: len(guests) == 200)) == 200
    await outcomes(site.delete([machine.id for machine in machines.values()]))
    await observer.until(lambda machines: not machines)
    assert not clouds.guests()
    assert list(clouds.files().machines.iterdir()) == []


async def test_a_machine_deleted_while_it_boots_is_gone_with_its_directory(
    clouds: Any, observe: Any, requests_for: Any, outcomes: Any
) -> None:
    site = clouds.site(latencies=NEVER)
    observer = observe(site)
    await outcomes(site.create(requests_for("a")))
    await observer.until_all(MachineState.BOOT, 1)
    assert (clouds.files().machines / "0" / "bootstrap.json").stat().st_mode & 0o777 == 0o600
    await outcomes(site.delete(["0"]))
    await observer.until(lambda machines: not machines)
    assert list(clouds.files().machines.iterdir()) == []


async def test_a_client_killed_with_kill_9_leaves_its_machines_and_the_next_one_finds_them(
    clouds: Any, outcomes: Any, requests_for: Any
) -> None:
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, json.dumps(complete_emulated(latencies=NEVER)), stdout=subprocess.PIPE
    )
    assert killed.stdout
    assert await killed.stdout.readline() == b"200\n"
    killed.kill()
    await killed.wait()
    site = clouds.site(latencies=NEVER)
    machines = await site.list_owned()
    assert {machine.name for machine in machines} == {f"m{number}" for number in range(200)}
    again = await outcomes(site.create(requests_for("m7")))
    assert again[0].machine.id in {machine.id for machine in machines}
    assert len(await site.list_owned()) == 200


async def test_clients_that_race_start_one_cloud(clouds: Any) -> None:
    racers = [clouds.site() for _ in range(5)]
    await asyncio.gather(*(site.probe() for site in racers))
    assert clouds.serving() == {clouds.process_id()}


async def test_guests_die_with_a_killed_cloud_and_its_events_stop(
    clouds: Any, requests_for: Any, outcomes: Any, death_of: Callable[[int], None]
) -> None:
    site = clouds.site()
    await outcomes(site.create(requests_for("a", "b")))
    guests = await clouds.until_guests(lambda guests: len(guests) == 2)
    async with aclosing(site.events()) as events:
        assert isinstance(await anext(events), Snapshot)
        assert kill_all(clouds.directory)
        with pytest.raises(UnavailableError):
            await anext(events)
    for guest in guests:
        await asyncio.to_thread(death_of, guest)


async def test_after_a_killed_cloud_the_next_one_starts_empty_ends_what_escaped_and_uses_no_id_again(
    clouds: Any, requests_for: Any, outcomes: Any
) -> None:
    site = clouds.site(("sh", "-c", "setsid sleep 600 & exec sleep 600", "guest"))
    [first] = await outcomes(site.create(requests_for("a")))
    await clouds.until_guests(lambda guests: len(guests) == 2)
    os.kill(clouds.process_id(), signal.SIGKILL)
    await clouds.until_guests(lambda guests: len(guests) == 1)
    assert await site.list_owned() == []
    assert not clouds.guests()
    [second] = await outcomes(site.create(requests_for("b")))
    assert int(second.machine.id) > int(first.machine.id)


async def test_a_call_cut_off_in_the_middle_has_an_unknown_outcome(
    clouds: Any, requests_for: Any, outcomes: Any
) -> None:
    site = clouds.site()
    await outcomes(site.get(["0"]))
    process_id = clouds.process_id()
    os.kill(process_id, signal.SIGSTOP)
    call = asyncio.create_task(outcomes(site.create(requests_for("a"))))
    await asyncio.sleep(0)
    os.kill(process_id, signal.SIGKILL)
    with pytest.raises(UnknownOutcomeError):
        await call


async def test_a_lost_answer_to_a_create_leaves_one_machine(clouds: Any, requests_for: Any, outcomes: Any) -> None:
    site = clouds.site()
    await site.probe()
    connection, _ = await client.connect(clouds.files(), make_emulated_settings(), ("false",))
    await connection.send(Create(requests_for("a")))
    connection.close()
    await outcomes(site.create(requests_for("a")))
    assert [machine.name for machine in await site.list_owned()] == ["a"]


async def test_a_guest_that_ends_by_itself_is_started_again_while_its_machine_runs(
    clouds: Any, observe: Any, requests_for: Any, outcomes: Any
) -> None:
    guest = "test -e once && touch twice && exec sleep 600; touch once; echo oh; exit 5"
    site = clouds.site(("sh", "-c", guest, "guest"))
    observer = observe(site)
    await outcomes(site.create(requests_for("a")))
    directory = clouds.files().machines / "0"
    await clouds.until(lambda: (directory / "twice").exists())
    log = (directory / "guest.log").read_text()
    assert log == "oh\nemulated cloud: the guest ended by itself (exit code 5); next start in 1 s\n"
    assert observer.machines["a"].state is MachineState.RUNNING


async def test_a_guest_that_can_never_work_fails_its_machine_with_its_last_words(
    clouds: Any, observe: Any, requests_for: Any, outcomes: Any
) -> None:
    site = clouds.site(("sh", "-c", "echo starting; echo no module named beam >&2; exit 3", "guest"))
    observer = observe(site)
    await outcomes(site.create(requests_for("a")))
    machines = await observer.until_all(MachineState.FAILED, 1)
    assert (machines["a"].reason, machines["a"].message) == ("GuestUnusable", "no module named beam")


async def test_power_actions_reach_the_guest(clouds: Any, observe: Any, requests_for: Any, outcomes: Any) -> None:
    site = clouds.site()
    observer = observe(site)
    await outcomes(site.create(requests_for("a")))
    await observer.until_all(MachineState.RUNNING, 1)
    [first] = await clouds.until_guests(lambda guests: len(guests) == 1)

    await outcomes(site.act(["0"], PowerAction.SUSPEND))
    await observer.until_all(MachineState.SUSPENDED, 1)
    await clouds.until(lambda: process_state(first) == "T")
    await outcomes(site.act(["0"], PowerAction.START))
    await observer.until_all(MachineState.RUNNING, 1)
    await clouds.until_guests(lambda guests: guests == {first} and process_state(first) == "S")

    await outcomes(site.act(["0"], PowerAction.RESTART))
    [second] = await clouds.until_guests(lambda guests: bool(guests - {first}))
    await outcomes(site.act(["0"], PowerAction.STOP))
    await observer.until_all(MachineState.STOPPED, 1)
    assert not clouds.guests()
    await outcomes(site.act(["0"], PowerAction.START))
    [third] = await clouds.until_guests(lambda guests: len(guests) == 1)
    assert len({first, second, third}) == 3


def process_state(process_id: int) -> str:
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(") ")[2][0]


async def test_changed_settings_reach_a_running_cloud(
    clouds: Any, observe: Any, requests_for: Any, outcomes: Any
) -> None:
    slow, quick = clouds.site(latencies=NEVER), clouds.site()
    await outcomes(slow.create(requests_for("a")))
    await outcomes(quick.create(requests_for("b")))
    machines = await observe(quick).until(lambda machines: machines["b"].state is MachineState.RUNNING)
    assert machines["a"].state is MachineState.BOOT


async def test_sigterm_ends_the_cloud_and_its_guests(
    clouds: Any, observe: Any, requests_for: Any, outcomes: Any, death_of: Callable[[int], None]
) -> None:
    site = clouds.site()
    await outcomes(site.create(requests_for("a", "b")))
    await clouds.until_guests(lambda guests: len(guests) == 2)
    process_id = clouds.process_id()
    os.kill(process_id, signal.SIGTERM)
    await asyncio.to_thread(death_of, process_id)
    assert not clouds.guests()
    assert not clouds.files().process_id.exists()


async def test_the_stop_command_ends_the_cloud_and_says_when_there_is_none(
    clouds: Any, observe: Any, requests_for: Any, outcomes: Any
) -> None:
    site = clouds.site()
    await outcomes(site.create(requests_for("a")))
    await clouds.until_guests(lambda guests: len(guests) == 1)
    command = (sys.executable, "-m", "simyard_sites.emulated", "stop", "--directory", str(clouds.files().directory))
    for code in (0, 1):
        stop = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
        assert await stop.wait() == code
        assert not clouds.guests() | clouds.serving()


async def test_a_cloud_without_machines_and_clients_ends_by_itself(
    clouds: Any, death_of: Callable[[int], None]
) -> None:
    await clouds.site().probe()
    await asyncio.to_thread(death_of, clouds.process_id())


async def test_a_cloud_whose_directory_was_removed_ends_by_itself(clouds: Any, death_of: Callable[[int], None]) -> None:
    await clouds.site().probe()
    process_id = clouds.process_id()
    shutil.rmtree(clouds.files().directory)
    await asyncio.to_thread(death_of, process_id)


async def test_a_directory_that_others_can_get_at_is_refused(clouds: Any) -> None:
    clouds.files().directory.mkdir(mode=0o755)
    with pytest.raises(UnavailableError, match="no other user"):
        await clouds.site().probe()


def test_settings_that_cannot_be_used_are_refused_by_their_path() -> None:
    for provider, path in (
        ({"guests": "none"}, r"emulated\.guests: 'none' is not process or shared"),
        ({"latencies": {"bootMilliseconds": -1}}, r"emulated\.latencies\.bootMilliseconds: -1 is not an integer"),
        ({"failurePercent": 101}, r"emulated\.failurePercent: 101 is not an integer from 0 to 100"),
    ):
        with pytest.raises(InvalidSpecError, match=path):
            EmulatedSite(SiteConfig("here", complete_emulated() | provider))
