# SPDX-License-Identifier: Apache-2.0
"""HTTP server for the health and the metrics of a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, Gauge, Summary, generate_latest

from simyard.api.names import METRIC_LOOP_LATE_SECONDS
from simyard.serving.checks import HealthCheck, format_report

LAG = Gauge("simyard_loop_lag_seconds", "The delay of the newest timer of the event loop.")
LATE = Summary(
    METRIC_LOOP_LATE_SECONDS, "The delay of timers of the event loop: a request waits as long until it is handled."
)
LAG_INTERVAL_SECONDS = 0.5
MAX_LAG_SECONDS = 30.0


RunChecks = Callable[[], list[HealthCheck]]
"""Function that returns the checks on which the readiness of the process depends."""


class LoopLag:
    """Meter of the event loop's delay: it measures how late the loop runs a timer, and so how late it answers."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def run(self) -> NoReturn:
        """Measure until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + LAG_INTERVAL_SECONDS
            await asyncio.sleep(LAG_INTERVAL_SECONDS)
            self.seconds = max(0.0, clock() - due)
            LAG.set(self.seconds)
            LATE.observe(self.seconds)


@asynccontextmanager
async def serve_health(bind: str, port: int, ready: RunChecks) -> AsyncIterator[None]:
    """Serve ``/livez``, ``/readyz`` and ``/metrics`` while the block of the ``with`` statement runs."""
    lag = LoopLag()

    async def livez(_: web.Request) -> web.Response:
        return _answer([HealthCheck("loop", lag.seconds < MAX_LAG_SECONDS, f"lag {lag.seconds:.3f} s")])

    async def readyz(_: web.Request) -> web.Response:
        return _answer(ready())

    async def metrics(_: web.Request) -> web.Response:
        ready()
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    measuring = asyncio.create_task(lag.run())
    try:
        await web.TCPSite(runner, bind, port).start()
        yield
    finally:
        measuring.cancel()
        await runner.cleanup()


def _answer(checks: list[HealthCheck]) -> web.Response:
    """Return a response with one line for each check, in kube-apiserver's form; the status is 503 if a check failed."""
    good, text = format_report(checks)
    return web.Response(status=200 if good else 503, text=text)
