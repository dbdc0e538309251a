# SPDX-License-Identifier: Apache-2.0
"""Load frontends over AMQP, with the AMQP client that the frontends use. Each connection has one pending request."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import uvloop
from aiormq import spec
from aiormq.abc import DeliveredMessage
from pamqp.common import FieldTable

from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import open_channel
from simyard_bench.occi.load import Load, Outcome, Tally, measure, pin


async def _run(load: Load) -> Outcome:
    tally = Tally(load.servers)
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    sent: dict[str, float] = {}
    requests = load.cycle_requests()
    password = load.headers["Authorization"].removeprefix("Bearer ")
    headers: FieldTable = {"auth": {"type": "basic", "username": "bench", "password": password}}
    access = BrokerAccess.from_url(load.url, "", Path(load.ca_file) if load.ca_file else None)
    async with open_channel(access, "bench") as link:
        channel = link.channel
        queue = (await channel.queue_declare(exclusive=True)).queue
        assert queue is not None

        async def send(number: int) -> None:
            request = next(requests)
            sent[str(number)] = time.perf_counter()
            properties = spec.Basic.Properties(
                message_type=request.method.lower(),
                reply_to=queue,
                message_id=str(number),
                headers={**headers, "path_info": request.target, "accept": request.headers.get("Accept", "text/plain")},
            )
            await channel.basic_publish(request.body.encode(), routing_key=load.queue, properties=properties)

        async def receive(message: DeliveredMessage) -> None:
            properties = message.header.properties
            status = (properties.headers or {}).get("status_code")
            if status != 200 and not failed.done():
                failed.set_exception(RuntimeError(f"{status!r}: {message.body[:500]!r}"))
            number = properties.correlation_id or ""
            tally.count(time.perf_counter() - sent.pop(number), len(message.body))
            await send(int(number) + load.connections)

        await channel.basic_consume(queue, receive, no_ack=True)
        for number in range(load.connections):
            await send(number)
        return await measure(load, tally, failed)


def main() -> None:
    """Run the load that standard input describes."""
    load = Load.read()
    pin(0, load.core)
    json.dump(asdict(uvloop.run(_run(load))), sys.stdout)


if __name__ == "__main__":
    main()
