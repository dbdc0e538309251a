# SPDX-License-Identifier: Apache-2.0
"""What stands in front of the nodes of a broker in Kubernetes: a Service, which gives each connection to some node."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from simyard.messaging.access import BrokerAccess
from simyard_dev.local_broker import LocalBroker, LocalCluster
from simyard_dev.ports import LOOPBACK


@contextlib.asynccontextmanager
async def balanced(cluster: LocalCluster) -> AsyncIterator[BrokerAccess]:
    """Give the administrator's access to the cluster, by ports that lead to any node, also to one that is away."""
    async with contextlib.AsyncExitStack() as stack:
        accesses = [_access(node) for node in cluster.nodes]
        amqp = await stack.enter_async_context(_service([access.port for access in accesses]))
        ports = [urlsplit(access.management_url).port or 0 for access in accesses]
        management = await stack.enter_async_context(_service(ports))
        yield replace(accesses[0], port=amqp, management_url=f"http://{LOOPBACK}:{management}")


def _access(node: LocalBroker) -> BrokerAccess:
    return BrokerAccess.from_url(node.url, node.management_url or "")


@contextlib.asynccontextmanager
async def _service(ports: Sequence[int]) -> AsyncIterator[int]:
    async with asyncio.TaskGroup() as group:

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there, back = await asyncio.open_connection(LOOPBACK, random.choice(ports))
            except OSError:
                writer.close()
                return
            sides = [group.create_task(_copy(reader, back)), group.create_task(_copy(there, writer))]
            await asyncio.wait(sides)

        server = await asyncio.start_server(forward, LOOPBACK, 0)
        yield server.sockets[0].getsockname()[1]
        server.close()
        for task in group._tasks:
            task.cancel()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
