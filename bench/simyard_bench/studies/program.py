# SPDX-License-Identifier: Apache-2.0
"""Simulation program of the benchmark of studies: its action returns at once."""

from simyard_adapter import Connector, Context, action, parameter


class Program(Connector):
    """A program with one action."""

    @action(
        mode="Async",
        parameters=[parameter("x", "number", required=True)],
        result=[parameter("y", "number")],
        idempotent=True,
        timeout_seconds=60,
    )
    async def run(self, context: Context, *, x: float) -> dict[str, float]:
        """Return the parameter."""
        return {"y": x}
