# SPDX-License-Identifier: Apache-2.0
"""Run an OCCI client over AMQP in a pod; print the number of computes and the duration of reads."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
import uuid
from pathlib import Path

import aiormq
from aiormq.abc import DeliveredMessage

READS = 100
SECONDS = 60


class Client:
    """A client that sends requests to the frontends' queue and waits for each response."""

    def __init__(self, channel: aiormq.abc.AbstractChannel, replies: str) -> None:
        self._channel = channel
        self._replies = replies
        self._waiting: dict[str, asyncio.Future[DeliveredMessage]] = {}

    async def receive(self, message: DeliveredMessage) -> None:
        """Hand a response to the caller that waits for it."""
        self._waiting.pop(str(message.header.properties.correlation_id)).set_result(message)

    async def get(self, path: str, token: str) -> DeliveredMessage:
        """Send a GET request and return the response."""
        key = uuid.uuid4().hex
        response = self._waiting[key] = asyncio.get_running_loop().create_future()
        properties = aiormq.spec.Basic.Properties(
            message_type="get",
            reply_to=self._replies,
            message_id=key,
            headers={"path_info": path, "accept": "text/uri-list", "X-AUTH-TOKEN": token},
        )
        await self._channel.basic_publish(b"", routing_key=os.environ["QUEUE"], properties=properties)
        return await asyncio.wait_for(response, SECONDS)


async def main(authority: Path) -> None:
    """Run the client."""
    connection = await aiormq.connect(f"{os.environ['URL']}?cafile={authority}")
    channel = await connection.channel()
    queue = str((await channel.queue_declare(f"e2e.{uuid.uuid4().hex}", exclusive=True)).queue)
    client = Client(channel, queue)
    await channel.basic_consume(queue, client.receive, no_ack=True)
    refused = await client.get("/compute/", "nobody")
    token, seconds = os.environ["TOKEN"], []
    for _ in range(READS):
        begin = time.monotonic()
        response = await client.get("/compute/", token)
        seconds.append(time.monotonic() - begin)
    result = {
        "refused": _status(refused),
        "status": _status(response),
        "computes": len(response.body.decode().split()),
        "median_milliseconds": statistics.median(seconds) * 1000,
    }
    print(json.dumps(result))
    await connection.close()


def _status(message: DeliveredMessage) -> int:
    return int(str((message.header.properties.headers or {})["status_code"]))


CA_FILE = Path("/tmp/ca.crt")
CA_FILE.write_text(os.environ["CA"])
asyncio.run(main(CA_FILE))
