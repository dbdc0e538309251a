# SPDX-License-Identifier: Apache-2.0
"""Bodies over HTTP, in pieces of any size and at any pace."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from occi_memory import MemoryBackend, Served, served

from simyard.frontend.budget import BodyBudget, SendingBudget
from simyard.frontend.exchange import MAX_BODY_BYTES
from simyard.frontend.http.connection import Limits
from simyard.occi.errors import OcciError

KIND = b'Category: compute; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"\n'
HEAD_SECONDS = 0.05
LIMITS = Limits(head_seconds=HEAD_SECONDS, body_seconds=10, linger_seconds=0.1)


def body_of(size: int) -> bytes:
    """Return a request to create an entity, with a body of this size."""
    return KIND + b"\n" * (size - len(KIND))


def head_of(http: Served, method: str, target: str, *headers: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {http.host}", "Authorization: Bearer ada-token", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


async def response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    async with asyncio.timeout(240):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        return int(head.split()[1]), await reader.readexactly(length)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


@pytest.mark.parametrize(
    ("size", "gap_seconds", "is_chunked", "is_slow"),
    [
        case
        for case in itertools.product((200, 200_000, MAX_BODY_BYTES), (0.0, 0.02), (False, True), (False, True))
        if case[0] > 200 or case[1] > 0
    ],
)
async def test_a_body_apart_from_its_head_is_no_head_of_the_next_request(
    memory: MemoryBackend, size: int, gap_seconds: float, is_chunked: bool, is_slow: bool
) -> None:
    """The answer may take longer than a head may, and so may the pause after it."""
    memory.slow = asyncio.Event() if is_slow else None
    async with served(memory, limits=LIMITS) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {size}"
        for _ in range(2):
            writer.write(head_of(http, "POST", "/compute/", framing))
            await asyncio.sleep(gap_seconds)
            writer.write(chunked(body_of(size)) if is_chunked else body_of(size))
            if memory.slow is not None:
                asyncio.get_running_loop().call_later(2 * HEAD_SECONDS, memory.slow.set)
            status, text = await response(reader)
            assert status == 201, text
            with pytest.raises(TimeoutError):  # there is no unrequested response
                async with asyncio.timeout(2 * HEAD_SECONDS):
                    await reader.read(1)
        writer.write(head_of(http, "GET", "/compute/c1"))
        assert (await response(reader))[0] == 200
        writer.close()


async def test_a_body_that_is_waited_for_comes_in_any_pieces(memory: MemoryBackend) -> None:
    async with served(memory, limits=LIMITS) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(head_of(http, "POST", "/compute/", "Content-Length: 300000", "Expect: 100-continue"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        body = body_of(300_000)
        for place in range(0, len(body), 100_000):
            writer.write(body[place : place + 100_000])
            await asyncio.sleep(HEAD_SECONDS)
        assert (await response(reader))[0] == 201
        await asyncio.sleep(2 * HEAD_SECONDS)
        writer.write(head_of(http, "GET", "/compute/c1"))
        assert (await response(reader))[0] == 200
        writer.close()


async def test_requests_in_one_packet_are_answered_in_turn_however_slow_the_first_is(memory: MemoryBackend) -> None:
    memory.slow = asyncio.Event()
    async with served(memory, limits=LIMITS) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        post = head_of(http, "POST", "/compute/", f"Content-Length: {len(KIND)}")
        get = head_of(http, "GET", "/compute/c1")
        writer.write(post)
        await asyncio.sleep(0.01)
        writer.write(KIND + get + get[:20])  # the end of a body, a request, and the beginning of one more
        asyncio.get_running_loop().call_later(3 * HEAD_SECONDS, memory.slow.set)
        assert [(await response(reader))[0] for _ in range(2)] == [201, 200]
        writer.write(get[20:])
        assert (await response(reader))[0] == 200
        writer.close()


async def test_a_head_that_does_not_end_behind_a_slow_request_takes_nothing_from_it(memory: MemoryBackend) -> None:
    memory.slow = asyncio.Event()
    async with served(memory, limits=LIMITS) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(head_of(http, "DELETE", "/compute/c1"))
        await asyncio.sleep(0.01)
        writer.write(b"GET / HTTP/1.1\r\nX-Slow: ")
        asyncio.get_running_loop().call_later(3 * HEAD_SECONDS, memory.slow.set)
        assert (await response(reader))[0] == 200
        status, text = await response(reader)
        assert status == 400 and b"did not end" in text
        writer.close()


async def test_bodies_that_are_waited_for_take_nobody_s_place(memory: MemoryBackend) -> None:
    async with served(memory, max_in_flight=1, limits=LIMITS) as http:
        slow = [await asyncio.open_connection("127.0.0.1", http.port) for _ in range(20)]
        for _, writer in slow:
            writer.write(head_of(http, "POST", "/compute/", "Content-Length: 1000") + b"\n" * 10)
        assert (await http.request("GET", "/compute/c1"))[0] == 200
        for _, writer in slow:
            writer.close()


async def test_bodies_of_one_user_take_so_much_memory_and_not_more(memory: MemoryBackend) -> None:
    memory.slow = asyncio.Event()
    async with served(memory, bodies=BodyBudget(3 * MAX_BODY_BYTES, 2 * MAX_BODY_BYTES)) as http:
        first = [asyncio.create_task(http.request("POST", "/compute/", body=body_of(MAX_BODY_BYTES))) for _ in "12"]
        async with asyncio.timeout(240):
            while len(memory.asked) < 2:  # noqa: ASYNC110 - what it waits for knows no events
                await asyncio.sleep(0.01)
        status, head, _ = await http.request("POST", "/compute/", body=body_of(1000))
        assert status == 503 and "Retry-After: 1" in head
        eve = await http.request("POST", "/compute/", body=body_of(MAX_BODY_BYTES), token="eve-token")
        assert eve[0] != 503
        memory.slow.set()
        assert [(await task)[0] for task in first] == [201, 201]
        assert (await http.request("POST", "/compute/", body=body_of(MAX_BODY_BYTES)))[0] == 201


def test_a_listing_that_many_get_is_held_once_and_different_ones_are_bounded() -> None:
    budget = SendingBudget(100)
    bodies = [bytes([number]) * 60 for number in range(3)]
    with budget.sending(bodies[0]), budget.sending(bodies[0]):
        budget.check(bodies[0])
        with pytest.raises(OcciError) as refused:
            budget.check(bodies[1])
        assert refused.value.status == 503
    budget.check(bytes(1000))  # one alone may be of any size
    with budget.sending(bodies[1]):
        budget.check(bytes(40))
