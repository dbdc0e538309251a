# SPDX-License-Identifier: Apache-2.0
"""Real service adapters as guests, each way, on a real broker; and what a child process may not do."""

import asyncio
import json
import os
import signal
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiormq
import pytest
from aiormq.abc import AbstractChannel, DeliveredMessage

from simyard_adapter import __main__ as adapter_command
from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.declarations import Interface
from simyard_adapter.wire import EVENTS_EXCHANGE, REPLIES_EXCHANGE, name_worker_queue
from simyard_dev.broker import Broker
from simyard_sites.base import MachineRequest, MachineState, Owner, PowerAction
from simyard_sites.emulated.child import BoundedLog, Child
from simyard_sites.emulated.guests import ADAPTER, EXIT_UNUSABLE

DEADLINE_SECONDS = 240.0
CONNECTOR = "from simyard_adapter import Connector\n\n\nclass Nothing(Connector):\n    pass\n"


class ControlPlane:
    """The queues of workers, and who has registered."""

    def __init__(self, broker: Broker, channel: AbstractChannel) -> None:
        self._broker = broker
        self._channel = channel
        self._run = uuid.uuid4().hex[:8]
        self._news = asyncio.Condition()
        self.registered: Counter[str] = Counter()

    async def listen(self) -> None:
        for exchange in (EVENTS_EXCHANGE, REPLIES_EXCHANGE):
            await self._channel.exchange_declare(exchange, exchange_type="topic", durable=True)
        self._events = (await self._channel.queue_declare(exclusive=True)).queue or ""
        await self._channel.basic_consume(self._events, self._on_event, no_ack=True)

    async def _on_event(self, message: DeliveredMessage) -> None:
        async with self._news:
            self.registered[(message.routing_key or "").rpartition(".")[2].removeprefix(f"{self._run}-")] += 1
            self._news.notify_all()

    async def until_registered(self, **times: int) -> None:
        """Wait until each worker has registered that often."""
        async with asyncio.timeout(DEADLINE_SECONDS), self._news:
            await self._news.wait_for(lambda: self.registered == Counter(times))

    async def request(self, worker: str, connector: str = "nothing:Nothing") -> MachineRequest:
        uid = f"{self._run}-{worker}"
        await self._channel.queue_bind(self._events, EVENTS_EXCHANGE, f"register.*.{uid}")
        await self._channel.queue_declare(name_worker_queue(self._broker.user, uid), arguments={"x-expires": 600_000})
        url = urlsplit(self._broker.url)
        address = BrokerAddress(
            url.hostname or "", url.port or 0, self._broker.virtual_host, self._broker.user, self._broker.password
        )
        bootstrap = Bootstrap(
            namespace="default",
            worker=worker,
            worker_uid=uid,
            service="nothing",
            pool="",
            broker=address,
            interface=Interface(),
            connector={"python": {"class": connector}},
            files={"nothing.py": CONNECTOR},
        )
        return MachineRequest(uid, Owner("default", worker, uid), bootstrap.to_bytes())


@pytest.fixture
async def control_plane_part(broker: Broker) -> AsyncIterator[ControlPlane]:
    async with aiormq.connect(broker.url) as connection:
        made = ControlPlane(broker, await connection.channel())
        await made.listen()
        yield made


@pytest.mark.parametrize("guests", ["process", "shared"])
async def test_adapters_register_come_back_when_killed_and_leave_with_their_machines(
    guests: str, clouds: Any, control_plane_part: ControlPlane, observe: Any, outcomes: Any
) -> None:
    site = clouds.site(ADAPTER, guests=guests)
    observer = observe(site)
    await outcomes(site.create([await control_plane_part.request(name) for name in ("a", "b")]))
    await control_plane_part.until_registered(a=1, b=1)
    for process in clouds.guests():
        os.kill(process, signal.SIGKILL)
    await control_plane_part.until_registered(a=2, b=2)
    assert [machine.state for machine in observer.machines.values()] == [MachineState.RUNNING] * 2

    await outcomes(site.act(["0"], PowerAction.RESTART))
    await control_plane_part.until_registered(a=3, b=2)
    await outcomes(site.act(["1"], PowerAction.SUSPEND))
    await outcomes(site.delete(["0", "1"]))
    await observer.until(lambda machines: not machines)
    assert not list(clouds.files().machines.glob("[0-9]*"))
    assert len(clouds.guests()) == (0 if guests == "process" else 1), "the guest host stays for the next one"


@pytest.mark.parametrize("guests", ["process", "shared"])
async def test_a_connector_that_cannot_be_loaded_fails_its_machine_alone(
    guests: str, clouds: Any, control_plane_part: ControlPlane, observe: Any, outcomes: Any
) -> None:
    site = clouds.site(ADAPTER, guests=guests)
    observer = observe(site)
    requests = [await control_plane_part.request("a"), await control_plane_part.request("b", "nothing:Missing")]
    await outcomes(site.create(requests))
    machines = await observer.until(lambda machines: MachineState.FAILED in {it.state for it in machines.values()})
    await control_plane_part.until_registered(a=1)
    states = {machine.owner.worker: (machine.state, "Missing" in machine.message) for machine in machines.values()}
    assert states == {"a": (MachineState.RUNNING, False), "b": (MachineState.FAILED, True)}


async def test_a_suspended_shared_guest_registers_again_when_it_goes_on(
    clouds: Any, control_plane_part: ControlPlane, outcomes: Any
) -> None:
    site = clouds.site(ADAPTER, guests="shared")
    await outcomes(site.create([await control_plane_part.request("a")]))
    await control_plane_part.until_registered(a=1)
    await outcomes(site.act(["0"], PowerAction.SUSPEND))
    await outcomes(site.act(["0"], PowerAction.START))
    await control_plane_part.until_registered(a=2)


def test_the_exit_code_that_fails_a_machine_is_the_adapters() -> None:
    assert adapter_command.EXIT_START == EXIT_UNUSABLE


async def test_a_child_that_ignores_sigterm_is_killed_with_its_group(tmp_path: Path, marked: Any) -> None:
    program = "trap '' TERM; (trap '' TERM; sleep 600) & echo ready; wait"
    log = BoundedLog(tmp_path / "guest.log")
    child = Child(["sh", "-c", program], tmp_path, log)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while log.last_line != "ready":  # noqa: ASYNC110 - the log sends no events
            await asyncio.sleep(0.01)
        child.terminate(grace_seconds=0.1)
        assert await child.exited == -signal.SIGKILL
        while marked(tmp_path):  # noqa: ASYNC110 - /proc sends no events
            await asyncio.sleep(0.01)


async def test_what_a_child_leaves_behind_in_its_group_ends_with_it(tmp_path: Path, marked: Any) -> None:
    child = Child(["sh", "-c", "sleep 600 &"], tmp_path, BoundedLog(tmp_path / "guest.log"))
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await child.exited == 0
        while marked(tmp_path):  # noqa: ASYNC110 - /proc sends no events
            await asyncio.sleep(0.01)


async def test_a_child_sees_nothing_of_our_environment_but_paths_and_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMQP_URL", "amqp://admin:secret@localhost")
    log = BoundedLog(tmp_path / "guest.log")
    child = Child([sys.executable, "-c", "import os; print(*os.environ)"], tmp_path, log)
    assert await asyncio.wait_for(child.exited, DEADLINE_SECONDS) == 0
    assert "PATH" in log.last_line
    assert "AMQP_URL" not in log.last_line


async def test_the_log_of_a_child_that_never_stops_talking_is_bounded(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "guest.log")
    child = Child(["sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo the end"], tmp_path, log)
    await asyncio.wait_for(child.exited, DEADLINE_SECONDS)
    assert log.last_line == "the end"
    sizes = [(tmp_path / name).stat().st_size for name in ("guest.log", "guest.log.1")]
    assert max(sizes) <= 2**20


async def test_what_was_asked_for_a_machine_that_stands_alone_is_shown_beside_its_disk(
    clouds: Any, requests_for: Any, outcomes: Any
) -> None:
    site = clouds.site()
    [plain] = requests_for("pooled")
    alone = replace(
        plain, name="alone", owner=Owner("default", "alone", "uid-alone"), cores=2, memory_mib=4096, hostname="h",
        user_data="#cloud-config\n", ssh_public_keys=("ssh-rsa A",),
    )  # fmt: skip
    await outcomes(site.create([plain, alone]))
    shown = {path.parent.name: path for path in clouds.directory.glob("*/machines/*/machine.json")}
    assert list(shown) == ["1"]
    assert shown["1"].stat().st_mode & 0o777 == 0o600
    assert json.loads(shown["1"].read_text()) == {
        "cores": 2,
        "memoryMib": 4096,
        "hostname": "h",
        "userData": "#cloud-config\n",
        "sshPublicKeys": ["ssh-rsa A"],
    }
