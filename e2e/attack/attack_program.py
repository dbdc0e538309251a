# SPDX-License-Identifier: Apache-2.0
"""Simulation program of the attack: each run writes a line to a ledger, so that runs can be counted."""

import asyncio
from pathlib import Path

from simyard_adapter import Connector, Context, action, attribute, parameter

PARAMETERS = [parameter("ledger", "string", required=True), parameter("key", "string", required=True)]


class Program(Connector):
    load = attribute("number", default=1, minimum=0, mutable=True)

    @action(mode="Async", timeout_seconds=120, parameters=PARAMETERS, result=[parameter("key", "string")])
    async def once(self, context: Context, *, ledger: str, key: str) -> dict:
        """Write a line to the ledger and work for a moment; must never run twice."""
        return await work(ledger, key)

    @action(
        mode="Async", timeout_seconds=120, parameters=PARAMETERS, result=[parameter("key", "string")], idempotent=True
    )
    async def again(self, context: Context, *, ledger: str, key: str) -> dict:
        """Do the same as `once`, but may run again."""
        return await work(ledger, key)


async def work(ledger: str, key: str) -> dict:
    with Path(ledger).open("a") as file:  # noqa: ASYNC230 - one short write: lines of processes do not mix
        file.write(f"{key}\n")
    await asyncio.sleep(0.3)
    return {"key": key}
