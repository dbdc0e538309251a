# SPDX-License-Identifier: Apache-2.0
"""Changes and outages while the apiserver runs: broker, credentials, certificates, and its own stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import aiohttp
import pytest
from apiserver_stack import Answer, Client, Running, Stack, client_of, path_of

from simyard.apiserver.server import serve
from simyard.apiserver.settings import ApiServerSettings
from simyard.serving.health import Health
from simyard_dev.certificates import CertificateAuthority, KeyPair
from simyard_dev.ports import LOOPBACK, Ports

pytestmark = pytest.mark.xdist_group("apiserver")

IDLE_CLOSES_SECONDS = 20.0  # less than the time that requests under way get
PATIENCE_SECONDS = 240


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await check():  # noqa: ASYNC110 - what is waited for is in other processes
            await asyncio.sleep(0.02)


class Line:
    """A proxy to the broker whose connections can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._forward, LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self._port)
        self._open |= {writer, far_writer}
        with contextlib.suppress(ConnectionError, ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer))
                group.create_task(self._pump(far_reader, writer))
        self._open -= {writer, far_writer}

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()


class Own:
    """An apiserver in the process of the test."""

    def __init__(self, client: Client, stop: asyncio.Event, task: asyncio.Task[None], files: KeyPair) -> None:
        self.client = client
        self.stop = stop
        self.task = task
        self.files = files


@contextlib.asynccontextmanager
async def own_apiserver(stack: Stack, *, broker_port: int = 0, **limits: int) -> AsyncIterator[Own]:
    ports = Ports(stack.directory / "own")
    files = stack.authority.issue_server("own-serving", ["localhost"])
    settings = ApiServerSettings(
        certificate=files.certificate,
        key=files.key,
        kubeconfig=stack.directory / "apiserver.kubeconfig",
        broker=replace(stack.access, port=broker_port or stack.access.port),
        bind=LOOPBACK,
        port=ports.reserve("apiserver"),
        drain_seconds=0,
        **limits,
    )
    stop = asyncio.Event()
    task = asyncio.create_task(serve(settings, stop, Health()))

    async def connected() -> bool:
        assert not task.done(), task.exception()
        with contextlib.suppress(aiohttp.ClientError):
            ready = await client.request("GET", "/readyz")
            return ready.status == 200 and "broker: connected" in ready.text
        return False

    try:
        async with client_of(settings.port, stack.authority.files.certificate, stack.front_proxy) as client:
            await eventually(connected)
            yield Own(client, stop, task, files)
    finally:
        stop.set()
        await task


def code(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json.get("reason", "")


async def begin_overrun(own: Own, running: Running) -> asyncio.Task[Answer]:
    """Call the action that runs too long, and return when the worker has begun it."""
    call = asyncio.create_task(own.client.post(path_of(running.namespace, "workers", "pool-0", "actions/overrun")))

    async def begun() -> bool:
        answer = await own.client.get(path_of(running.namespace, "workers", "pool-0", "attributes/state?fresh=true"))
        return bool(answer.json["values"]["state"]["value"] == "overrunning")

    await eventually(begun)
    return call


def _trust_stack(stack: Stack) -> ssl.SSLContext:
    """Return a context that trusts the apiserver and presents the certificate of the front proxy."""
    context = ssl.create_default_context(cafile=str(stack.authority.files.certificate))
    context.load_cert_chain(stack.front_proxy.certificate, stack.front_proxy.key)
    return context


async def test_a_broker_that_is_down_is_told_at_once_and_forgotten_when_it_is_back(
    stack: Stack, running: Running
) -> None:
    line = Line(stack.access.port)
    await line.mend()
    async with own_apiserver(stack, broker_port=line.port) as own:
        solve = path_of(running.namespace, "workers", "pool-0", "actions/solve")
        attributes = path_of(running.namespace, "workers", "pool-0", "attributes?fresh=true")
        assert (await own.client.post(solve)).status == 200
        assert (await own.client.get(attributes)).json["values"]["state"]["fresh"]

        line.cut()

        async def refused() -> bool:
            return (await own.client.post(solve)).status == 503

        await eventually(refused)
        answer = await own.client.post(solve)
        assert "message broker cannot be reached now; nothing was sent" in answer.json["message"]
        last_known = (await own.client.get(attributes)).json["values"]["state"]
        assert (last_known["value"], last_known["fresh"]) == ("idle", False)
        ready = await own.client.request("GET", "/readyz")
        assert ready.status == 200, "callers get an error that names the broker, and the API stays available"

        await line.mend()

        async def answered() -> bool:
            return (await own.client.post(solve)).status == 200

        await eventually(answered)
        line.cut()


async def test_a_call_whose_connection_breaks_says_that_it_may_have_run(stack: Stack, running: Running) -> None:
    line = Line(stack.access.port)
    await line.mend()
    async with own_apiserver(stack, broker_port=line.port) as own:
        call = await begin_overrun(own, running)
        line.cut()
        answer = await call
        assert code(answer) == (503, "ServiceUnavailable")
        assert "may have been carried out" in answer.json["message"]
        assert "Retry-After" not in answer.headers, "a client that repeats the request would run the action twice"


async def test_a_call_that_nobody_finishes_in_time_says_how_to_call_it_instead(stack: Stack, running: Running) -> None:
    stack.make_pool(running.namespace, "mute")
    worker = stack.make_worker(running.namespace, "mute-0", "mute", adapter=False)
    async with own_apiserver(stack, sync_seconds=1) as own:
        for resource, name in (("workers", worker.name), ("workerpools", "mute")):
            answer = await own.client.post(path_of(running.namespace, resource, name, "actions/solve"))
            assert code(answer) == (504, "Timeout")
            assert "?wait=false" in answer.json["message"]


async def test_the_broker_credentials_are_taken_over_when_the_secret_changes(stack: Stack, running: Running) -> None:
    stack.replace_broker_user()
    path = path_of(running.namespace, "workers", "pool-0", "actions/solve")

    async def answered() -> bool:
        return stack.try_kubectl("create", "--raw", path, "-f", "-", stdin="{}").returncode == 0

    await eventually(answered)


async def test_a_new_serving_certificate_is_served_without_a_restart(stack: Stack) -> None:
    async with own_apiserver(stack) as own:
        port = int(own.client.base.rpartition(":")[2])
        before = await asyncio.to_thread(ssl.get_server_certificate, (LOOPBACK, port))
        own.files.key.write_text("half a key")  # as a reader sees the file between two writes
        assert (await own.client.request("GET", "/livez")).status == 200
        stack.authority.issue_server("own-serving", ["localhost"])

        async def replaced() -> bool:
            return await asyncio.to_thread(ssl.get_server_certificate, (LOOPBACK, port)) != before

        await eventually(replaced)


async def test_a_new_front_proxy_authority_and_name_count_as_soon_as_they_are_configured(
    stack: Stack, running: Running
) -> None:
    authority = CertificateAuthority(stack.keys, "next-front-proxy-ca")
    certificate = authority.issue_client("next", "next-front-proxy")
    config_map = json.loads(
        stack.kubectl("get", "configmap", "extension-apiserver-authentication", "-n=kube-system", "-o=json")
    )
    idle, writer = await asyncio.open_connection("localhost", stack.ports["apiserver"], ssl=_trust_stack(stack))
    writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert await idle.readuntil(b"ok\n")
    config_map["data"]["requestheader-client-ca-file"] += authority.files.certificate.read_text()
    config_map["data"]["requestheader-allowed-names"] = '["front-proxy-client", "next-front-proxy"]'
    stack.kubectl("replace", "-f", "-", stdin=json.dumps(config_map))

    async def believed() -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            serving = stack.authority.files.certificate
            async with client_of(stack.ports["apiserver"], serving, certificate) as client:
                answer = await client.get(path_of(running.namespace, "workers", "pool-0", "attributes"))
                return answer.status == 200
        return False

    await eventually(believed)
    async with asyncio.timeout(IDLE_CLOSES_SECONDS):
        assert await idle.read() == b"", "a connection that was verified against the former authorities stays open"
    writer.close()


async def test_more_requests_than_it_can_hold_are_asked_to_come_again(stack: Stack, running: Running) -> None:
    async with own_apiserver(stack, max_in_flight=1) as own:
        overrun = path_of(running.namespace, "workers", "pool-0", "actions/overrun")
        answers = await asyncio.gather(own.client.post(overrun), own.client.post(overrun))
        assert sorted(map(code, answers)) == [(429, "TooManyRequests"), (504, "Timeout")]
        [refused] = [answer for answer in answers if answer.status == 429]
        assert refused.headers["Retry-After"] == "1"


async def test_it_finishes_what_is_under_way_before_it_ends(stack: Stack, running: Running) -> None:
    async with own_apiserver(stack) as own:
        call = await begin_overrun(own, running)
        own.stop.set()
        assert code(await call) == (504, "Timeout")
        await own.task


async def test_a_caller_who_hangs_up_in_the_middle_is_no_fault_of_ours(
    stack: Stack, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with own_apiserver(stack) as own:
        port = int(own.client.base.rpartition(":")[2])
        path = path_of(running.namespace, "workers", "pool-0", "actions/solve")
        _, writer = await asyncio.open_connection("localhost", port, ssl=_trust_stack(stack))
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n"
        writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        await writer.drain()
        writer.transport.abort()
        assert (await own.client.post(path)).status == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
