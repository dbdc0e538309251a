# SPDX-License-Identifier: Apache-2.0
"""Simulation program that only reads and writes files, so that the benchmark measures their transfers."""

import time
from pathlib import Path

from simyard_adapter import Connector, Context, action, parameter

LONG = 3600


class Program(Connector):
    """A program whose results contain the time at which it began or ended."""

    @action(
        mode="Async",
        timeout_seconds=LONG,
        parameters=[parameter("input", "file", required=True)],
        result=[parameter("began", "number")],
    )
    def take(self, context: Context, *, input: Path) -> dict[str, float]:  # noqa: A002 - the name of the parameter
        """Return the time at which the worker had downloaded the file."""
        return {"began": time.time()}

    @action(
        mode="Async",
        timeout_seconds=LONG,
        parameters=[parameter("path", "string", required=True)],
        result=[parameter("output", "file"), parameter("ended", "number")],
    )
    def give(self, context: Context, *, path: str) -> dict[str, object]:
        """Return a file of this machine, and the present time."""
        return {"output": Path(path), "ended": time.time()}
