# SPDX-License-Identifier: Apache-2.0
import base64
import json
import re
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiormq
import pytest

from kube_api import wait_until
from simyard_dev.broker import Broker
from simyard_dev.errors import SetupError
from simyard_dev.local_broker import LocalBroker, open_broker
from simyard_dev.ports import is_listening


@pytest.fixture
def own_broker(simyard_directory: Path, request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """Provide a broker that a test may stop and kill."""
    broker = LocalBroker(simyard_directory / re.sub(r"\W+", "-", request.node.name))
    yield broker
    broker.stop(grace_seconds=0)


def ask_management(broker: Broker, method: str, path: str, body: object = None) -> Any:
    """Send a request to the management API as administrator and return the decoded answer."""
    credentials = base64.b64encode(f"{broker.user}:{broker.password}".encode()).decode()
    request = urllib.request.Request(
        f"{broker.management_url}/api/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Basic {credentials}"},
    )
    with urllib.request.urlopen(request, timeout=240) as answer:
        content = answer.read()
        return json.loads(content) if content else None


def publish_durably(broker: Broker, queue: str, payload: str) -> None:
    """Publish a message and wait for the broker's confirmation."""
    ask_management(broker, "PUT", f"queues/{broker.virtual_host}/{queue}", {"durable": True})
    message = {
        "routing_key": queue,
        "payload": payload,
        "payload_encoding": "string",
        "properties": {"delivery_mode": 2},
    }
    answer = ask_management(broker, "POST", f"exchanges/{broker.virtual_host}/amq.default/publish", message)
    assert answer == {"routed": True}


def take(broker: Broker, queue: str) -> str:
    wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (message,) = ask_management(broker, "POST", f"queues/{broker.virtual_host}/{queue}/get", wanted)
    return str(message["payload"])


def session_members(sessions: set[int]) -> list[str]:
    """Return the living processes that belong to the sessions, or that a member of them started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = stat.read_text().rpartition(")")
        except OSError:
            continue
        state, parent, _, session = tail.split()[:4]
        if state != "Z" and sessions & {int(parent), int(session)}:
            found.append(head)
    return found


async def test_a_message_goes_through_tls(broker: Broker) -> None:
    if not broker.tls_url:
        pytest.skip("the broker given by RABBITMQ_URL offers no TLS")
    context = ssl.create_default_context(cafile=broker.ca_file)
    async with aiormq.connect(broker.tls_url, context=context) as connection:
        channel = await connection.channel()
        queue = (await channel.queue_declare(exclusive=True)).queue or ""
        await channel.basic_publish(b"hello", routing_key=queue)
        assert (await channel.basic_get(queue, timeout=10)).body == b"hello"


async def test_tls_needs_our_authority(broker: Broker) -> None:
    if not broker.tls_url or not broker.ca_file:
        pytest.skip("the broker given by RABBITMQ_URL has a certificate of its own")
    with pytest.raises(aiormq.AMQPConnectionError, match="certificate verify failed"):
        await aiormq.connect(broker.tls_url, context=ssl.create_default_context())


async def test_there_is_no_guest(broker: Broker) -> None:
    if not isinstance(broker, LocalBroker):
        pytest.skip("RABBITMQ_URL is set")
    guest = broker.url.replace(f"{broker.user}:{broker.password}", "guest:guest")
    with pytest.raises(aiormq.ProbableAuthenticationError):
        await aiormq.connect(guest)
    assert (broker.directory / "password").stat().st_mode & 0o777 == 0o600


async def test_events_are_published(broker: Broker) -> None:
    async with aiormq.connect(broker.url) as connection:
        channel = await connection.channel()
        await channel.exchange_declare("amq.rabbitmq.event", passive=True)


def test_the_management_api_knows_the_administrator(broker: Broker) -> None:
    if not broker.management_url:
        pytest.skip("RABBITMQ_MANAGEMENT_URL is not set")
    assert "administrator" in ask_management(broker, "GET", "whoami")["tags"]


@pytest.mark.parametrize("grace_seconds", [0, 20], ids=["kill", "stop"])
def test_a_durable_message_survives(own_broker: LocalBroker, grace_seconds: float) -> None:
    own_broker.start()
    publish_durably(own_broker, "kept", "still here")
    own_broker.stop(grace_seconds)
    assert not own_broker.is_running()
    own_broker.start()
    assert take(own_broker, "kept") == "still here"


def test_a_stopped_broker_leaves_no_process_and_no_port(broker: Broker, own_broker: LocalBroker) -> None:
    own_broker.start()
    identities = [process.identity for process in own_broker.processes]
    sessions = {identity.pid for identity in identities if identity}
    ports = [int(port) for port in re.findall(r"\d{5}", (own_broker.directory / "ports.json").read_text())]
    assert len(sessions) == 2
    assert len(ports) == 5
    assert all(is_listening(port) for port in ports)
    own_broker.stop()
    wait_until(lambda: not session_members(sessions))
    assert not any(is_listening(port) for port in ports)
    assert broker.is_running(), "another broker on the same machine is not touched"


def test_a_second_start_adopts_what_runs(broker: Broker) -> None:
    if not isinstance(broker, LocalBroker):
        pytest.skip("RABBITMQ_URL is set")
    before = [process.identity for process in broker.processes]
    other = LocalBroker(broker.directory)
    other.start()
    assert [process.identity for process in other.processes] == before
    assert other.url == broker.url


def test_an_existing_broker_is_used_and_left_alone(broker: Broker, tmp_path: Path) -> None:
    existing = open_broker(tmp_path, {"RABBITMQ_URL": broker.url})
    existing.start(fresh=True)
    existing.stop()
    assert existing.is_running() and broker.is_running()
    assert (existing.user, existing.password, existing.virtual_host) == (
        broker.user,
        broker.password,
        broker.virtual_host,
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("amqp://u:p@127.0.0.1:1/x", "no broker answers at 127.0.0.1:1"),
        ("http://127.0.0.1", "RABBITMQ_URL is not of the form"),
    ],
)
def test_a_broker_that_is_not_there_is_reported(tmp_path: Path, url: str, problem: str) -> None:
    with pytest.raises(SetupError, match=problem):
        open_broker(tmp_path, {"RABBITMQ_URL": url}).start()
