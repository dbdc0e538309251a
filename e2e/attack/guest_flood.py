# SPDX-License-Identifier: Apache-2.0
"""Send the messages of a hostile guest with its own credentials: malformed, deep, large, untrue, or too many."""

from __future__ import annotations

import itertools
import json
import random
import ssl
import time
from collections.abc import Iterable, Iterator

import aiormq
from aiormq import spec
from aiormq.exceptions import AMQPError
from yarl import URL

from simyard_adapter.wire import EVENTS_EXCHANGE, Event, make_event_key

MESSAGES = 80
"""Number of messages that stays below the allowance, although some of them are large."""


def bodies(chance: random.Random) -> Iterator[tuple[Event, bytes]]:
    """Generate kinds of events with bodies that no honest adapter sends, without end."""
    deep = "[" * 300 + "]" * 300
    kinds = [
        (Event.ATTRIBUTES, f'{{"sequence": 1, "values": {{"load": {deep}}}, "observedAt": 1}}'),
        (Event.REGISTER, f'{{"adapterVersion": {"[" * 1015}{"]" * 1015}, "bootId": "x"}}'),
        (Event.RESULT, f'{{"invocation": "nobody-1", "result": {deep}, "startedAt": 1, "seconds": 1}}'),
        (Event.RESULT, '{"invocation": ["x"], "result": 1, "startedAt": 9e99, "seconds": -1}'),
        (Event.PROGRESS, '{"invocation": "\\u001b]0;owned\\u0007\\u202e", "percent": 1e309, "message": "\\u0000\\r"}'),
        (Event.ATTRIBUTES, '{"values": {"load": "' + "x" * 1_200_000 + '"}, "observedAt": 1}'),
        (Event.REGISTER, "[" * 1_000_000),
        (Event.ACTIVE, "{"),
        (Event.DRAINED, "null"),
    ]
    while True:
        kind, text = chance.choice(kinds)
        yield kind, text.encode()


async def flood(bootstrap: bytes, seed: int) -> int:
    """Send ``MESSAGES`` such events as the worker of a bootstrap document; return the number sent."""
    return await _publish(bootstrap, itertools.islice(bodies(random.Random(seed)), MESSAGES))


async def storm(bootstrap: bytes, seconds: float) -> int:
    """Send well-formed events as fast as the broker accepts them, for a limited time; return the number sent."""
    ends = time.monotonic() + seconds
    return await _publish(bootstrap, itertools.takewhile(lambda _: time.monotonic() < ends,
                                                         itertools.repeat((Event.ACTIVE, b"{}"))))  # fmt: skip


async def _publish(bootstrap: bytes, messages: Iterable[tuple[Event, bytes]]) -> int:
    document = json.loads(bootstrap)
    address, user = document["broker"], document["broker"]["username"]
    url = URL.build(
        scheme="amqps" if address["caCertificate"] else "amqp",
        user=user, password=address["password"], host=address["host"], port=address["port"],
        path="/" + address["vhost"],
    )  # fmt: skip
    context = ssl.create_default_context(cadata=address["caCertificate"]) if address["caCertificate"] else None
    accepted = 0
    connection = aiormq.Connection(url, context=context)
    try:
        await connection.connect()
        channel = await connection.channel(publisher_confirms=False)
        for kind, body in messages:
            properties = spec.Basic.Properties(user_id=user, message_type=kind.value, content_type="application/json")
            key = make_event_key(kind, user, document["workerUid"])
            await channel.basic_publish(body, exchange=EVENTS_EXCHANGE, routing_key=key, properties=properties)
            accepted += 1
    except (AMQPError, OSError):
        pass  # the broker may close the connection of a guest that sends too much
    finally:
        await connection.close()
    return accepted
