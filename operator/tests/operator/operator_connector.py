# SPDX-License-Identifier: Apache-2.0
"""The simulation program of these tests: it counts its runs in a file, waits as long as it is told, fails or dies."""

import asyncio
import os
from pathlib import Path

from simyard_adapter import ActionError, Connector, Context, action, attribute, parameter


class Program(Connector):
    state = attribute("string", default="idle")
    load = attribute("number", unit="N", default=10, minimum=0, mutable=True)

    @action(
        mode="Async",
        timeout_seconds=60,
        parameters=[
            parameter("ledger", "string", required=True),
            parameter("until", "string", default=""),
        ],
        result=[parameter("pid", "integer")],
    )
    async def run(self, context: Context, *, ledger: str, until: str) -> dict:
        """Write a line to the ledger, then wait until a file is there."""
        note(ledger)
        await there(context, until)
        return {"pid": os.getpid()}

    @action(
        mode="Async",
        timeout_seconds=60,
        parameters=[parameter("ledger", "string", required=True), parameter("until", "string", default="")],
        idempotent=True,
    )
    async def rerun(self, context: Context, *, ledger: str, until: str) -> None:
        """As run, but it may run again."""
        note(ledger)
        await there(context, until)

    @action(mode="Async")
    def refuse(self, context: Context) -> None:
        """Fail as a program does."""
        raise ActionError("*ERROR in e_c3d: nonpositive jacobian")


def note(ledger: str) -> None:
    with Path(ledger).open("a") as file:
        file.write(f"{os.getpid()}\n")


async def there(context: Context, path: str) -> None:
    context.progress(50, "waiting")
    while path and not Path(path).exists():  # noqa: ASYNC110, ASYNC240 - what it waits for is another process
        await asyncio.sleep(0.02)
