# SPDX-License-Identifier: Apache-2.0
# Copied from adapters/service/simyard_adapter by hack/client_copies.py (make generate). Do not edit.
"""The delay between retries, for the adapter and for the control plane."""

from __future__ import annotations

import random

FIRST_DELAY_SECONDS = 0.2
_MAX_DOUBLINGS = 16


def compute_delay(retries: int, first_seconds: float, max_seconds: float) -> float:
    """Return the delay before the next retry: the first one, doubled for each of the earlier ``retries``.

    The delay never exceeds ``max_seconds``.
    """
    return min(max_seconds, first_seconds * 2.0 ** min(retries, _MAX_DOUBLINGS))


def draw_delay(retries: int, max_seconds: float, first_seconds: float = FIRST_DELAY_SECONDS) -> float:
    """Return the delay of :func:`compute_delay`, times a random factor between 0.5 and 1.

    The factor keeps processes that failed at the same moment from retrying at the same moment.
    """
    return random.uniform(0.5, 1.0) * compute_delay(retries, first_seconds, max_seconds)  # noqa: S311
