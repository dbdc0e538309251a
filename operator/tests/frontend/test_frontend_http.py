# SPDX-License-Identifier: Apache-2.0
"""The HTTP transport, tested byte by byte."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable

import pytest
from occi_memory import BASE, MemoryBackend, Served, compute, parts, served

from simyard.frontend.exchange import MAX_BODY_BYTES
from simyard.frontend.http.connection import Limits
from simyard.occi.standard import COMPUTE

KIND = 'compute; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"'
BODY = f"Category: {KIND}\n".encode()
SHORT = Limits(head_seconds=0.2, body_seconds=0.2, write_seconds=0.2, linger_seconds=0.1)


@pytest.fixture
async def http(memory: MemoryBackend) -> AsyncIterator[Served]:
    async with served(memory, cors_origins=frozenset({"https://console.example"})) as server:
        yield server


def raw(http: Served, request_line: str, *headers: str, body: bytes = b"", token: str = "ada-token") -> bytes:
    lines = [request_line, f"Authorization: Bearer {token}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(240):
        while not met():  # noqa: ASYNC110 - what it waits for knows no events
            await asyncio.sleep(0.01)


# Every response


async def test_every_response_says_who_answers_and_what_is_accepted(http: Served) -> None:
    for method, target, token in (
        ("GET", "/compute/c1", "ada-token"),
        ("GET", "/storage/", "ada-token"),
        ("GET", "/compute/none", "ada-token"),
        ("DELETE", "/compute/c2", "ada-token"),
        ("OPTIONS", "/compute/", ""),
        ("GET", "/", ""),
        ("GET", "/healthz", ""),
        ("BREW", "/", "ada-token"),
    ):
        _, head, _ = await http.request(method, target, token=token)
        assert "OCCI/1.2 OCCI/1.1\r\n" in head and "Server: simyard/" in head, (method, target)
        assert "\r\nAccept: text/plain, " in head and "\r\nContent-Type: text/plain" in head, (method, target)


async def test_absolute_uris_begin_with_the_host_that_was_asked(memory: MemoryBackend, http: Served) -> None:
    _, _, body = await http.request("GET", "/compute/", "Accept: text/uri-list")
    assert body == f"https://{http.host}/compute/c1\nhttps://{http.host}/compute/c2\n"
    async with served(memory, endpoint=f"{BASE}/") as fixed:
        _, _, body = await fixed.request("GET", "/compute/", "Accept: text/uri-list")
        assert body == f"{BASE}/compute/c1\n{BASE}/compute/c2\n"


async def test_not_modified_has_neither_a_body_nor_its_length_and_the_connection_goes_on(http: Served) -> None:
    _, head, _ = await http.request("GET", "/compute/c1")
    [tag] = [line.partition(": ")[2] for line in head.splitlines() if line.startswith("ETag: ")]
    host = f"Host: {http.host}"
    first = raw(http, "GET /compute/c1 HTTP/1.1", host, f"If-None-Match: {tag}")
    status, head, rest = parts(
        await http.raw(first + raw(http, "HEAD /compute/c1 HTTP/1.1", host, "Connection: close"))
    )
    assert (status, "Content-Length" in head, f"ETag: {tag}" in head) == (304, False, True)
    assert rest.startswith("HTTP/1.1 200 OK")


async def test_head_has_the_headers_of_get_and_no_body(http: Served) -> None:
    for target in ("/-/", "/compute/c1"):
        _, got, body = await http.request("GET", target)
        status, head, nothing = await http.request("HEAD", target)
        assert (status, nothing) == (200, "")
        assert f"Content-Length: {len(body.encode())}" in got and f"Content-Length: {len(body.encode())}" in head


async def test_a_connection_serves_many_requests(http: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    for _ in range(3):
        writer.write(raw(http, "GET /compute/c1 HTTP/1.1", f"Host: {http.host}"))
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        assert b"200 OK" in head and len(await reader.readexactly(length)) == length
    writer.close()


async def test_text_occi_travels_in_headers_both_ways(http: Served) -> None:
    status, head, body = await http.request(
        "POST", "/compute/", "Content-Type: text/occi", f"Category: {KIND}", "X-OCCI-Attribute: occi.compute.cores=3",
        'X-OCCI-Attribute: occi.core.title="a, b; c"', "Accept: text/occi",
    )  # fmt: skip
    assert (status, body) == (201, "OK") and "X-OCCI-Location: https://" in head
    status, head, _ = await http.request("GET", "/compute/new1", "Accept: text/occi")
    assert 'occi.core.title="a, b; c", ' in head and "occi.compute.cores=3" in head


async def test_64_kib_of_headers_are_read(http: Served) -> None:
    title = "x" * 63_000
    attribute = f'X-OCCI-Attribute: occi.core.title="{title}"'
    status, _, body = await http.request("POST", "/compute/", "Content-Type: text/occi", f"Category: {KIND}", attribute)
    assert status == 201, body
    many = [f"X-OCCI-Attribute: unknown.attribute{number}=1" for number in range(500)]
    status, _, body = await http.request("GET", "/compute/", *many)
    assert (status, body) == (200, "")


async def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(http: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    length = f"Content-Length: {len(BODY)}"
    writer.write(raw(http, "POST /compute/ HTTP/1.1", f"Host: {http.host}", length, "Expect: 100-continue"))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(BODY)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201 Created")
    writer.close()
    status, _, _ = await http.request("POST", "/compute/", f"Content-Length: {2**40}", "Expect: 100-continue")
    assert status == 413


# Authentication


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic !", "Basic YWRh", "Digest x", "ada-token"])
async def test_without_a_valid_token_nothing_is_read(http: Served, header: str) -> None:
    headers = [f"Authorization: {header}"] if header else []
    for method, target in (("GET", "/-/"), ("GET", "/compute/"), ("DELETE", "/compute/c1"), ("GET", "/nothing")):
        status, head, body = await http.request(method, target, *headers, token="")
        assert status == 401 and "WWW-Authenticate: Bearer" in head and "WWW-Authenticate: Basic" in head
        assert "c1" not in body
    assert http.backend.changes == [] and http.backend.asked == []


async def test_an_old_client_sends_the_token_as_password(http: Served) -> None:
    status, _, _ = await http.request("GET", "/compute/c1", "Authorization: Basic dXNlcjphZGEtdG9rZW4=", token="")
    assert status == 200


async def test_only_health_is_for_everybody(http: Served) -> None:
    assert (await http.request("GET", "/healthz", token=""))[0] == 200
    status, _, body = await http.request("GET", "/readyz", token="")
    assert status == 200 and "[+]objects: in memory" in body
    http.health.stopping = True
    assert (await http.request("GET", "/readyz", token=""))[0] == 503
    assert (await http.request("POST", "/healthz", token=""))[0] == 405


# Browsers


async def test_scripts_of_any_origin_may_come_with_a_token(http: Served) -> None:
    status, head, body = await http.request("OPTIONS", "/compute/", "Origin: https://any.example", token="")
    assert (status, body) == (200, "") and "Access-Control-Allow-Origin: *" in head
    assert "Authorization" in head and "X-OCCI-Attribute" in head and "PUT" in head
    _, head, _ = await http.request("GET", "/compute/", "Origin: https://any.example")
    assert "Access-Control-Allow-Origin: *" in head and "Access-Control-Expose-Headers: " in head
    assert "Allow-Credentials" not in head
    _, head, _ = await http.request("GET", "/compute/", token="")
    assert "Access-Control" not in head


async def test_the_browsers_own_credentials_are_for_origins_on_the_list(http: Served) -> None:
    for status, token in ((200, "ada-token"), (401, "")):
        got, head, _ = await http.request("GET", "/compute/", "Origin: https://console.example", token=token)
        assert got == status and "Access-Control-Allow-Origin: https://console.example\r\n" in head
        assert "Access-Control-Allow-Credentials: true" in head and "Vary: Origin" in head
    _, head, _ = await http.request("GET", "/compute/", "Origin: https://console.example.evil")
    assert "Allow-Credentials" not in head


# Ambiguous, broken and endless requests


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (("Content-Length: 5", "Content-Length: 6"), b"12345"),
        (("Content-Length: 5", "Content-Length: 5"), b"12345"),
        (("Content-Length: 5, 5",), b"12345"),
        (("Content-Length: +5",), b"12345"),
        (("Content-Length: -1",), b"12345"),
        (("Content-Length: 5", "Transfer-Encoding: chunked"), b"0\r\n\r\n"),
        (("Transfer-Encoding: chunked", "Content-Length: 5"), b"0\r\n\r\n"),
        (("Transfer-Encoding: xchunked",), b"0\r\n\r\n"),
        (("Transfer-Encoding: chunked, identity",), b"0\r\n\r\n"),
        (("Transfer-Encoding : chunked",), b"0\r\n\r\n"),
        (("Transfer-Encoding: chunked",), b"zz\r\n"),
        (("Transfer-Encoding: chunked",), b"0\n\n"),
        (("Host: other.example",), b""),
        (("Bad Header: x",), b""),
        (("X-Folded: a\r\n b",), b""),
        (("X-Null: a\x00b",), b""),
        (("X-Bare: a\nX-More: b",), b""),
    ],
)
async def test_an_ambiguous_request_ends_the_connection_and_smuggles_nothing(
    http: Served, headers: tuple[str, ...], body: bytes
) -> None:
    smuggled = raw(http, "DELETE /compute/ HTTP/1.1", f"Host: {http.host}")
    answer = await http.raw(raw(http, "POST /compute/ HTTP/1.1", f"Host: {http.host}", *headers, body=body + smuggled))
    status, head, text = parts(answer)
    assert status == 400 and "Content-Type: text/plain" in head and "Connection: close" in head
    assert text.count("\n") == 1 and "Traceback" not in text
    assert answer.count(b"HTTP/1.1 ") == 1
    assert http.backend.changes == []


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("Host: a b",),
        ("Host: {host}", "Authorization: Bearer eve-token"),
        ("Host: {host}", "Accept: \udcff\udcfe"),
        ("Host: {host}", "X-OCCI-Attribute: a=\udce4"),
        ("Host: {host}", "Content-Encoding: gzip"),
        ("Host: {host}", "Content-Type: text/plain; charset=utf-7"),
        ("Host: {host}", "Content-Type: text/html"),
    ],
)
async def test_a_broken_header_is_refused_and_nothing_changes(http: Served, headers: tuple[str, ...]) -> None:
    given = [*(header.format(host=http.host) for header in headers), f"Content-Length: {len(BODY)}"]
    sent = raw(http, "POST /compute/ HTTP/1.1", *given, "Connection: close", body=BODY)
    status, head, text = parts(await http.raw(sent))
    assert status == 400 and "Content-Type: text/plain" in head
    assert text.count("\n") == 1 and "eve" not in text
    assert http.backend.changes == []


@pytest.mark.parametrize(
    "target",
    ["/compute/%ff", "/%zz/%00", "/a%0d%0aSet-Cookie:x=1/", "/compute/?action=%ff", "/compute/?" + "a=1&" * 300, "*"],
)
async def test_a_target_that_is_no_path_in_utf8_is_refused(http: Served, target: str) -> None:
    status, head, body = await http.request("GET", target)
    assert status == 400 and "Set-Cookie" not in head and body.count("\n") == 1


async def test_what_is_not_http_is_refused(http: Served) -> None:
    for data in (b"\x16\x03\x01\x02\x00\x01\x00", b"HELLO\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/2\r\n\r\n"):
        answer = await http.raw(data, eof=True)
        assert not answer or parts(answer)[0] == 400, answer


async def test_oversized_headers_and_bodies_are_refused(http: Served) -> None:
    assert (await http.request("GET", "/" + "x" * 70_000))[0] == 400
    assert (await http.request("GET", "/", "X-Long: " + "x" * 70_000))[0] == 400
    assert (await http.request("GET", "/", *(f"X-{number}: y" for number in range(2000))))[0] == 400
    assert (await http.request("GET", "/", *(f"X-{number}: {'y' * 30_000}" for number in range(12))))[0] == 400
    status, _, body = await http.request("POST", "/compute/", f"Content-Length: {MAX_BODY_BYTES + 1}")
    assert status == 413 and str(MAX_BODY_BYTES) in body
    assert http.backend.changes == []


async def test_an_endless_body_is_cut_off_by_its_size(http: Served) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    head = raw(http, "POST /compute/ HTTP/1.1", f"Host: {http.host}", "Transfer-Encoding: chunked", "Connection: close")
    assert parts(await http.raw(head + chunk * 17))[0] == 413
    assert http.backend.changes == []


async def test_headers_that_come_at_once_are_bounded_too(memory: MemoryBackend) -> None:
    async with served(memory, limits=Limits(head_bytes=10_000, linger_seconds=0.1)) as http:
        status, _, body = await http.request("GET", "/", *(f"X-{number}: {'y' * 1000}" for number in range(15)))
        assert status == 400 and "10000 bytes" in body


async def test_whoever_is_refused_for_good_gets_to_read_why(memory: MemoryBackend) -> None:
    async with served(memory, limits=Limits(linger_seconds=30)) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(b"HELLO\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        await reader.readline()
        for _ in range(20):  # closed already, the connection would be reset by one of these
            writer.write(b"x" * 100_000)
            await writer.drain()
        assert not reader.at_eof()
        writer.close()
        await until(lambda: not http.server.connections)


async def test_a_compressed_body_is_never_unpacked(http: Served) -> None:
    bomb = gzip.compress(b"\n" * 10_000_000)
    status, _, _ = await http.request("POST", "/compute/", "Content-Encoding: gzip", body=bomb)
    assert status == 400 and http.backend.changes == []


@pytest.mark.parametrize("start", ["GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ", "G"])
async def test_headers_that_do_not_end_are_not_waited_for(memory: MemoryBackend, start: str) -> None:
    async with served(memory, limits=SHORT) as http:
        status, _, body = parts(await http.raw(start.encode()))
        assert status == 400 and "did not end" in body


async def test_endless_headers_are_cut_off_by_their_size(memory: MemoryBackend) -> None:
    limits = Limits(head_seconds=60, head_bytes=10_000)
    async with served(memory, limits=limits) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(b"GET / HTTP/1.1\r\n")
        for number in range(20):
            writer.write(f"X-{number}: {'y' * 1000}\r\n".encode())
            await asyncio.sleep(0)
        async with asyncio.timeout(240):
            answer = await reader.read()
        assert not answer or parts(answer)[0] == 400
        writer.close()


async def test_a_body_that_does_not_end_is_not_waited_for(memory: MemoryBackend) -> None:
    async with served(memory, limits=SHORT) as http:
        for more in ("Content-Length: 1000", "Transfer-Encoding: chunked"):
            request = raw(http, "POST /compute/ HTTP/1.1", f"Host: {http.host}", more)
            status, _, body = parts(await http.raw(request))
            assert status == 400 and "did not end" in body
        assert memory.changes == []


async def test_a_body_that_breaks_off_changes_nothing(http: Served) -> None:
    request = raw(http, "POST /compute/ HTTP/1.1", f"Host: {http.host}", f"Content-Length: {len(BODY) + 1}", body=BODY)
    await http.raw(request, eof=True)
    assert http.backend.changes == []


async def test_a_client_that_does_not_read_is_cut_off(memory: MemoryBackend) -> None:
    memory.put(*(compute(f"{number:0100}") for number in range(5000)))
    async with served(memory, limits=SHORT) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port, limit=1024)
        request = raw(http, "GET /compute/ HTTP/1.1", f"Host: {http.host}")
        writer.write(request * 30)
        await until(lambda: not http.server.connections)
        writer.close()
        del reader


async def test_slow_ones_do_not_hinder_others(memory: MemoryBackend) -> None:
    async with served(memory) as http:
        slow = [await asyncio.open_connection("127.0.0.1", http.port) for _ in range(50)]
        for _, writer in slow:
            writer.write(b"GET / HTTP/1.1\r\nX-Slow: ")
        assert (await http.request("GET", "/compute/c1"))[0] == 200
        for _, writer in slow:
            writer.close()


async def test_more_requests_than_places_are_told_to_come_again(memory: MemoryBackend) -> None:
    memory.slow = asyncio.Event()
    async with served(memory, max_in_flight=1) as http:
        first = asyncio.create_task(http.request("DELETE", "/compute/c1"))
        await until(lambda: bool(memory.asked))
        status, head, _ = await http.request("GET", "/compute/c1")
        assert status == 503 and "Retry-After: 1" in head
        assert (await http.request("GET", "/healthz", token=""))[0] == 200
        memory.slow.set()
        assert (await first)[0] == 200


async def test_connections_are_closed_one_by_one_before_a_stop(http: Served) -> None:
    request = raw(http, "GET /compute/c1 HTTP/1.1", f"Host: {http.host}")
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(request)
    assert b"Connection: close" not in await reader.readuntil(b"\r\n\r\n")
    http.health.stopping = True
    writer.write(request)
    rest = await reader.read()
    assert b"\r\nConnection: close\r\n" in rest and rest.count(b"200 OK") == 1
    writer.close()


async def test_a_stop_waits_for_what_is_under_way(memory: MemoryBackend) -> None:
    memory.slow = asyncio.Event()
    async with served(memory) as http:
        request = asyncio.create_task(http.request("DELETE", "/compute/c1"))
        await until(lambda: bool(memory.asked))
        stopping = asyncio.create_task(http.runner.cleanup())
        await asyncio.sleep(0)
        memory.slow.set()
        assert (await request)[0] == 200
        await stopping
    assert memory.changes == ["delete /compute/c1"]


async def test_errors_come_as_json_where_that_was_asked_for(http: Served) -> None:
    status, head, body = await http.request("GET", "/compute/none", "Accept: application/occi+json")
    assert status == 404 and "Content-Type: application/occi+json" in head and json.loads(body)["code"] == 404
    status, _, body = await http.request("GET", "/", "Accept: application/occi+json", token="")
    assert status == 401 and json.loads(body)["code"] == 401


async def test_no_refusal_repeats_the_token(http: Served) -> None:
    for token in ("wrong-secret-token", "x" * 20_000):
        _, head, body = await http.request("GET", "/compute/c1", token=token)
        assert token not in head + body
    assert COMPUTE not in http.backend.changes
