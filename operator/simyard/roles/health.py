"""Health and metrics of the operator over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, Gauge, Summary, generate_latest

from simyard.api.names import METRIC_LOOP_LATE_SECONDS

LAG = Gauge("simyard_loop_lag_seconds", "How late the event loop ran its newest timer.")
LATE = Summary(METRIC_LOOP_LATE_SECONDS, "How late the event loop ran its timers: requests wait as long to be begun.")
LAG_INTERVAL_SECONDS = 0.5
MOST_LAG_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be so; ``detail`` says how it is."""

    name: str
    good: bool
    detail: str


Checks = Callable[[], list[Check]]
"""What makes the process ready."""


class LoopLag:
    """Measures how late timers run: a loop that is late serves nobody in time."""

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
async def serving(bind: str, port: int, ready: Checks) -> AsyncIterator[None]:
    """Serve ``/livez``, ``/readyz`` and ``/metrics`` meanwhile."""
    lag = LoopLag()

    async def livez(_: web.Request) -> web.Response:
        return _answer([Check("loop", lag.seconds < MOST_LAG_SECONDS, f"lag {lag.seconds:.3f} s")])

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


def _answer(checks: list[Check]) -> web.Response:
    """200 or 503, with one line for each check as kube-apiserver writes it."""
    good = all(check.good for check in checks)
    lines = [f"[{'+' if check.good else '-'}]{check.name}: {check.detail}" for check in checks]
    return web.Response(status=200 if good else 503, text="\n".join([*lines, "ok\n" if good else "failed\n"]))
