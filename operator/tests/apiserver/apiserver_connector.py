# SPDX-License-Identifier: Apache-2.0
"""The simulation program of these tests: a connector whose actions end in every way an action can end."""

import asyncio

from simyard_adapter import ActionError, Connector, Context, ParameterError, action, attribute, parameter


class Program(Connector):
    state = attribute("string", default="idle")
    load = attribute("number", unit="N", default=10, minimum=0, mutable=True)

    @action(
        parameters=[
            parameter("length", "number", unit="mm", default=1, minimum=0, maximum=1000),
            parameter("label", "string", default="beam", max_length=1_000_000),
        ],
        result=[parameter("twice", "number")],
    )
    def solve(self, context: Context, *, length: float, label: str) -> dict:
        """Double a length."""
        self.log.info("solving %s", length)
        return {"twice": 2 * length}

    @action()
    def refuse(self, context: Context) -> None:
        """Fail like a simulation program."""
        raise ActionError("*ERROR in e_c3d: nonpositive jacobian")

    @action(parameters=[parameter("deck", "string", default="")])
    def inspect_deck(self, context: Context, *, deck: str) -> None:
        """Refuse a parameter for a reason that no declaration can express."""
        raise ParameterError("parameters.deck", "has no *STEP")

    @action()
    def crash(self, context: Context) -> None:
        """Fail like a connector with a defect."""
        raise ZeroDivisionError("division by zero")

    @action(timeout_seconds=1)
    async def overrun(self, context: Context) -> None:
        """Run for longer than the declared timeout."""
        self.state = "overrunning"
        try:
            await asyncio.sleep(60)
        finally:
            self.state = "idle"

    @action(mode="Async", timeout_seconds=3600)
    async def optimise(self, context: Context) -> None:
        """Run for a long time."""
        await asyncio.sleep(0)
