# SPDX-License-Identifier: Apache-2.0
"""Defines the metrics that the aggregated apiserver and the OCCI frontends share."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

REVIEWS = Counter(
    "simyard_apiserver_access_reviews_total",
    "Access reviews of users' calls: asked, joined to an equal review in progress, or answered from the cache.",
    ["source"],
)
ATTRIBUTE_WORKERS = Gauge(
    "simyard_apiserver_attribute_workers", "Workers whose attributes are known from their own messages."
)
