# SPDX-License-Identifier: Apache-2.0
"""Defines the metrics of a frontend."""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import REGISTRY, Counter, Gauge, Summary
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from simyard.api.names import METRIC_OCCI_REFRESH_SECONDS, METRIC_OCCI_REQUEST_SECONDS

IN_FLIGHT = Gauge("simyard_occi_requests_in_flight", "OCCI requests that are being answered.", ["transport"])
TOKEN_REVIEWS = Counter(
    "simyard_occi_token_reviews_total",
    "Reviews of tokens: asked of the Kubernetes API, or joined to a review under way.",
    ["source"],
)
RENDERINGS = Counter(
    "simyard_occi_renderings_total",
    "Entities, collections and models that were rendered, because the cache did not have them.",
    ["of"],
)
RENDERING_BYTES = Gauge("simyard_occi_rendering_bytes", "Bytes of the renderings in the cache.", ["of"])

REFRESHES = Summary(
    METRIC_OCCI_REFRESH_SECONDS,
    "Time for which reads that asked for fresh values waited for adapters; part of their duration.",
)

BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper bounds of handling times, in seconds."""
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "other"})
_LABELS = ("transport", "method", "code")


class Transport(enum.StrEnum):
    """The protocol that carries requests."""

    HTTP = "http"
    AMQP = "amqp"

    __hash__ = str.__hash__  # a fast hash, because the hash of enumerations is slow


class _Times:
    """The histogram of requests with the same labels.

    The last item of ``counts`` is for durations above all buckets.
    """

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0


class _Requests(Collector):
    """The counters and histograms of requests.

    Every request changes them, so they must be fast. Only the thread of the event loop uses them, so they need no
    locks, which the metrics of prometheus-client have.
    """

    def __init__(self) -> None:
        self.times: dict[tuple[Transport, str, int], _Times] = {}

    def collect(self) -> Iterator[Metric]:
        """Return the metrics for Prometheus."""
        requests = CounterMetricFamily(
            "simyard_occi_requests",
            "OCCI requests answered, by transport, method and HTTP status code.",
            labels=_LABELS,
        )
        durations = HistogramMetricFamily(
            METRIC_OCCI_REQUEST_SECONDS,
            "Time from a request's arrival to its answer, by transport, method and HTTP status code.",
            labels=_LABELS,
        )
        for (transport, method, code), times in sorted(self.times.items()):
            labels = (transport.value, method, str(code))
            bounds = [*(str(float(bound)) for bound in BUCKETS), "+Inf"]
            sums = [sum(times.counts[: place + 1]) for place in range(len(bounds))]
            requests.add_metric(labels, sums[-1])
            durations.add_metric(labels, list(zip(bounds, sums, strict=True)), times.seconds)
        yield requests
        yield durations


_requests = _Requests()
REGISTRY.register(_requests)


def count_request(transport: Transport, method: str, code: int, seconds: float) -> None:
    """Count a request with its duration. An unknown method gets a common label, so clients cannot create labels."""
    key = (transport, method, code)
    times = _requests.times.get(key)
    if times is None:
        if method not in _METHODS:
            return count_request(transport, "other", code, seconds)
        times = _requests.times[key] = _Times()
    times.counts[bisect_left(BUCKETS, seconds)] += 1
    times.seconds += seconds
    return None
