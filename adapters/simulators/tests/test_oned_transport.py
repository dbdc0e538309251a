# SPDX-License-Identifier: Apache-2.0
"""What goes over the wire: HTTP, multicall, connections, TLS, and everything that can be made to go wrong."""

import asyncio
import contextlib
import dataclasses
import datetime
import ipaddress
import socket
import ssl
import xmlrpc.client
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from oned_world import until

from simyard_simulators.oned import WIDE, Costs, HttpAnswer, Oned, Settings

SESSION = "simyard:secret"
XML = {"Content-Type": "text/xml"}


async def post(url: str, body: bytes, **more: Any) -> tuple[int, dict[str, str], bytes]:
    async with (
        asyncio.timeout(240),
        aiohttp.ClientSession() as session,
        session.post(url, data=body, headers=XML, **more) as response,
    ):
        return response.status, dict(response.headers), await response.read()


async def call(oned: Oned, method: str, *arguments: Any) -> Any:
    body = xmlrpc.client.dumps((SESSION, *arguments), method).encode()
    return xmlrpc.client.loads((await post(oned.url, body))[2])[0][0]


async def multicall(oned: Oned, calls: Sequence[tuple[str, Sequence[Any]]]) -> Any:
    parts = [{"methodName": name, "params": [SESSION, *arguments]} for name, arguments in calls]
    body = xmlrpc.client.dumps((parts,), "system.multicall").encode()
    return xmlrpc.client.loads((await post(oned.url, body))[2])[0][0]


def instantiates(count: int) -> list[tuple[str, tuple[Any, ...]]]:
    return [("one.template.instantiate", (0, f"vm-{number}", False, "", False)) for number in range(count)]


async def test_a_multicall_answers_call_by_call(oned: Oned) -> None:
    calls = [*instantiates(2), ("one.template.instantiate", (9, "x", False, "", False)), ("one.vm.info", ("0",)),
             ("system.multicall", ([],)), ("one.vm.nonsense", ())]  # fmt: skip
    answers = await multicall(oned, calls)
    assert answers[:2] == [[[True, 0, 0]], [[True, 1, 0]]]
    assert answers[2] == [
        [False, "[one.template.instantiate] Error getting virtual machine template [9].", 0x0400, 9, -1]
    ]
    assert answers[3] == {"faultCode": -501, "faultString": "Parameter that is supposed to be integer is not"}
    assert answers[4] == {"faultCode": -507, "faultString": "Recursive system.multicall forbidden"}
    assert answers[5] == {"faultCode": -506, "faultString": "Method 'one.vm.nonsense' not defined"}
    assert oned.counters.requests == 1
    assert oned.counters.calls["one.template.instantiate"] == 3


async def test_a_multicall_is_cheaper_than_its_calls_alone(oned: Oned) -> None:
    await multicall(oned, instantiates(10))
    together = sum(oned.counters.cost_milliseconds.values())
    oned.counters.reset()
    for method, arguments in instantiates(10):
        await call(oned, method, *arguments)
    alone = sum(oned.counters.cost_milliseconds.values())
    costs = oned.settings.costs
    once = costs.request + costs.write_request
    assert alone == pytest.approx(10 * (once + costs.write))
    assert together == pytest.approx(once + 10 * costs.write)


async def test_requests_that_write_at_once_hinder_each_other() -> None:
    async with Oned(Settings(scheduler=WIDE, cost_scale=0.1)) as oned:
        oned.faults.pause()
        writing = [asyncio.create_task(multicall(oned, instantiates(4))) for _ in range(4)]
        await until(lambda: oned.counters.requests == 4)
        oned.faults.resume()
        await asyncio.gather(*writing)
        costs, spent = oned.settings.costs, oned.counters.cost_milliseconds["one.template.instantiate"]
        assert oned.counters.most_writers > 1
        assert spent > 16 * costs.write + 4 * costs.write_request


async def test_answers_close_the_connection(oned: Oned) -> None:
    body = xmlrpc.client.dumps((SESSION,), "one.system.version").encode()
    status, headers, _ = await post(oned.url, body)
    assert (status, headers["Connection"]) == (200, "close")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("/", b"x", 404), ("/RPC2/other", b"x", 404)],
)
async def test_only_one_path_is_served(oned: Oned, path: str, body: bytes, status: int) -> None:
    assert (await post(oned.url.removesuffix("/RPC2") + path, body))[0] == status


async def test_what_is_no_post_of_xml_is_refused(oned: Oned) -> None:
    async with asyncio.timeout(240), aiohttp.ClientSession() as session:
        async with session.get(oned.url) as response:
            assert response.status == 405
        async with session.post(oned.url, json={}) as response:
            assert response.status == 400
        async with session.post(oned.url, data=pieces(), headers=XML) as response:
            assert response.status == 411


async def pieces() -> AsyncIterator[bytes]:
    yield b"<methodCall/>"


@pytest.mark.parametrize(
    "body", [b"nonsense", b"<methodCall>", b"<other/>", b"<methodCall></methodCall>", b"\xff\xfe<methodCall/>"]
)
async def test_what_is_no_call_is_a_fault(oned: Oned, body: bytes) -> None:
    status, _, answer = await post(oned.url, body)
    assert status == 200
    with pytest.raises(xmlrpc.client.Fault) as fault:
        xmlrpc.client.loads(answer)
    assert fault.value.faultCode == -503


async def test_a_request_that_is_too_large_is_refused() -> None:
    async with Oned(Settings(max_request_bytes=100, cost_scale=0)) as oned:
        status, _, body = await post(oned.url, b"x" * 101)
    assert (status, body) == (500, b"XML-RPC request too large (101 bytes)")


async def test_15_connections_are_served_and_the_others_wait(oned: Oned) -> None:
    oned.faults.pause()
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(call(oned, "one.system.version")) for _ in range(16)]
        await until(lambda: oned.counters.open_connections == 15)
        for _ in range(200):
            await asyncio.sleep(0)
        assert oned.counters.open_connections == 15
        assert not any(task.done() for task in calls)
        oned.faults.resume()
    assert [task.result() for task in calls] == [[True, "7.0.0", 0]] * 16
    assert oned.counters.most_connections == 15


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with Oned(Settings(idle_seconds=0.05)) as oned:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(oned.url.split(":")[2].split("/")[0]))
        async with asyncio.timeout(240):
            assert await reader.read() == b""
        writer.close()


async def test_a_lost_answer_is_of_a_call_that_was_done(oned: Oned) -> None:
    oned.faults.lose_answers(1, "one.template.instantiate")
    assert (await call(oned, "one.system.version"))[0]
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await multicall(oned, instantiates(3))
    assert len(oned.cloud.vms) == 3
    assert (await multicall(oned, instantiates(1)))[0] == [[True, 3, 0]]


async def test_a_multicall_can_break_off_in_the_middle(oned: Oned) -> None:
    oned.faults.crash_in_multicall(after_calls=2)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await multicall(oned, instantiates(5))
    assert len(oned.cloud.vms) == 2


async def test_refusals_by_what_stands_before_oned_do_nothing(oned: Oned) -> None:
    oned.faults.throttle(1, "one.template.instantiate", retry_after_seconds=7)
    body = xmlrpc.client.dumps((SESSION, 0, "vm", False, "", False), "one.template.instantiate").encode()
    status, headers, _ = await post(oned.url, body)
    assert (status, headers["Retry-After"]) == (503, "7")
    oned.faults.close(1)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await post(oned.url, body)
    oned.faults.answer(1, HttpAnswer(200, "OK", b"<html>log in</html>"))
    assert (await post(oned.url, body))[2] == b"<html>log in</html>"
    assert oned.cloud.vms == {}
    assert (await call(oned, "one.template.instantiate", 0, "vm", False, "", False)) == [True, 0, 0]


async def test_calls_can_be_denied_by_method(oned: Oned) -> None:
    oned.faults.deny("one.vm.info", "User [2] : Not authorized to perform USE VM [0].")
    await call(oned, "one.template.instantiate", 0, "vm")
    assert (await call(oned, "one.vm.info", 0))[:3] == [
        False, "[one.vm.info] User [2] : Not authorized to perform USE VM [0].", 0x0200,
    ]  # fmt: skip
    oned.faults.clear()
    assert (await call(oned, "one.vm.info", 0))[0]


async def test_nobody_listens_while_it_is_unreachable_and_afterwards_all_is_as_it_was(oned: Oned) -> None:
    await call(oned, "one.template.instantiate", 0, "vm")
    url = oned.url
    async with oned.unreachable():
        with pytest.raises(aiohttp.ClientConnectorError):
            await post(url, b"")
    assert oned.url == url
    assert (await call(oned, "one.vm.info", 0))[0]


async def test_writes_exclude_each_other_and_reads_do_not_wait_for_them() -> None:
    costs = Costs(request=0, write_request=0, write=50, row=0, extended_row=0)
    async with Oned(Settings(costs=costs, scheduler=WIDE)) as oned:
        writes = [asyncio.create_task(call(oned, "one.template.instantiate", 0, "vm")) for _ in range(4)]
        await until(lambda: len(oned.cloud.vms) == 4)
        assert (await call(oned, "one.vm.info", 3))[0]
        assert not all(task.done() for task in writes)
        await asyncio.gather(*writes)


async def test_nothing_stays_open_after_the_end() -> None:
    async with Oned(dataclasses.replace(Settings(), cost_scale=0.0)) as oned:
        oned.faults.pause()
        hanging = asyncio.create_task(call(oned, "one.system.version"))
        await until(lambda: oned.counters.requests > 0)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await hanging
    assert oned.counters.open_connections == 0
    assert not any(oned.owns(task) and not task.done() for task in asyncio.all_tasks())


def certificate(directory: Path) -> ssl.SSLContext:
    """A certificate for 127.0.0.1, which is its own authority: ``ca.crt``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "oned")])
    now = datetime.datetime.now(datetime.UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(alternative, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (directory / "key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "ca.crt", directory / "key")
    return context


async def test_it_speaks_tls_and_breaks_it_when_asked(tmp_path: Path) -> None:
    async with Oned(Settings(cost_scale=0), tls=certificate(tmp_path)) as oned:
        assert oned.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        body = xmlrpc.client.dumps((SESSION,), "one.system.version").encode()
        assert (await post(oned.url, body, ssl=trusting))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await post(oned.url, body)
        with pytest.raises(aiohttp.ClientError):
            await post(oned.url.replace("https", "http"), body)
        oned.faults.tls_broken = True
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await post(oned.url, body, ssl=trusting)
        oned.faults.clear()
        assert (await post(oned.url, body, ssl=trusting))[0] == 200
    assert oned.counters.open_connections == 0


async def test_a_full_backlog_keeps_further_connections_waiting() -> None:
    """MAX_CONN and MAX_CONN_BACKLOG: what is beyond both is not even connected."""
    async with Oned(Settings(max_connections=1, backlog=0, cost_scale=0)) as oned:
        port = int(oned.url.split(":")[2].split("/")[0])
        oned.faults.pause()
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(6)]
            for each in sockets:
                each.setblocking(False)
            tasks = [asyncio.create_task(loop.sock_connect(each, ("127.0.0.1", port))) for each in sockets]
            _, waiting = await asyncio.wait(tasks, timeout=0.2)
            assert waiting
            for task in waiting:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
