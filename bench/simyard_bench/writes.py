# SPDX-License-Identifier: Apache-2.0
"""Count the writes to the API server in the operator's metrics and, independently, in the API server's own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from simyard.api import names
from simyard_bench.results import Writes

WRITES = frozenset({"post", "patch", "put", "delete", "deletecollection"})
LEASES = "leases"
_OURS = frozenset({names.GROUP, "events.k8s.io"})
_POLL_SECONDS = 0.5
Counts = Counter[tuple[str, str]]
"""Numbers of writes by resource and verb."""


@dataclass(frozen=True)
class Observed:
    """All writes so far: as the API server counts them, and as the operator does."""

    served: Counts
    told: Counts


def parse_server_writes(text: str) -> Counts:
    """Return the writes to our kinds, Events and Leases that the metrics of the API server show.

    The metrics do not name the writer. In this environment, other programs write few Leases and Events, and never our
    kinds, except that the benchmark changes the pool.
    """
    found: Counts = Counter()
    for sample in _family(text, "apiserver_request").samples:
        labels = sample.labels
        verb = {"apply": "patch"}.get(labels.get("verb", "").lower(), labels.get("verb", "").lower())
        group, resource = labels.get("group", ""), labels.get("resource", "")
        ours = group in _OURS or resource == LEASES or (not group and resource == "events")
        if sample.name.endswith("_total") and verb in WRITES and ours:
            found[resource, verb] += int(sample.value)
    return found


def parse_operator_writes(text: str) -> Counts:
    """Return the writes that the metrics of the operator show."""
    found: Counts = Counter()
    for sample in _family(text, "simyard_kube_requests").samples:
        if sample.name.endswith("_total") and sample.labels["verb"] in WRITES:
            found[sample.labels["resource"], sample.labels["verb"]] += int(sample.value)
    return found


def by_resource(counts: Counts, *, leases: bool = False) -> Writes:
    """Return the counts by resource and verb, as results store them, either without Leases or only of Leases."""
    result: Writes = {}
    for (resource, verb), count in sorted(counts.items()):
        if count and (resource == LEASES) == leases:
            result.setdefault(resource, {})[verb] = count
    return result


def total(writes: Writes) -> int:
    """Return the sum of all writes."""
    return sum(sum(verbs.values()) for verbs in writes.values())


def wait_quiet(observe: Callable[[], Counts], quiet_seconds: float, deadline_seconds: float) -> Counts:
    """Wait until only Leases were written for a while, and return all writes so far.

    Raises:
        TimeoutError: other writes do not stop.
    """
    deadline = time.monotonic() + deadline_seconds
    last, since = observe(), time.monotonic()
    while time.monotonic() - since < quiet_seconds:
        time.sleep(_POLL_SECONDS)
        now = observe()
        if by_resource(now) != by_resource(last):
            since = time.monotonic()
        last = now
        if time.monotonic() > deadline:
            raise TimeoutError(f"the operator still writes after {deadline_seconds:.0f} s")
    return last


def _family(text: str, name: str) -> Metric:
    # The API server has megabytes of metrics: only the lines of this family are parsed.
    lines = [line for line in text.splitlines() if line.startswith((f"# TYPE {name}_total", f"{name}_total"))]
    families = text_string_to_metric_families("\n".join([*lines, ""]))
    return next(iter(families), Metric(name, "", "counter"))
