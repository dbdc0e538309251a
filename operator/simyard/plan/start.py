"""The timings of a pool's newest start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from simyard.api.worker import Worker
from simyard.api.worker_pool import PoolStart
from simyard.plan.times import milliseconds_between
from simyard.plan.worker import is_ready, requested_time


def begin_start(previous: PoolStart | None, *, spec_changed: bool, missing: int, now: datetime) -> PoolStart | None:
    """A change that asks for more workers begins a start; the replacement of a failed worker does not."""
    if missing > 0 and (spec_changed or previous is None):
        return PoolStart(requested_time=now, workers=missing)
    return previous


def finish_start(start: PoolStart | None, workers: Sequence[Worker], desired: int) -> PoolStart | None:
    """With T_boot and T_r once as many workers as desired are ready."""
    if start is None or start.registered_milliseconds is not None or desired == 0 or len(workers) < desired:
        return start
    if not all(is_ready(worker) for worker in workers):
        return start
    asked = start.requested_time
    started = [item.status.stages for item in workers if (requested_time(item) or asked) >= asked]
    running = [stages.running for stages in started if stages.running is not None]
    registered = [stages.registered for stages in started if stages.registered is not None]
    if not registered:
        return start
    return start.model_copy(
        update={
            "boot_milliseconds": milliseconds_between(asked, max(running)) if running else None,
            "registered_milliseconds": milliseconds_between(asked, max(registered)),
        }
    )
