"""A guest boots with what a site gives it, and becomes a worker: it registers over AMQPS and answers an action.

The control plane's side is its own code, on a broker of the test's own.
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
from simyard.messaging.topology import pool_queue_spec, pool_user_spec, worker_queue_spec
from simyard_adapter import wire
from simyard_adapter.bootstrap import Bootstrap, BrokerAddress, shared
from simyard_adapter.declarations import Action, Interface, Value, ValueType
from simyard_dev.broker import LocalBroker
from simyard_dev.errors import SetupError
from simyard_dev.packages import ensure_packages
from simyard_sites.guest import context, user_data

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
"""What there is to see in a machine; where others than root can read the standard input: at least where it puts it."""
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
    """The control plane's side of a pool: its user and queues, and what has been heard of its workers."""

    def __init__(self, access: BrokerAccess, admin: BrokerAdmin, requester: Requester) -> None:
        self.uid = str(uuid.uuid4())
        self.user = wire.pool_user(self.uid)
        self._access = access
        self._admin = admin
        self._requester = requester
        self._heard: asyncio.Queue[ReceivedEvent] = asyncio.Queue()

    def hear(self, event: ReceivedEvent) -> None:
        if isinstance(event.message, Registered):
            self._heard.put_nowait(event)

    async def registered(self, uid: str) -> None:
        """Wait for the worker's registration."""
        async with asyncio.timeout(BOOT_SECONDS):
            event = await self._heard.get()
        assert (event.worker_uid, event.user) == (uid, self.user)

    async def document(self, worker: str, uid: str) -> bytes:
        """The bootstrap document of a worker whose queue is made here."""
        await self._admin.ensure_queues([worker_queue_spec(self.user, uid)])
        assert self._access.ca_certificate is not None
        address = BrokerAddress(
            BROKER, BROKER_PORT, self._access.vhost, self.user, PASSWORD, self._access.ca_certificate
        )
        return Bootstrap("tests", worker, uid, "guest", "guests", address, INTERFACE, CONNECTOR, FILES).to_bytes()

    async def ask(self, uid: str, action: str, **parameters: Any) -> Reply:
        """Call an action of the worker; its reply."""
        queue = wire.worker_queue(self.user, uid)
        body = {"action": action, "parameters": parameters}
        return await self._requester.request(
            queue, self.user, wire.Request.ACTION, body, timeout_seconds=ACTION_SECONDS
        )

    async def act(self, uid: str, action: str, **parameters: Any) -> Any:
        """Call an action of the worker; its result."""
        reply = await self.ask(uid, action, **parameters)
        return reply.result.checked(INTERFACE.action(action))

    async def look(self, uid: str) -> dict[str, str]:
        """What there is to see in the worker's machine."""
        seen = (await self.act(uid, "look", secret=PASSWORD))["seen"]
        return dict(line.partition("=")[::2] for line in seen.splitlines())


@pytest.fixture(scope="module")
def image() -> guest_image.Image:
    """Ours, or a vendor's own disk that boots by itself: GUEST_IMAGE."""
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
    """A broker whose certificate has the address at which guests find it."""
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
    await admin.ensure_user(pool_user_spec(pool.uid), PASSWORD)
    await admin.ensure_queues([pool_queue_spec(pool.user)])
    tasks = [asyncio.create_task(run) for run in (requester.run(), OperatorEvents(access, pool.hear).run())]
    async with asyncio.timeout(ACTION_SECONDS):
        await requester.until_connected()
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
    """Switches the machine on, and measures."""

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
        assert reply.result.checked(INTERFACE.action("square")) == {"square": 144}
        acted = time.monotonic()
        record(request.node.name, accelerator=engine, registered=registered - started, action=acted - registered)
        return reply.worker

    return start


def record(name: str, **figures: float | str) -> None:
    """Keep and print what was measured; nothing depends on it."""
    file = ARTEFACTS / "measured.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    known[name] = {key: round(value, 2) if isinstance(value, float) else value for key, value in figures.items()}
    file.write_text(json.dumps(known, indent=2) + "\n")
    print(f"{name}: {known[name]}")


async def test_by_cloud_init_a_guest_is_the_worker_that_its_firmware_names_also_after_a_reboot(
    pool: Pool, boot: Callable[..., Any], tmp_path: Path
) -> None:
    """As a pool on KubeVirt does it: one document for all, and who it is in the SMBIOS."""
    uid = str(uuid.uuid4())
    data = user_data(shared(await pool.document("guests-7", uid)))
    seed = tmp_path / "seed.iso"
    cidata(seed, data, instance=uid, host="guests-7-machine")

    assert await boot(pool, uid, seed, Firmware(uid, "guests-7")) == "guests-7"
    first = await pool.look(uid)
    assert (first["host"], first["user"], first["mode"]) == ("guests-7-machine", "root", "600")
    assert first["readable"] == READABLE

    with contextlib.suppress(MessagingError):  # it may go down before it has answered
        await pool.act(uid, "reboot")
    rebooted = time.monotonic()
    await pool.registered(uid)
    record("reboot", registered=time.monotonic() - rebooted)
    assert (await pool.look(uid))["boot"] != first["boot"]


async def test_by_cloud_init_what_the_user_gives_is_done_before_the_guest_registers(
    pool: Pool, boot: Callable[..., Any], tmp_path: Path
) -> None:
    """A worker that stands alone, with user data and a key of its user's."""
    uid = str(uuid.uuid4())
    own = "#cloud-config\nhostname: of-the-user\nruncmd:\n- sleep 2\n- echo the user >/root/done\n"
    seed = tmp_path / "seed.iso"
    cidata(seed, user_data(await pool.document("alone", uid), own, [KEY]), instance=uid, host="alone")

    assert await boot(pool, uid, seed) == "alone"
    seen = await pool.look(uid)
    assert (seen["done"], seen["host"], seen["readable"]) == ("the user", "of-the-user", READABLE)
    assert KEY in seen["keys"]


async def test_by_opennebulas_contextualisation_a_guest_registers_when_the_users_script_is_done(
    pool: Pool, boot: Callable[..., Any], tmp_path: Path
) -> None:
    """Our image has no package of OpenNebula's: a script of ours does its part (guest_image.py, PROGRAMS)."""
    uid = str(uuid.uuid4())
    own = "#!/bin/sh\necho the user >/root/done\n"
    seed = tmp_path / "seed.iso"
    context_disk(seed, context(await pool.document("nebula-1", uid), own))

    assert await boot(pool, uid, seed, options="cloud-init=disabled emulated-one-context") == "nebula-1"
    seen = await pool.look(uid)
    assert (seen["done"], seen["mode"], seen["readable"]) == ("the user", "600", READABLE)
