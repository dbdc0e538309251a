# SPDX-License-Identifier: Apache-2.0
"""The simulation program of the tests of studies: each task leaves its number in a file, and gives its square."""

import asyncio
from pathlib import Path

from simyard_adapter import ActionError, Connector, Context, action, parameter

PARAMETERS = [
    parameter("x", "number", required=True, unit="mm"),
    parameter("ledger", "string", default=""),
    parameter("gate", "string", default=""),
    parameter("milliseconds", "integer", default=0),
]
RESULT = [parameter("square", "number")]


class Squares(Connector):
    @action(mode="Async", parameters=PARAMETERS, result=RESULT, timeout_seconds=60, idempotent=True)
    async def square(self, context: Context, *, x: float, ledger: str, gate: str, milliseconds: int) -> dict:
        """Give the square of x; fail for negative numbers."""
        return await self._run(x, ledger, gate, milliseconds)

    @action(mode="Async", parameters=PARAMETERS, result=RESULT, timeout_seconds=60)
    async def once(self, context: Context, *, x: float, ledger: str, gate: str, milliseconds: int) -> dict:
        """Return the square of x; the action is not declared idempotent."""
        return await self._run(x, ledger, gate, milliseconds)

    @action(parameters=[], result=[parameter("pong", "integer")])
    async def ping(self, context: Context) -> dict:
        """Answer at once."""
        return {"pong": 1}

    async def _run(self, x: float, ledger: str, gate: str, milliseconds: int) -> dict:
        if ledger:
            note(ledger, x)
        while gate and not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - what it waits for is another process
            await asyncio.sleep(0.02)
        if milliseconds:
            await asyncio.sleep(milliseconds / 1000)
        if x < 0:
            raise ActionError("x is negative")
        return {"square": x * x}


def note(ledger: str, x: float) -> None:
    with Path(ledger).open("a") as file:
        file.write(f"{x}\n")
