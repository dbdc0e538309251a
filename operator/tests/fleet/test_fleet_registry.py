"""Whose word counts for a worker."""

from __future__ import annotations

from typing import cast

from simyard.api.worker import Worker
from simyard.fleet.registry import Registry
from simyard_sites.kubernetes.client import KubeClient


async def test_only_a_worker_s_own_broker_user_speaks_for_it_also_when_it_is_gone() -> None:
    registry = Registry(cast(KubeClient, None))
    owner = {"kind": "WorkerPool", "name": "pool", "uid": "a", "controller": True}
    metadata = {"name": "pool-0", "namespace": "ns", "uid": "w", "resourceVersion": "1", "ownerReferences": [owner]}
    spec = {"serviceRef": {"name": "service"}, "site": "site"}
    worker = registry.workers.learn({"metadata": metadata, "spec": spec})
    assert isinstance(worker, Worker)
    for _ in ("while it is there", "when it is gone"):
        assert registry.sender("w") == "pool-a"
        registry.workers.forget(worker)
    assert registry.sender("never-seen") == ""
