# SPDX-License-Identifier: Apache-2.0
"""Run the yardstick for answers over AMQP: only the AMQP client, with the same calls that a frontend makes.

The process reads ten messages at once, publishes the same answer to each with a confirm, and acknowledges. Its cost is
therefore the share of the AMQP client in the CPU time of a frontend. ``python -m simyard_bench.occi.bare_amqp FILE``
reads FILE, a :class:`Script` in JSON.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import uvloop
from aiormq import spec
from aiormq.abc import DeliveredMessage
from aiormq.exceptions import PublishError
from pydantic import BaseModel

from simyard.frontend.amqp.consumer import PREFETCH
from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import open_channel
from simyard_bench.occi.load import SERVING


class Script(BaseModel):
    """The broker, the queue that the process declares and reads, and the file with the body of all answers."""

    url: str
    ca_file: Path | None
    queue: str
    body_file: Path


async def _serve(script: Script) -> None:
    access = BrokerAccess.from_url(script.url, "", script.ca_file)
    body = script.body_file.read_bytes()
    async with (
        open_channel(access, "bare responses", confirms=True) as publisher,
        open_channel(access, "bare requests") as link,
        asyncio.TaskGroup() as group,
    ):

        async def answer(message: DeliveredMessage) -> None:
            asked = message.header.properties
            properties = spec.Basic.Properties(
                content_type="text/plain",
                correlation_id=asked.message_id,
                delivery_mode=1,
                headers={"status_code": 200, "path_info": str((asked.headers or {})["path_info"]), "age": "0"},
            )
            with suppress(PublishError):  # for a client that has ended meanwhile
                await publisher.channel.basic_publish(
                    body, routing_key=asked.reply_to or "", properties=properties, mandatory=True
                )
            assert message.delivery_tag is not None
            await link.channel.basic_ack(message.delivery_tag)

        async def receive(message: DeliveredMessage) -> None:
            group.create_task(answer(message))

        await link.channel.queue_declare(script.queue, exclusive=True)
        await link.channel.basic_qos(prefetch_count=PREFETCH)
        await link.channel.basic_consume(script.queue, receive)
        print(SERVING, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(Script.model_validate_json(Path(sys.argv[1]).read_bytes())))
