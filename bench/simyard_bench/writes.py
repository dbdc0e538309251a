"""Who wrote what to the API server: from the operator's metrics and, independently, from the API server's own."""

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
"""Writes by resource and verb."""


@dataclass(frozen=True)
class Observed:
    """All writes so far: as the API server counts them, and as the operator tells."""

    served: Counts
    told: Counts


def served(text: str) -> Counts:
    """The writes to our kinds, events and Leases that the API server's metrics show.

    It does not say who wrote. Others write Leases and events rarely here, and our kinds never, but for the one change
    of the pool that the benchmark itself makes.
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


def told(text: str) -> Counts:
    """The writes that the operator's metrics show."""
    found: Counts = Counter()
    for sample in _family(text, "simyard_kube_requests").samples:
        if sample.name.endswith("_total") and sample.labels["verb"] in WRITES:
            found[sample.labels["resource"], sample.labels["verb"]] += int(sample.value)
    return found


def by_resource(counts: Counts, *, leases: bool = False) -> Writes:
    """The same for the results: without Leases, or nothing but these."""
    result: Writes = {}
    for (resource, verb), count in sorted(counts.items()):
        if count and (resource == LEASES) == leases:
            result.setdefault(resource, {})[verb] = count
    return result


def total(writes: Writes) -> int:
    """How many there are in all."""
    return sum(sum(verbs.values()) for verbs in writes.values())


def wait_quiet(observe: Callable[[], Counts], quiet_seconds: float, deadline_seconds: float) -> Counts:
    """Wait until nothing but Leases was written for a while, and give the writes so far.

    Raises:
        TimeoutError: it goes on writing.
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
    # The API server's metrics are megabytes: only the lines that count are parsed.
    lines = [line for line in text.splitlines() if line.startswith((f"# TYPE {name}_total", f"{name}_total"))]
    families = text_string_to_metric_families("\n".join([*lines, ""]))
    return next(iter(families), Metric(name, "", "counter"))
