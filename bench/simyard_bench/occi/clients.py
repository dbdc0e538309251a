# SPDX-License-Identifier: Apache-2.0
"""Run one or several client processes over HTTP or AMQP."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from simyard_bench.modules import command, environment
from simyard_bench.occi import amqp_client, http_client
from simyard_bench.occi.load import Load, Outcome
from simyard_dev.errors import SetupError

CLIENT_SECONDS = 120.0
_FIGURES = ("p50_ms", "p99_ms", "per_second", "server_cpu_us", "client_cpu_us")


def run(load: Load) -> Outcome:
    """Run a client process for a load and return its outcome; a load with a queue is sent over AMQP.

    Raises:
        SetupError: the client failed; the message contains its error output.
    """
    client = amqp_client if load.queue else http_client
    try:
        done = subprocess.run(
            command(client),
            input=load.to_json(),
            capture_output=True,
            text=True,
            env=environment(),
            timeout=CLIENT_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise SetupError(f"the client {client.__name__} failed: {error.stderr[-2000:]}") from None
    return Outcome.parse(done.stdout)


def run_together(loads: Sequence[Load]) -> Outcome:
    """Run several clients at once; return the outcome of all together, with the largest of their 99th percentiles."""
    with ThreadPoolExecutor(len(loads)) as executor:
        outcomes = list(executor.map(run, loads))
    requests = sum(outcome.requests for outcome in outcomes)

    def mean(figure: Callable[[Outcome], float]) -> float:
        return sum(figure(outcome) * outcome.requests for outcome in outcomes) / requests

    return Outcome(
        requests=requests,
        p50_ms=mean(lambda outcome: outcome.p50_ms),
        p99_ms=max(outcome.p99_ms for outcome in outcomes),
        per_second=sum(outcome.per_second for outcome in outcomes),
        body_bytes=outcomes[0].body_bytes,
        server_cpu_us=mean(lambda outcome: outcome.server_cpu_us),
        client_cpu_us=mean(lambda outcome: outcome.client_cpu_us),
    )


def middle(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the median of each figure over several rounds."""
    figures = {name: round(median(getattr(outcome, name) for outcome in outcomes), 4) for name in _FIGURES}
    return Outcome(
        requests=sum(outcome.requests for outcome in outcomes), body_bytes=outcomes[-1].body_bytes, **figures
    )
