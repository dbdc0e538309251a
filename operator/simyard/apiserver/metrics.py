# SPDX-License-Identifier: Apache-2.0
"""Metrics of the aggregated apiserver."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter(
    "simyard_apiserver_requests_total",
    "Requests answered, by verb, resource, kind of subresource and HTTP status code.",
    ["verb", "resource", "subresource", "code"],
)
DURATION = Histogram(
    "simyard_apiserver_request_duration_seconds",
    "Time from a request's first byte to its answer, waiting for workers included.",
    ["verb", "resource", "subresource"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60),
)
IN_FLIGHT = Gauge("simyard_apiserver_requests_in_flight", "Requests in progress.")
