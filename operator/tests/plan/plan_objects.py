# SPDX-License-Identifier: Apache-2.0
"""Objects and observations for the tests of plans, as short as they can be said."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from simyard.api.base import Condition
from simyard.api.cloud_site import CloudSite
from simyard.api.service_action import ServiceAction
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.plan.placement import SiteState
from simyard.plan.service import PublishedService, read_service
from simyard_sites.base import Machine, MachineState, Owner, Stage

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
_uids = itertools.count(1)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def metadata(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "ns", "uid": f"uid-{next(_uids)}", "generation": 1, **fields}


def make_condition(kind: str, good: bool, reason: str, since: datetime = NOW, message: str = "") -> Condition:
    status = "True" if good else "False"
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)


def make_pool(
    replicas: int = 3, name: str = "pool", deleted: bool = False, generation: int = 1, **spec: Any
) -> WorkerPool:
    meta = metadata(name, generation=generation, **({"deletionTimestamp": NOW.isoformat()} if deleted else {}))
    return WorkerPool.model_validate(
        {"metadata": meta, "spec": {"serviceRef": {"name": "service"}, "replicas": replicas, **spec}}
    )


def make_worker(
    name: str = "pool-0", *, site: str = "a", requested: datetime = NOW, spec: Any = None, **status: Any
) -> Worker:
    worker = Worker.model_validate(
        {
            "metadata": metadata(name, creationTimestamp=requested.isoformat()),
            "spec": {"serviceRef": {"name": "service"}, "site": site, **(spec or {})},
        }
    )
    return with_status(worker, **status) if status else worker


def with_status(worker: Worker, **status: Any) -> Worker:
    return worker.model_copy(update={"status": worker.status.model_copy(update=status)})


def made_ready(worker: Worker, since: datetime) -> Worker:
    stages = worker.status.stages.model_copy(
        update={"start": worker.metadata.creation_timestamp, "running": since, "registered": since}
    )
    return with_status(
        worker, stages=stages, machine_id="m", conditions=[make_condition("Ready", True, "Registered", since)]
    )


def not_ready(worker: Worker, reason: str, since: datetime, message: str = "") -> Worker:
    return with_status(worker, conditions=[make_condition("Ready", False, reason, since, message)])


def make_service(**spec: Any) -> PublishedService:
    interface = spec.pop("interface", {"attributes": [{"name": "load", "type": "number", "minimum": 0}], "actions": []})
    connector = spec.pop("connector", {"python": {"class": "module:Class"}})
    body = {"interface": interface, "connector": connector, **spec}
    return read_service({"metadata": metadata("service"), "spec": body})


def make_site(
    name: str = "a", *, ready: bool = True, workers: int = 0, exhausted: bool = False,
    boot_seconds: float | None = None, capacity: int | None = None, full_at: int | None = None, **spec: Any,
) -> SiteState:  # fmt: skip
    site = CloudSite.model_validate({"metadata": metadata(name), "spec": {"provider": {"emulated": {}}, **spec}})
    condition = make_condition("Ready", ready, "ProbeSucceeded" if ready else "Unavailable")
    site = site.model_copy(update={"status": site.status.model_copy(update={"conditions": [condition]})})
    return SiteState(site, workers, exhausted, boot_seconds, capacity, full_at)


def make_machine(state: MachineState = MachineState.RUNNING, *, entered: dict[Stage, datetime] | None = None,
                 id: str = "m", uid: str = "uid", **fields: Any) -> Machine:  # noqa: A002  # fmt: skip
    times = {stage: time.timestamp() for stage, time in (entered or {}).items()}
    return Machine(id, f"name-{id}", Owner("ns", "pool-0", uid, "pool"), state, times, **fields)


def make_action(name: str = "action", *, kind: str = "WorkerPool", target: str = "pool", status: Any = None,
                created: datetime = NOW, **spec: Any) -> ServiceAction:  # fmt: skip
    body = {"target": {"kind": kind, "name": target}, "action": "solve", **spec}
    meta = metadata(name, creationTimestamp=created.isoformat())
    action = ServiceAction.model_validate({"metadata": meta, "spec": body})
    return action.model_copy(update={"status": action.status.model_copy(update=status or {})})
