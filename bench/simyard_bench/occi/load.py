# SPDX-License-Identifier: Apache-2.0
"""Define loads and outcomes, which the benchmark and its client processes exchange as JSON."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Self

SERVING = "serving"
"""The line that a yardstick prints when it accepts requests."""
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class Request:
    """A request; ``headers`` are added to the headers of the load."""

    target: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


@dataclass(frozen=True)
class Load:
    """A load: a client sends the requests in turn over ``connections``, each when the previous one is answered.

    Attributes:
        url: URL of the server without a path; URL of the broker for AMQP.
        ca_file: the CA that the client trusts.
        headers: headers of every request.
        seconds: measured time, after ``warm_seconds`` that do not count.
        core: the CPU core of the client.
        servers: pids of the processes whose CPU time is measured.
        queue: queue of the server; empty for HTTP.
    """

    url: str
    ca_file: str
    headers: Mapping[str, str]
    requests: tuple[Request, ...]
    connections: int
    seconds: float
    warm_seconds: float
    core: int
    servers: tuple[int, ...]
    queue: str = ""

    @classmethod
    def read(cls) -> Self:
        """Return the load that standard input describes."""
        given = json.load(sys.stdin)
        return cls(**{**given, "requests": tuple(Request(**item) for item in given["requests"])})

    def to_json(self) -> str:
        """Return the text for the standard input of a client."""
        return json.dumps(asdict(self))

    def cycle_requests(self) -> Iterator[Request]:
        """Return the requests in turn, without end."""
        return cycle(self.requests)


@dataclass(frozen=True)
class Outcome:
    """The figures of the measured time.

    Attributes:
        p50_ms, p99_ms: time from the first byte of a request to the last byte of its response, as the client sees it.
        body_bytes: size of the last response.
        server_cpu_us, client_cpu_us: CPU time per request.
    """

    requests: int
    p50_ms: float
    p99_ms: float
    per_second: float
    body_bytes: int
    server_cpu_us: float
    client_cpu_us: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the outcome that a client has written."""
        return cls(**json.loads(text))


class Tally:
    """A counter of answers. The outcome contains the answers between :meth:`begin` and :meth:`end`."""

    def __init__(self, servers: tuple[int, ...]) -> None:
        self.body_bytes = 0
        self._servers = servers
        self._times: list[float] = []

    def count(self, seconds: float, body_bytes: int) -> None:
        """Count one answer."""
        self._times.append(seconds)
        self.body_bytes = body_bytes

    @property
    def answers(self) -> int:
        """The number of answers since :meth:`begin`."""
        return len(self._times)

    def begin(self) -> None:
        """Set the counter to 0 and begin to measure."""
        self._times.clear()
        self._began, self._client, self._server = time.perf_counter(), time.process_time(), self._server_seconds()

    def end(self) -> Outcome:
        """Return the outcome since :meth:`begin`."""
        seconds = time.perf_counter() - self._began
        client, server = time.process_time() - self._client, self._server_seconds() - self._server
        times = sorted(self._times)
        count = len(times)
        return Outcome(
            requests=count,
            p50_ms=round(1000 * quantile(times, 0.5), 4),
            p99_ms=round(1000 * quantile(times, 0.99), 4),
            per_second=round(count / seconds, 2),
            body_bytes=self.body_bytes,
            server_cpu_us=round(1e6 * server / count, 2),
            client_cpu_us=round(1e6 * client / count, 2),
        )

    def _server_seconds(self) -> float:
        return sum(map(cpu_seconds, self._servers))


def quantile(times: list[float], share: float) -> float:
    """Return the quantile of sorted times: the smallest time that is not exceeded by this share of them."""
    return times[max(0, math.ceil(share * len(times)) - 1)]


def cpu_seconds(pid: int) -> float:
    """Return the exact CPU seconds of all living threads of a process; ``stat`` has only ticks of 10 ms."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def pin(pid: int, core: int) -> None:
    """Pin all threads of a process (0: this one) to a core."""
    for task in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})


async def measure(load: Load, tally: Tally, failed: asyncio.Future[None]) -> Outcome:
    """Measure a running load for its time; continue until there is at least one answer.

    Raises:
        RuntimeError: a connection failed; ``failed`` has the reason.
        TimeoutError: there was no answer.
    """
    await _wait(failed, load.warm_seconds)
    tally.begin()
    await _wait(failed, load.seconds)
    async with asyncio.timeout(_ANSWER_SECONDS):
        while not tally.answers:
            await _wait(failed, 0.1)
    return tally.end()


async def _wait(failed: asyncio.Future[None], seconds: float) -> None:
    done, _ = await asyncio.wait([failed], timeout=seconds)
    for future in done:
        future.result()
