# SPDX-License-Identifier: Apache-2.0
"""Metrics of the platform's own requests to the file store."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

DURATION = Histogram(
    "simyard_file_store_request_duration_seconds",
    "The time of the platform's own requests to the file store. The bytes of files do not pass through the platform.",
    ["operation"],
    buckets=(0.005, 0.02, 0.1, 0.5, 2, 15),
)
ERRORS = Counter(
    "simyard_file_store_errors_total",
    "The platform's own requests to the file store that failed: without an answer, or refused.",
    ["operation"],
)
