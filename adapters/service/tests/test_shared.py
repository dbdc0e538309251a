# SPDX-License-Identifier: Apache-2.0
"""Many adapters in one event loop, on shared connections."""

import asyncio
from pathlib import Path
from typing import Any

from simyard_adapter.adapter import Adapter
from simyard_adapter.transport import Connections
from simyard_adapter.wire import Event

Service = Any


async def test_many_adapters_share_a_connection_and_each_does_its_own_work(
    service: Service, tmp_path: Path, work: Any, lines: Any
) -> None:
    names = [f"w{i}" for i in range(20)]
    await asyncio.gather(*(service.add_worker(name) for name in names))
    bootstraps = [service.bootstrap(name) for name in names]
    connections = Connections(bootstraps[0].broker, "shared", channels_per_connection=100)
    adapters = [Adapter(it, tmp_path / it.worker, connections=connections) for it in bootstraps]
    running = [asyncio.ensure_future(adapter.run()) for adapter in adapters]
    for name in names:
        await service.event(Event.REGISTER, lambda body, it=name: body["worker"] == it)
    replies = await asyncio.gather(*(service.act("once", work(), worker=name) for name in names))
    assert [reply["result"] for reply in replies] == [{"square": 9}] * 20
    assert len(lines()) == 20
    names_seen = {it["client_properties"].get("connection_name") for it in await connections_of(service)}
    assert "shared" in names_seen
    assert len([it for it in await connections_of(service) if it["user"] == service.user]) == 1
    for adapter in adapters:
        adapter.stop()
    await asyncio.wait_for(asyncio.gather(*running), 240)
    assert len(service.all(Event.REGISTER)) == 20


async def connections_of(service: Service) -> list[dict[str, Any]]:
    """The management plugin tells of connections a moment late."""
    async with asyncio.timeout(240):
        while True:
            found = await service.manage("GET", f"vhosts/{service.vhost}/connections")
            if any(it.get("user") == service.user for it in found):
                return found
            await asyncio.sleep(0.1)
