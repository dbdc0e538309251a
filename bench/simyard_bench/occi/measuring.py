# SPDX-License-Identifier: Apache-2.0
"""Measure the rounds of a case and compute its row."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from simyard_bench import machine
from simyard_bench.occi import clients
from simyard_bench.occi.load import Load, Outcome, Request
from simyard_bench.occi.rows import Row
from simyard_bench.occi.servers import Frontends, Server
from simyard_bench.start import revision
from simyard_bench.world import World
from simyard_dev.progress import say

CONNECTIONS = 16
WARM_SHARE = 0.3
"""Duration of the phase before the measurement, as a share of the measured time."""

Round = tuple[Outcome, Outcome]
"""The outcomes of sequential requests over one connection (latency) and of concurrent ones (throughput, CPU)."""


@dataclass(frozen=True)
class Effort:
    """The number of rounds, and the duration of each in seconds."""

    rounds: int = 3
    seconds: float = 1.0


class Measuring:
    """The collector of measured ``rows``. ``workers`` and ``finished`` are the present numbers of both."""

    def __init__(self, world: World, frontends: Frontends, effort: Effort) -> None:
        self.rows: list[Row] = []
        self._effort = effort
        self.workers = self.finished = 0
        self._frontends = frontends
        self._machine = machine.describe()
        self._versions = world.versions()

    def case(
        self,
        case: str,
        server: Server,
        requests: Sequence[Request],
        *,
        bare: Server | None = None,
        connections: int = CONNECTIONS,
        times: float = 1,
    ) -> None:
        """Measure the requests in turn; in the same rounds, measure the yardstick with the first request.

        ``times`` multiplies the duration of the rounds.
        """

        def round_of(server: Server, requests: Sequence[Request]) -> Round:
            core = self._frontends.cores[-1]
            alone = clients.run(self._load(server, requests, 1, core, times))
            if connections == 1:
                return alone, alone
            return alone, clients.run(self._load(server, requests, connections, core, times))

        rounds, bare_rounds = [], []
        for _ in range(self._effort.rounds):
            rounds.append(round_of(server, requests))
            if bare is not None:
                bare_rounds.append(round_of(bare, requests[:1]))
        self.add(case, rounds, bare_rounds, connections=connections)

    def pairs(self, case: str, requests: Sequence[Request], count: int) -> None:
        """Measure ``count`` frontends, each with a client on its core. Each client begins with a different request."""

        def loads(connections: int) -> list[Load]:
            first = [len(requests) * number // count for number in range(count)]
            return [
                self._load(self._frontends.http(number), (*requests[place:], *requests[:place]), connections, core)
                for number, (place, core) in enumerate(zip(first, self._frontends.cores, strict=False))
            ]

        def together(connections: int) -> Outcome:
            return clients.run_together(loads(connections))

        self.add(case, [(together(1), together(CONNECTIONS)) for _ in range(self._effort.rounds)], frontends=count)

    def _load(self, server: Server, requests: Sequence[Request], connections: int, core: int, times: float = 1) -> Load:
        return Load(
            url=server.url,
            ca_file=server.ca_file,
            headers=self._frontends.access.headers,
            requests=tuple(requests),
            connections=connections,
            seconds=self._effort.seconds * times,
            warm_seconds=self._effort.seconds * WARM_SHARE,
            core=core,
            servers=(server.pid,),
            queue=server.queue,
        )

    def add(
        self,
        case: str,
        rounds: Sequence[Round],
        bare_rounds: Sequence[Round] = (),
        *,
        frontends: int = 1,
        connections: int = CONNECTIONS,
        visible_ms: float | None = None,
        messages: int | None = None,
    ) -> None:
        """Add one row."""
        alone, busy = _middle(rounds)
        bare_alone, bare_busy = _middle(bare_rounds) if bare_rounds else (None, None)
        row = Row(
            case=case,
            workers=self.workers,
            finished=self.finished,
            frontends=frontends,
            connections=connections,
            p50_ms=alone.p50_ms,
            p99_ms=alone.p99_ms,
            per_second=busy.per_second,
            cpu_us_per_request=busy.server_cpu_us,
            client_cpu_us_per_request=busy.client_cpu_us,
            rss_mib=round(self._frontends.peak_rss_mib(frontends), 1),
            body_bytes=busy.body_bytes,
            limit_p50_ms=_of(bare_alone, lambda bare: bare.p50_ms),
            limit_p99_ms=_of(bare_alone, lambda bare: bare.p99_ms),
            limit_per_second=_of(bare_busy, lambda bare: bare.per_second),
            limit_cpu_us_per_request=_of(bare_busy, lambda bare: bare.server_cpu_us),
            visible_ms=visible_ms,
            messages=messages,
            load_average=round(os.getloadavg()[0], 2),
            machine=self._machine,
            versions=self._versions,
            date=datetime.now(UTC).replace(microsecond=0),
            revision=revision(),
        )
        self.rows.append(row)
        _print_summary(row)


def _middle(rounds: Sequence[Round]) -> Round:
    alone, busy = zip(*rounds, strict=True)
    return clients.middle(alone), clients.middle(busy)


def _of(outcome: Outcome | None, figure: Callable[[Outcome], float]) -> float | None:
    return None if outcome is None else figure(outcome)


def _print_summary(row: Row) -> None:
    limit = f" (bare {row.limit_p50_ms:.3f} ms, {row.limit_cpu_us_per_request:.0f} us)" if row.limit_p50_ms else ""
    say(
        f"{row.case}, {row.workers} workers, {row.finished} finished, {row.frontends} frontends: p50 {row.p50_ms:.3f},"
        f" p99 {row.p99_ms:.3f} ms, {row.per_second:.0f}/s, {row.cpu_us_per_request:.0f} us{limit}, client"
        f" {row.client_cpu_us_per_request:.0f} us; {row.rss_mib:.0f} MiB, load {row.load_average}"
    )
