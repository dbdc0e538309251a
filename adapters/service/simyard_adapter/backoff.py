"""How long to wait before trying again."""

from __future__ import annotations

import random

BACKOFF_FIRST_SECONDS = 0.2


def backoff_seconds(failures: int, last: float) -> float:
    """How long to wait after so many failures in a row: doubling, up to ``last``, and never the same for two."""
    return random.uniform(0.5, 1.0) * min(last, BACKOFF_FIRST_SECONDS * 2.0 ** min(failures, 16))  # noqa: S311
