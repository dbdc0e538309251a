# SPDX-License-Identifier: Apache-2.0
"""Call the platform without pause from a pod, and count the runs that workers report.

The observer calls the actions of a pool: ``count`` as ServiceActions (each is sent until the API server has it) and
``tally`` through the aggregated API (once). It also reads the OCCI frontends. ``GET /report`` returns the counts,
``POST /stop`` ends the calls; workers POST ``/begun/KEY/RUN`` and ``/ended/KEY/RUN`` (see tally.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError
from simyard_sites.kubernetes.resource import Resource

ACTIONS = Resource("simyard.dev", "v1alpha1", "serviceactions", "ServiceAction")
SUBRESOURCES = "/apis/subresources.simyard.dev/v1alpha1"
PORT = 8000
TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
MAX_FAILURES = 200


@dataclass
class Answers:
    """The results of one kind of call; ``longest_gap`` is the longest time between two good answers, in seconds."""

    good: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    last_good: float = 0.0
    longest_gap: float = 0.0

    def succeed(self) -> None:
        now = time.time()
        if self.last_good:
            self.longest_gap = max(self.longest_gap, now - self.last_good)
        self.good, self.last_good = self.good + 1, now

    def fail(self, why: str) -> None:
        known = why[:200]
        self.bad[known if known in self.bad or len(self.bad) < MAX_FAILURES else "others"] += 1

    def to_json(self) -> dict[str, Any]:
        gap = max(self.longest_gap, time.time() - self.last_good if self.last_good else 0.0)
        return {"good": self.good, "bad": dict(self.bad), "longestGap": round(gap, 2)}


class Observer:
    """The calls, and the tally of the runs of workers."""

    def __init__(self, client: KubeClient, settings: dict[str, Any]) -> None:
        self._client = client
        self._namespace: str = settings["namespace"]
        self._pool: str = settings["pool"]
        self._seconds: float = settings["seconds"]
        self._pauses: dict[str, float] = settings["pauses"]
        self._occi: str = settings["occi"]
        self._tls = ssl.create_default_context(cadata=settings["ca"]) if self._occi else None
        self.accepted: list[str] = []
        self.answers: dict[str, Answers] = defaultdict(Answers)
        self.begun: dict[str, set[str]] = defaultdict(set)
        self.ended: dict[str, set[str]] = defaultdict(set)
        self.sync_good: list[str] = []
        self.sync_sent: list[str] = []
        self.stopped = asyncio.Event()
        self._count = 0

    async def run(self) -> None:
        """Call until stopped."""
        calls = {"async": self._async, "sync": self._sync, **({"occi": self._read} if self._occi else {})}
        async with asyncio.TaskGroup() as group:
            for kind, call in calls.items():
                group.create_task(self._repeat(kind, call))

    async def _repeat(self, kind: str, call: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.TaskGroup() as group:
            under_way: set[asyncio.Task[None]] = set()
            while not self.stopped.is_set():
                if len(under_way) < 20:
                    task = group.create_task(self._once(kind, call))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                try:
                    await asyncio.wait_for(self.stopped.wait(), self._pauses[kind])
                except TimeoutError:
                    continue

    async def _once(self, kind: str, call: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(60):
                await call()
        except (ApiError, aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self.answers[kind].fail(f"{type(error).__name__}: {error}")
        else:
            self.answers[kind].succeed()

    def _key(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    async def _async(self) -> None:
        name = self._key("async")
        spec = {
            "target": {"kind": "WorkerPool", "name": self._pool},
            "action": "count",
            "parameters": {"key": name, "seconds": self._seconds},
        }
        body = {
            "apiVersion": "simyard.dev/v1alpha1",
            "kind": "ServiceAction",
            "metadata": {"name": name, "namespace": self._namespace},
            "spec": spec,
        }
        deadline = time.monotonic() + 50
        while True:
            try:
                await self._client.create(ACTIONS, body, self._namespace)
                break
            except AlreadyExistsError:  # the object was stored, and the answer was lost
                break
            except ApiError as error:
                self.answers["async refused"].fail(f"{type(error).__name__}: {error}")
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.5)
        self.accepted.append(name)

    async def _sync(self) -> None:
        key = self._key("sync")
        path = f"{SUBRESOURCES}/namespaces/{self._namespace}/workerpools/{self._pool}/actions/tally"
        self.sync_sent.append(key)
        await self._client.request("POST", path, body={"parameters": {"key": key, "seconds": 0}})
        self.sync_good.append(key)

    async def _read(self) -> None:
        token = TOKEN.read_text()  # noqa: ASYNC240 - it is in memory, and renewed now and then
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/uri-list"}
        connector = aiohttp.TCPConnector(ssl=self._tls or True, force_close=True)
        timeout = aiohttp.ClientTimeout(total=5)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get(f"{self._occi}/compute/", headers=headers) as answer,
        ):
            text = await answer.text()
            if answer.status != 200:
                raise ValueError(f"{answer.status} {text[:120]}")

    def report(self) -> dict[str, Any]:
        """Return the counts so far."""
        return {
            "now": time.time(),
            "accepted": self.accepted,
            "syncSent": self.sync_sent,
            "syncGood": self.sync_good,
            "answers": {kind: answers.to_json() for kind, answers in self.answers.items()},
            "begun": {key: sorted(runs) for key, runs in self.begun.items()},
            "ended": {key: sorted(runs) for key, runs in self.ended.items()},
        }

    def forget_gaps(self) -> None:
        """Measure the gaps anew."""
        for answers in self.answers.values():
            answers.longest_gap, answers.bad = 0.0, Counter()


async def main() -> None:
    settings = json.loads(os.environ["OBSERVER"])
    async with await KubeClient.connect() as client:
        observer = Observer(client, settings)

        async def noted(request: web.Request) -> web.Response:
            tally = observer.begun if request.match_info["what"] == "begun" else observer.ended
            tally[request.match_info["key"]].add(request.match_info["run"])
            return web.Response()

        async def report(_: web.Request) -> web.Response:
            return web.json_response(observer.report())

        async def stop(_: web.Request) -> web.Response:
            observer.stopped.set()
            return web.Response()

        async def mark(_: web.Request) -> web.Response:
            observer.forget_gaps()
            return web.Response()

        application = web.Application()
        application.add_routes(
            [
                web.post("/{what:begun|ended}/{key}/{run}", noted),
                web.get("/report", report),
                web.post("/stop", stop),
                web.post("/mark", mark),
            ]
        )
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", PORT).start()
        await observer.run()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
