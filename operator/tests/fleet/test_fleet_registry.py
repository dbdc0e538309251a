# SPDX-License-Identifier: Apache-2.0
"""The broker user that may speak for a worker, and the parts of objects that stay in the operator's memory."""

from __future__ import annotations

from typing import Any, cast

import pytest
from scripted_site import versions

from simyard.api import names
from simyard.api.base import Json
from simyard.api.worker import Worker
from simyard.fleet.registry import Registry
from simyard_sites.kubernetes.client import KubeClient

OWN = {names.ANNOTATION_REQUESTED: "2026-01-01T00:00:00+00:00"}
SPECS: dict[str, Json] = {
    "workers": {"serviceRef": {"name": "beam"}, "site": "local"},
    "pools": {"serviceRef": {"name": "beam"}, "replicas": 1},
    "actions": {"target": {"kind": "Worker", "name": "w"}, "action": "solve"},
}


async def test_only_a_worker_s_own_broker_user_speaks_for_it_also_when_it_is_gone() -> None:
    registry = Registry(cast(KubeClient, None))
    owner = {"kind": "WorkerPool", "name": "pool", "uid": "a", "controller": True}
    metadata = {"name": "pool-0", "namespace": "ns", "uid": "w", "resourceVersion": "1", "ownerReferences": [owner]}
    spec = {"serviceRef": {"name": "service"}, "site": "site"}
    worker = registry.workers.learn({"metadata": metadata, "spec": spec})
    assert isinstance(worker, Worker)
    for _ in ("while it is there", "when it is gone"):
        assert registry.find_sender("w") == "pool-a"
        registry.workers.forget(worker)
    assert registry.find_sender("never-seen") == ""


@pytest.mark.parametrize("kind", SPECS)
def test_what_users_hang_on_an_object_does_not_fill_the_memory(kind: str) -> None:
    cache = getattr(Registry(cast(KubeClient, None)), kind)
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"c{number}", "uid": "u"} for number in range(9)]
    metadata: Json = {
        "name": "a",
        "namespace": "ns",
        "uid": kind,
        "resourceVersion": str(next(versions)),
        "labels": {f"{names.GROUP}/{number}": "x" for number in range(9)} | {names.LABEL_REVISION: "1"},
        "annotations": {"notes": "x" * 200_000, names.ANNOTATION_VERSION: "x" * 10_000} | OWN,
        "finalizers": [f"example.org/{number}" for number in range(9)] + [names.FINALIZER],
        "ownerReferences": [*owners, {**owners[0], "name": "controls", "controller": True}],
    }
    kept: Any = cache.learn({"metadata": metadata, "spec": SPECS[kind]}).metadata
    assert kept.annotations == OWN
    assert kept.labels == {names.LABEL_REVISION: "1"}
    assert kept.finalizers == [names.FINALIZER]
    assert kept.controller is not None
    assert [owner.name for owner in kept.owner_references] == ["controls"]
