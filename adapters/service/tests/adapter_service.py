# SPDX-License-Identifier: Apache-2.0
"""The control plane's side of the wire, with a real broker and least privilege, and adapters as processes."""

import asyncio
import base64
import contextlib
import json
import os
import signal
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiormq
from aiormq import spec
from aiormq.abc import AbstractConnection, DeliveredMessage

from simyard_adapter import wire
from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.python_backend import load_class
from simyard_dev.broker import Broker

DEADLINE = 240.0
CONNECTOR = Path(__file__).with_name("tested_connector.py")


class Process:
    """An adapter in a process of its own; ADAPTER_PYTHON may name another interpreter for it."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def kill(self) -> None:
        self._process.kill()
        await asyncio.wait_for(self._process.wait(), DEADLINE)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        return await asyncio.wait_for(self._process.wait(), DEADLINE)

    async def end(self) -> int:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        return await self.wait()


class Service:
    """A pool in a virtual host of its own: its user, queues and permissions, its workers, and its requester."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.directory = directory
        self.vhost = f"test-{uuid.uuid4().hex[:12]}"
        self.user = wire.name_pool_user(uuid.uuid4().hex)
        self.password = uuid.uuid4().hex
        self.requester = "apiserver-1"
        self.events: list[tuple[wire.Event, dict[str, Any], DeliveredMessage]] = []
        self._updates = asyncio.Condition()
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self.begun: list[str] = []
        """The correlation ids of the requests of which a worker said that it begins."""
        self._connection: AbstractConnection | None = None
        self._processes: list[Process] = []
        self._workers: set[str] = set()

    # The operator's part.

    async def manage(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        token = base64.b64encode(f"{self.broker.user}:{self.broker.password}".encode()).decode()
        request = urllib.request.Request(
            f"{self.broker.management_url}/api/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Basic {token}", "Content-Type": "application/json"},
            method=method,
        )

        def call() -> Any:
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                return json.loads(answer.read() or b"null")

        return await asyncio.to_thread(call)

    async def install(self) -> None:
        await self.apply()
        await self.connect()

    async def apply(self) -> None:
        """Make what is missing; a broker that is killed forgets what it was told in its last moments."""
        vhost, user = quote(self.vhost, safe=""), quote(self.user)
        await self.manage("PUT", f"vhosts/{vhost}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        await self.manage("PUT", f"permissions/{vhost}/{quote(self.broker.user)}", everything)
        for exchange in (wire.EVENTS_EXCHANGE, wire.REPLIES_EXCHANGE):
            await self.manage("PUT", f"exchanges/{vhost}/{exchange}", {"type": "topic", "durable": True})
        await self.manage("PUT", f"users/{user}", {"password": self.password, "tags": ""})
        name = self.user.replace("-", r"\-")
        await self.manage(
            "PUT",
            f"permissions/{vhost}/{user}",
            {
                "configure": "^$",
                "write": r"^simyard\.(events|replies)$",
                "read": rf"^simyard\.(worker\.{name}\..*|pool\.{name})$",
            },
        )
        for exchange, pattern in (
            (wire.EVENTS_EXCHANGE, rf"^[a-z]+\.{name}\..*"),
            (wire.REPLIES_EXCHANGE, rf"^reply\.[^.]+\.{name}$"),
        ):
            topic = {"exchange": exchange, "write": pattern, "read": "^$"}
            await self.manage("PUT", f"topic-permissions/{vhost}/{user}", topic)
        quorum = {"durable": True, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 5}}
        await self.manage("PUT", f"queues/{vhost}/{quote(wire.name_pool_queue(self.user))}", quorum)
        for uid in tuple(self._workers):
            await self.add_worker(uid)

    async def add_worker(self, uid: str) -> None:
        self._workers.add(uid)
        queue = quote(wire.name_worker_queue(self.user, uid))
        await self.manage("PUT", f"queues/{quote(self.vhost, safe='')}/{queue}", {"durable": True})

    async def uninstall(self) -> None:
        await asyncio.gather(*(process.end() for process in self._processes))
        if self._connection is not None:
            await self._connection.close()
        await self.manage("DELETE", f"vhosts/{quote(self.vhost, safe='')}")
        with contextlib.suppress(urllib.error.HTTPError):  # a test may have deleted it
            await self.manage("DELETE", f"users/{quote(self.user)}")

    # The requester's part.

    async def connect(self) -> None:
        """Listen to events and replies; once more after the broker was restarted."""
        url = self.broker.url.rpartition("/")[0] + "/" + quote(self.vhost, safe="")
        async with asyncio.timeout(DEADLINE):
            self._connection = await aiormq.connect(url)
            self._channel = await self._connection.channel()
            await self._channel.queue_declare("control-plane", durable=True)
            await self._channel.queue_bind("control-plane", wire.EVENTS_EXCHANGE, "#")
            await self._channel.basic_consume("control-plane", self._on_event)
            replies = (await self._channel.queue_declare(exclusive=True)).queue
            assert replies
            await self._channel.queue_bind(replies, wire.REPLIES_EXCHANGE, wire.make_reply_key(self.requester, "*"))
            await self._channel.basic_consume(replies, self._on_reply, no_ack=True)

    async def _on_event(self, message: DeliveredMessage) -> None:
        key = wire.parse_event_key(message.routing_key or "")
        assert key is not None
        properties = message.header.properties
        sender = wire.parse_identity(properties.user_id or "")
        assert (key.user, sender, properties.message_type) == (self.user, self.user, key.kind.value)
        async with self._updates:
            self.events.append((key.kind, json.loads(message.body), message))
            self._updates.notify_all()
        assert message.delivery_tag is not None
        await message.channel.basic_ack(message.delivery_tag)

    async def _on_reply(self, message: DeliveredMessage) -> None:
        assert wire.parse_identity(message.header.properties.user_id or "") == self.user
        if message.header.properties.message_type == wire.BEGUN:
            self.begun.append(message.header.properties.correlation_id or "")
            return
        future = self._replies.get(message.header.properties.correlation_id or "")
        if future is not None and not future.done():
            future.set_result(json.loads(message.body))

    async def event(
        self, kind: wire.Event, match: Callable[[dict[str, Any]], bool] = lambda body: True, after: int = 0
    ) -> dict[str, Any]:
        """The first event that matches, now or later; ``after`` leaves out the first events."""

        def found() -> list[dict[str, Any]]:
            return [body for it, body, _ in self.events[after:] if it is kind and match(body)]

        async with self._updates:
            await asyncio.wait_for(self._updates.wait_for(lambda: bool(found())), DEADLINE)
            return found()[0]

    def all(self, kind: wire.Event) -> list[dict[str, Any]]:
        return [body for it, body, _ in self.events if it is kind]

    async def send(
        self,
        kind: wire.Request | str,
        body: Mapping[str, Any] | bytes,
        *,
        worker: str | None = "w1",
        invocation: str | None = None,
        expiration: float | None = None,
        reply: bool = True,
    ) -> "asyncio.Future[dict[str, Any]]":
        """Send a request to a worker, or (None) to the pool; the future gets the reply."""
        correlation = uuid.uuid4().hex
        self._replies[correlation] = asyncio.get_running_loop().create_future()
        properties = spec.Basic.Properties(
            message_type=kind.value if isinstance(kind, wire.Request) else kind,
            message_id=invocation or uuid.uuid4().hex,
            correlation_id=correlation,
            reply_to=self.requester if reply else None,
            expiration=None if expiration is None else str(round(expiration * 1000)),
            delivery_mode=2,
        )
        queue = wire.name_pool_queue(self.user) if worker is None else wire.name_worker_queue(self.user, worker)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with asyncio.timeout(DEADLINE):
            await self._channel.basic_publish(data, routing_key=queue, properties=properties, mandatory=True)
        return self._replies[correlation]

    async def return_one(self) -> None:
        """Have the broker take back a request from the pool's queue, as it does when a worker ceases to consume."""
        assert self._connection is not None
        async with asyncio.timeout(DEADLINE):
            channel = await self._connection.channel()
            while (await channel.basic_get(wire.name_pool_queue(self.user))).delivery_tag is None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await channel.close()

    async def ask(self, kind: wire.Request | str, body: Mapping[str, Any] | bytes, **options: Any) -> dict[str, Any]:
        return await asyncio.wait_for(await self.send(kind, body, **options), DEADLINE)

    async def act(self, action: str, parameters: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """Call an action, and wait for its reply."""
        return await self.ask(wire.Request.ACTION, {"action": action, "parameters": parameters or {}}, **options)

    async def begin(self, action: str, parameters: Mapping[str, Any], **options: Any) -> str:
        """Ask for an Async invocation; returns its id."""
        invocation = options.pop("invocation", None) or uuid.uuid4().hex
        body = {"action": action, "parameters": parameters, "mode": "Async"}
        await self.send(wire.Request.ACTION, body, invocation=invocation, reply=False, **options)
        return invocation

    async def result(self, invocation: str) -> dict[str, Any]:
        return await self.event(wire.Event.RESULT, lambda body: body["invocation"] == invocation)

    # The site's part.

    def bootstrap(self, worker: str = "w1", **changes: Any) -> Bootstrap:
        address = self.broker.tls_url.rpartition("@")[2].partition("/")[0] if self.broker.tls_url else ""
        assert self.broker.ca_file is not None
        made = Bootstrap(
            namespace="tests",
            worker=worker,
            worker_uid=worker,
            service="tested",
            pool="pool",
            broker=BrokerAddress(
                host=address.rpartition(":")[0],
                port=int(address.rpartition(":")[2]),
                vhost=self.vhost,
                username=self.user,
                password=self.password,
                ca_certificate=self.broker.ca_file.read_text(),
            ),
            interface=load_class("tested_connector:Tested", CONNECTOR.parent).interface,
            connector={"python": {"class": "tested_connector:Tested"}},
            files={CONNECTOR.name: CONNECTOR.read_text()},
        )
        return replace(made, **changes)

    async def start(
        self, worker: str = "w1", *, bootstrap: Bootstrap | None = None, ready: bool = True, takes: bool = True
    ) -> Process:
        """Start an adapter as a process, wait until it has registered, and tell it to take from the pool's queue."""
        seen = len(self.events)
        await self.add_worker(worker)
        home = self.directory / worker
        home.mkdir(exist_ok=True)
        document = home / "bootstrap.json"
        document.touch(mode=0o600)
        document.write_bytes((bootstrap or self.bootstrap(worker)).to_bytes())
        log = home / "log"
        interpreter = os.environ.get("ADAPTER_PYTHON", sys.executable)
        arguments = ["-m", "simyard_adapter", "run", "--bootstrap", str(document), "--directory", str(home)]
        with log.open("ab") as stderr:
            process = Process(await asyncio.create_subprocess_exec(interpreter, *arguments, stderr=stderr), log)
        self._processes.append(process)
        if ready:
            await self.event(wire.Event.REGISTER, lambda body: body["worker"] == worker, after=seen)
            if takes:
                await self.take(worker)
        return process

    async def take(self, worker: str = "w1") -> None:
        await self.send(wire.Request.TAKE, {}, worker=worker, reply=False)


@contextlib.asynccontextmanager
async def installed(broker: Broker, directory: Path) -> AsyncIterator[Service]:
    made = Service(broker, directory)
    await made.install()
    try:
        yield made
    finally:
        await made.uninstall()
