# SPDX-License-Identifier: Apache-2.0
"""Measure how many machines a real oned creates per second: by pyone, by multicalls, and by a site.

``make bench-oned`` reads ``SIMYARD_ONE_ENDPOINT``, ``SIMYARD_ONE_AUTH`` (user:password) and ``SIMYARD_ONE_TEMPLATE``
(name, default ``worker``) from the environment. Each case creates MACHINES machines (argument, default 100) and deletes
them. The program prints the figures and does not store them. The cost model of the simulator is based on such figures.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pyone
import uvloop

from simyard_bench.sites.asking import machine_requests
from simyard_bench.sites.starting import Fleet
from simyard_dev.providers import complete_open_nebula
from simyard_sites.base import MachineRequest, MachineState, SiteConfig
from simyard_sites.opennebula import OpenNebulaSite
from simyard_sites.opennebula.catalog import Catalog
from simyard_sites.opennebula.client import Oned
from simyard_sites.opennebula.ownership import Ownership
from simyard_sites.opennebula.requests import build_instantiate
from simyard_sites.opennebula.settings import Settings
from simyard_sites.opennebula.wire import RpcCall

MULTICALLS = ((8, 1), (16, 1), (32, 1), (50, 1), (16, 2), (16, 4))
"""Calls per request, and number of concurrent requests."""
_END_SECONDS = 300.0
_PAUSE_SECONDS = 1.0


def main(machines: int) -> None:
    """Measure all cases and print their figures."""
    config = _config()
    print(f"pyone, one by one: {uvloop.run(_measured(config, machines, _by_pyone)):.1f} a second", flush=True)
    for calls, at_once in MULTICALLS:
        rate = uvloop.run(_measured(config, machines, _by_multicall(calls, at_once)))
        print(f"multicall of {calls}, {at_once} at once: {rate:.1f} a second", flush=True)
    print(f"site: {uvloop.run(_measured(config, machines, _by_site)):.1f} a second", flush=True)


Case = Callable[[SiteConfig, list[MachineRequest]], Awaitable[float]]
"""A way to create machines; returns the seconds until the last one was accepted."""


async def _measured(config: SiteConfig, machines: int, case: Case) -> float:
    try:
        return machines / await case(config, machine_requests("bench", "bench", machines, image=""))
    finally:
        await _end(OpenNebulaSite(config))


async def _by_pyone(config: SiteConfig, requests: list[MachineRequest]) -> float:
    calls = await _calls(config, requests)
    server = pyone.OneServer(config.provider["endpoint"], session=":".join(config.credentials.values()))
    begun = time.monotonic()
    for call in calls:
        server.template.instantiate(*call.parameters)
    return time.monotonic() - begun


def _by_multicall(calls: int, at_once: int) -> Case:
    async def make(config: SiteConfig, requests: list[MachineRequest]) -> float:
        every = await _calls(config, requests)
        requested = (every[first : first + calls] for first in range(0, len(every), calls))
        oned = Oned(Settings.from_config(config))
        begun = time.monotonic()
        async with asyncio.TaskGroup() as senders:
            for _ in range(at_once):
                senders.create_task(_send(oned, requested))
        seconds = time.monotonic() - begun
        await oned.aclose()
        return seconds

    return make


async def _send(oned: Oned, requested: Iterator[Sequence[RpcCall]]) -> None:
    for part in requested:
        for answer in await oned.ask(part, changes=True):
            if isinstance(answer, Exception):
                raise answer


async def _by_site(config: SiteConfig, requests: list[MachineRequest]) -> float:
    async with Fleet(OpenNebulaSite(config)) as fleet:
        return (await fleet.start(requests)).accepted_seconds


async def _calls(config: SiteConfig, requests: list[MachineRequest]) -> list[RpcCall]:
    """Return the calls that a site would make."""
    settings, oned = Settings.from_config(config), Oned(Settings.from_config(config))
    template = await Catalog(oned, settings).get_template()
    await oned.aclose()
    return [
        build_instantiate(each, template, settings, Ownership(config.installation, config.name)) for each in requests
    ]


async def _end(site: OpenNebulaSite) -> None:
    """Delete all machines of the site. oned can delete a machine in PROLOG or BOOT only after this state."""
    async with asyncio.timeout(_END_SECONDS):
        while machines := await site.list_owned():
            ids = [machine.id for machine in machines if machine.state is not MachineState.TERMINATING]
            async for _ in site.delete(ids):
                pass
            await asyncio.sleep(_PAUSE_SECONDS)
    await site.aclose()


def _config() -> SiteConfig:
    username, _, password = os.environ["SIMYARD_ONE_AUTH"].partition(":")
    template = os.environ.get("SIMYARD_ONE_TEMPLATE", "worker")
    provider = complete_open_nebula(endpoint=os.environ["SIMYARD_ONE_ENDPOINT"], template=template)
    return SiteConfig("bench", provider, {"username": username, "password": password}, f"bench-{uuid.uuid4().hex[:8]}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
