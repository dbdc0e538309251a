# SPDX-License-Identifier: Apache-2.0
"""Handlers of WorkerPools. The reconciler is :class:`simyard.fleet.pools.reconciler.Pools`."""

from __future__ import annotations

from functools import partial
from typing import Any

import kopf

from simyard.api.names import WORKER_POOLS
from simyard.controllers.deletion import wait_until_gone
from simyard.controllers.leadership import Leadership


@kopf.on.delete(WORKER_POOLS.group, WORKER_POOLS.version, WORKER_POOLS.plural, id="machines")
async def tear_down(uid: str, memo: Leadership, **_: Any) -> None:
    """Wait until the pool's Workers, machines, broker user and queues are gone; then kopf removes the finalizer."""
    await wait_until_gone(partial(memo.fleet.pools.wait_until_torn_down, uid), memo, uid)
