# SPDX-License-Identifier: Apache-2.0
"""Measure the memory that ServiceActions occupy in the operator.

python hack/actions_memory.py COUNT BYTES [--whole]
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import cast

import orjson

from simyard.api.base import Json
from simyard.api.names import SERVICE_ACTIONS
from simyard.api.service_action import ServiceAction
from simyard.fleet.registry import Registry
from simyard.kube.cache import Cache
from simyard_sites.kubernetes.client import KubeClient


def read_rss_mib() -> float:
    """Return the resident memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def make_action(number: int, size: int) -> bytes:
    """Return a finished ServiceAction as the API server sends it; parameters and result share its size equally."""
    condition = {"type": "Complete", "status": "True", "reason": "Succeeded", "message": ""}
    metadata = {"name": f"pool-solve-{number:08x}", "namespace": "ns", "uid": f"{number:036x}"}
    body: Json = {"rows": [{"node": row, "force": str(row)} for row in range(size // 60)]}
    conditions = [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    status = {"result": body, "worker": "pool-0", "workerUid": "u" * 36, "conditions": conditions}
    spec = {"target": {"kind": "WorkerPool", "name": "pool"}, "action": "solve", "parameters": body}
    return orjson.dumps({"metadata": {**metadata, "resourceVersion": str(number + 1)}, "spec": spec, "status": status})


async def main(count: int, size: int, *, whole: bool) -> None:
    """Fill the cache and print the figures; with ``whole``, the cache keeps all fields of each object."""
    client = cast(KubeClient, None)
    cache = Cache(client, SERVICE_ACTIONS, ServiceAction.model_validate) if whole else Registry(client).actions
    before = read_rss_mib()
    for number in range(count):
        cache.learn(orjson.loads(make_action(number, size)))
    grown = read_rss_mib() - before
    print(f"{count} actions of {size} bytes: {grown:.0f} MiB, {grown * 1024 / count:.1f} KiB each")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), whole="--whole" in sys.argv))
