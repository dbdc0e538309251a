# SPDX-License-Identifier: Apache-2.0
"""Metrics of messaging; their names begin with ``simyard_broker_``."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

CONNECTED = Gauge("simyard_broker_connected", "1 while the connection to the broker is in use.", ["connection"])
REQUESTS = Counter(
    "simyard_broker_requests_total",
    "Requests to workers, by kind and outcome: ok, cancelled, or the error's name.",
    ["kind", "outcome"],
)
REQUEST_SECONDS = Histogram(
    "simyard_broker_request_seconds",
    "Time from a request to its reply or error.",
    ["kind"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
REQUESTS_RESENT = Counter(
    "simyard_broker_requests_sent_again_total",
    "Requests that were sent again, because a worker returned them before it began, for example a busy one.",
)
EVENTS = Counter("simyard_broker_events_total", "Events received from workers.", ["kind"])
EVENTS_REFUSED = Counter(
    "simyard_broker_events_refused_total",
    "Events of workers that were not handled, by reason: too large, too deep, no JSON, not vouched for, failed.",
    ["reason"],
)
EVENTS_DEFERRED = Counter(
    "simyard_broker_events_deferred_total",
    "Events moved to the overflow lane because their sender had more of them in the window than its share.",
)
VALUES_REFUSED = Counter(
    "simyard_broker_values_refused_total", "Values of attributes that were refused, by reason.", ["reason"]
)
REPLIES_REFUSED = Counter(
    "simyard_broker_replies_refused_total",
    "Replies dropped: no request waits for them, they are from the wrong user, or they cannot be read.",
)
MESSAGES_BOUNDED = Gauge(
    "simyard_broker_messages_bounded", "1 if the broker's max_message_size is set as docs/limits.md says; 0 if not."
)
CONSUMERS = Gauge("simyard_broker_worker_consumers", "Worker queues that have a consumer; NaN while unknown.")
