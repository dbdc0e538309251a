# SPDX-License-Identifier: Apache-2.0
"""Read the collection of a frontend without pause from a pod, each time over a connection of its own.

The program prints every second the number of answers so far and the errors; it ends after SECONDS.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections import Counter

import aiohttp

CLIENTS = int(os.environ["CLIENTS"])
SECONDS = float(os.environ["SECONDS"])


async def main() -> None:
    """Run all clients until the time is over."""
    tls = ssl.create_default_context(cadata=os.environ["CA"])
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + SECONDS
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    connector = aiohttp.TCPConnector(limit=CLIENTS, force_close=True, ssl=tls, ttl_dns_cache=5)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session, asyncio.TaskGroup() as group:
        group.create_task(print_progress(outcomes, end))
        for _ in range(CLIENTS):
            group.create_task(read(session, outcomes, end))


async def read(session: aiohttp.ClientSession, outcomes: Counter[str], end: float) -> None:
    """Read until the end as one client."""
    while time.monotonic() < end:
        try:
            async with session.get(os.environ["URL"], timeout=aiohttp.ClientTimeout(total=60)) as response:
                await response.read()
                outcomes["good" if response.status == 200 else f"status {response.status}"] += 1
        except (aiohttp.ClientError, TimeoutError) as error:
            outcomes[f"{type(error).__name__}: {error}"[:200]] += 1


async def print_progress(outcomes: Counter[str], end: float) -> None:
    """Print the progress every second."""
    begin = time.monotonic()
    while time.monotonic() < end:
        await asyncio.sleep(1)
        print(json.dumps({"seconds": round(time.monotonic() - begin), **outcomes}), flush=True)


asyncio.run(main())
