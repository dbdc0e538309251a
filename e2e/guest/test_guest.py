# SPDX-License-Identifier: Apache-2.0
"""A guest boots with the data of a site and becomes a worker: it registers over AMQPS and answers an action.

The side of the control plane is its own code, with a broker of the test.
"""

import asyncio
import contextlib
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import guest_image
import pytest
from guest_machine import BROKER, BROKER_PORT, Firmware, Machine, accelerator, cidata, context_disk

from simyard.guest.messages import Registered, Reply
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.errors import MessagingError
from simyard.messaging.events import OperatorEvents, ReceivedEvent
from simyard.messaging.requests import Requester
from simyard.messaging.topology import build_pool_queue_spec, build_pool_user_spec, build_worker_queue_spec
from simyard_adapter import wire
from simyard_adapter.bootstrap import Bootstrap, BrokerAddress, remove_worker
from simyard_adapter.declarations import Action, Interface, Value, ValueType
from simyard_dev.errors import SetupError
from simyard_dev.local_broker import LocalBroker
from simyard_dev.packages import ensure_packages
from simyard_sites.guest import build_context, build_user_data

ARTEFACTS = Path(__file__).resolve().parents[2] / ".run" / "guest"
PASSWORD = uuid.uuid4().hex
BOOT_SECONDS = float(os.environ.get("GUEST_SECONDS") or 300)
ACTION_SECONDS = 60
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFUGm1vZ3zLHRH1yiFPQYmgXDUWZwPdBjdJRJXrQm2Vk user"
LOOK = """\
echo boot=$(cat /proc/sys/kernel/random/boot_id)
echo host=$(hostname)
echo user=$(id -un)
echo mode=$(stat -c %a /run/simyard/bootstrap.json)
echo done=$(cat /root/done)
echo keys=$(cat /home/*/.ssh/authorized_keys)
umask 022
secret=$(cat)
printf %s "$secret" >/tmp/control
echo readable=$(printf %s "$secret" | setpriv --reuid=65534 --regid=65534 --clear-groups \\
  grep -rlsF -f - /etc /run /tmp /var /proc/[0-9]*/cmdline /proc/[0-9]*/environ)
"""
"""Script that prints the facts visible in a machine, and the file of standard input if other users can read it."""
READABLE = "/tmp/control"
FILES = {"square.sh": "echo $(($1 * $1))\n", "look.sh": LOOK}
TEXT, NUMBER = ValueType.STRING, ValueType.INTEGER
INTERFACE = Interface(
    actions=(
        Action("square", parameters=(Value("number", NUMBER, required=True),), result=(Value("square", NUMBER),)),
        Action("look", parameters=(Value("secret", TEXT, required=True),), result=(Value("seen", TEXT),)),
        Action("reboot"),
    )
)
CONNECTOR = {
    "commands": {
        "actions": [
            {
                "action": "square",
                "command": ["sh", "$(simyard.files)/square.sh", "$(number)"],
                "results": [{"name": "square", "pattern": r"(\d+)"}],
            },
            {
                "action": "look",
                "command": ["sh", "$(simyard.files)/look.sh"],
                "stdin": "$(secret)",
                "results": [{"name": "seen", "pattern": r"((?s:.*))"}],
            },
            {"action": "reboot", "command": ["systemctl", "reboot"]},
        ]
    }
}

pytestmark = pytest.mark.timeout(1200)


class Pool:
    """The control plane's side of a pool: its user and queues, and the events of its workers."""

    def __init__(self, access: BrokerAccess, admin: BrokerAdmin, requester: Requester) -> None:
        self.uid = str(uuid.uuid4())
        self.user = wire.name_pool_user(self.uid)
        self._access = access
        self._admin = admin
        self._requester = requester
        self._heard: asyncio.Queue[ReceivedEvent] = asyncio.Queue()

    def hear(self, event: ReceivedEvent) -> None:
        if isinstance(event.message, Registered):
            self._heard.put_nowait(event)

    async def registered(self, uid: str) -> None:
        """Wait for the registration of the worker."""
        async with asyncio.timeout(BOOT_SECONDS):
            event = await self._heard.get()
        assert (event.worker_uid, event.user) == (uid, self.user)

    async def document(self, worker: str, uid: str) -> bytes:
        """Return the bootstrap document of a worker, and create its queue."""
        await self._admin.ensure_queues([build_worker_queue_spec(self.user, uid)])
        assert self._access.ca_certificate is not None
        address = BrokerAddress(
            BROKER, BROKER_PORT, self._access.vhost, self.user, PASSWORD, self._access.ca_certificate
        )
        return Bootstrap("tests", worker, uid, "guest", "guests", address, INTERFACE, CONNECTOR, FILES).to_bytes()

    async def ask(self, uid: str, action: str, **parameters: Any) -> Reply:
        """Call an action of the worker and return its reply."""
        queue = wire.name_worker_queue(self.user, uid)
        body = {"action": action, "parameters": parameters}
        return await self._requester.request(
            queue, self.user, wire.Request.ACTION, body, timeout_seconds=ACTION_SECONDS
        )

    async def act(self, uid: str, action: str, **parameters: Any) -> Any:
        """Call an action of the worker and return its result."""
        reply = await self.ask(uid, action, **parameters)
        return reply.result.check(INTERFACE.find_action(action))

    async def look(self, uid: str) -> dict[str, str]:
        """Return the facts visible in the worker's machine."""
        seen = (await self.act(uid, "look", secret=PASSWORD))["seen"]
        return dict(line.partition("=")[::2] for line in seen.splitlines())


@pytest.fixture(scope="module")
def image() -> guest_image.Image:
    """Provide our image, or a vendor's own disk that boots by itself: GUEST_IMAGE."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        if given := os.environ.get("GUEST_IMAGE"):
            ensure_packages(guest_image.TOOLS)
            return guest_image.Image(Path(given).resolve())
        built = guest_image.build(ARTEFACTS)
    except SetupError as error:
        pytest.skip(f"no guest can be built or booted here: {error}")
    record("image", seconds=time.monotonic() - started, mib=built.disk.stat().st_blocks // 2048)
    return built


@pytest.fixture(scope="module")
def broker(simyard_directory: Path) -> Iterator[LocalBroker]:
    """Provide a broker whose certificate has the address by which guests reach it."""
    broker = LocalBroker(simyard_directory / "guest-broker", hosts=[BROKER])
    broker.start()
    yield broker
    broker.stop(0)


@pytest.fixture
async def pool(broker: LocalBroker) -> AsyncIterator[Pool]:
    assert broker.ca_file is not None
    access = BrokerAccess.from_url(broker.tls_url or "", broker.management_url or "", broker.ca_file)
    admin = BrokerAdmin(access)
    requester = Requester(access, "tests")
    pool = Pool(access, admin, requester)
    await admin.ensure_platform()
    await admin.ensure_user(build_pool_user_spec(pool.uid), PASSWORD)
    await admin.ensure_queues([build_pool_queue_spec(pool.user)])
    tasks = [asyncio.create_task(run) for run in (requester.run(), OperatorEvents(access, pool.hear).run())]
    async with asyncio.timeout(ACTION_SECONDS):
        await requester.wait_until_connected()
    yield pool
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await admin.aclose()


@pytest.fixture
def machine(image: guest_image.Image, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    machine = Machine(image, tmp_path, ARTEFACTS / f"{request.node.name}.console")
    yield machine
    machine.end()


@pytest.fixture
def boot(
    machine: Machine, image: guest_image.Image, broker: LocalBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., Any]:
    """Provide a function that switches the machine on and measures its start."""

    async def start(pool: Pool, uid: str, seed: Path, firmware: Firmware | None = None, options: str = "") -> str:
        engine = accelerator(image, tmp_path)
        port = int((broker.tls_url or "").rpartition("@")[2].partition("/")[0].rpartition(":")[2])
        started = time.monotonic()
        machine.start(engine, seed, port, firmware, options)
        try:
            await pool.registered(uid)
        except TimeoutError:
            tail = "\n".join(machine.console.read_text(errors="replace").splitlines()[-40:])
            pytest.fail(
                f"the guest has not registered within {BOOT_SECONDS:.0f} s\n{machine.process.log_tail()}\n{tail}"
            )
        registered = time.monotonic()
        reply = await pool.ask(uid, "square", number=12)
        assert reply.result.check(INTERFACE.find_action("square")) == {"square": 144}
        acted = time.monotonic()
        record(request.node.name, accelerator=engine, registered=registered - started, action=acted - registered)
        return reply.worker

    return start


def record(name: str, **figures: float | str) -> None:
    """Store and print the measurements; no assertion depends on them."""
    file = ARTEFACTS / "measured.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    known[name] = {key: round(value, 2) if isinstance(value, float) else value for key, value in figures.items()}
    file.write_text(json.dumps(known, indent=2) + "\n")
    print(f"{name}: {known[name]}")


async def test_by_cloud_init_a_guest_is_the_worker_that_its_firmware_names_also_after_a_reboot(
    pool: Pool, boot: Callable[..., Any], tmp_path: Path
) -> None:
    """As in a pool on KubeVirt: one document for all workers, and the identity in the SMBIOS."""
    uid = str(uuid.uuid4())
    data = build_user_data(remove_worker(await pool.document("guests-7", uid)))
    seed = tmp_path / "seed.iso"
    cidata(seed, data, instance=uid, host="guests-7-machine")

    assert await boot(pool, uid, seed, Firmware(uid, "guests-7")) == "guests-7"
    first = await pool.look(uid)
    assert (first["host"], first["user"], first["mode"]) == ("guests-7-machine", "root", "600")
    assert first["readable"] == READABLE

    with contextlib.suppress(MessagingError):  # the guest may go down before it has answered
        await pool.act(uid, "reboot")
    rebooted = time.monotonic()
    await pool.registered(uid)
    record("reboot", registered=time.monotonic() - rebooted)
    assert (await pool.look(uid))["boot"] != first["boot"]


async def test_by_cloud_init_what_the_user_gives_is_done_before_the_guest_registers(
    pool: Pool, boot: Callable[..., Any], tmp_path: Path
) -> None:
    """A worker on its own, with the user data and the SSH key of its user."""
    uid = str(uuid.uuid4())
    own = "#cloud-config\nhostname: of-the-user\nruncmd:\n- sleep 2\n- echo the user >/root/done\n"
    seed = tmp_path / "seed.iso"
    cidata(seed, build_user_data(await pool.document("alone", uid), own, [KEY]), instance=uid, host="alone")

    assert await boot(pool, uid, seed) == "alone"
    seen = await pool.look(uid)
    assert (seen["done"], seen["host"], seen["readable"]) == ("the user", "of-the-user", READABLE)
    assert KEY in seen["keys"]


async def test_by_opennebulas_contextualisation_a_guest_registers_when_the_users_script_is_done(
    pool: Pool, boot: Callable[..., Any], tmp_path: Path
) -> None:
    """Our image has no package of OpenNebula; our own script does its part (guest_image.py, PROGRAMS)."""
    uid = str(uuid.uuid4())
    own = "#!/bin/sh\necho the user >/root/done\n"
    seed = tmp_path / "seed.iso"
    context_disk(seed, build_context(await pool.document("nebula-1", uid), own))

    assert await boot(pool, uid, seed, options="cloud-init=disabled emulated-one-context") == "nebula-1"
    seen = await pool.look(uid)
    assert (seen["done"], seen["mode"], seen["readable"]) == ("the user", "600", READABLE)
