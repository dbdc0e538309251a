# SPDX-License-Identifier: Apache-2.0
"""Passes over studies whose file store or broker does not answer."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from simyard.api import names
from simyard.api.base import Json
from simyard.api.study import StudyStatus
from simyard.files.access import StoreAccess
from simyard.files.keys import StudyObject
from simyard.files.signature import Credentials
from simyard.fleet.registry import Registry
from simyard.fleet.studies.reconciler import Studies
from simyard.messaging.errors import BrokerUnavailableError

PROBLEM = "the file store at https://store does not answer"
ACCESS = StoreAccess("https://store", "bucket", Credentials("key", "secret"), problem=PROBLEM)
PARAMETER = {"name": "x", "type": "number"}
INTERFACE = {"actions": [{"name": "solve", "parameters": [PARAMETER]}]}
SPEC = {
    "target": {"kind": "WorkerPool", "name": "beams"},
    "action": "solve",
    "design": {"grid": {"axes": [{"name": "x", "values": [1, 2]}]}},
}


class Server:
    """An API server with one namespace and one study.

    Attributes:
        study: the study.
        written: the first status that is written.
    """

    study: Json

    def __init__(self) -> None:
        self.versions = itertools.count(1)
        self.written: asyncio.Future[StudyStatus] = asyncio.get_running_loop().create_future()

    def make(self, name: str, spec: Json) -> Json:
        version = str(next(self.versions))
        metadata = {"name": name, "namespace": "ns", "uid": f"{name}-uid", "resourceVersion": version, "generation": 1}
        return {"metadata": metadata, "spec": spec, "status": {}}

    async def get(self, resource: object, name: str, namespace: str) -> Json:
        if resource == names.STUDY_RECORDS:
            return self.make(name, {"study": "study", "content": base64.b64encode(b"worker-uid").decode()})
        return {"metadata": {"name": name, "uid": "ns-uid"}}

    async def list_all(self, resource: object, namespace: str, labels: str) -> tuple[list[Json], str]:
        """Return the record of the assignment of the chunk 0 to the worker."""
        if not labels.endswith(StudyObject.ASSIGNED):
            return [], ""
        return [self.make("study-uid.assigned.00000.1", {"study": "study"})], ""

    async def patch(self, resource: object, name: str, body: Json, namespace: str, subresource: str) -> Json:
        if not self.written.done():
            self.written.set_result(StudyStatus.model_validate({**self.study["status"], **body["status"]}))
        return {**self.study, "status": body["status"], "metadata": self.make(name, {})["metadata"]}


class Requester:
    """A broker that refuses the first request.

    Attributes:
        repeated: set when a request was sent again.
    """

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.repeated = asyncio.Event()

    async def publish_persistent(self, queue: str, kind: object, body: Json, request: str) -> None:
        self.sent.append(request)
        if len(self.sent) == 1:
            raise BrokerUnavailableError("the broker is away")
        self.repeated.set()


async def reconcile(started: str | None = None, **change: Any) -> StudyStatus:
    """Return the first status that the reconciler writes."""
    server = Server()
    async with reconciling(server, None, ACCESS, started, **change):
        return await server.written


@contextlib.asynccontextmanager
async def reconciling(
    server: Server, requester: object, access: StoreAccess | None, started: str | None = None, **change: Any
) -> AsyncIterator[None]:
    """Reconcile one study."""
    registry = Registry(cast(Any, server))
    connector = {"python": {"class": "module:Class"}}
    assert registry.services.learn(server.make("service", {"interface": INTERFACE, "connector": connector}))
    assert registry.pools.learn(server.make("beams", {"serviceRef": {"name": "service"}, "replicas": 1}))
    server.study = server.make("study", {**SPEC, **change})
    server.study["status"] = {"startedTime": started} if started else {}
    study = registry.studies.learn(server.study)
    assert registry.workers.learn(server.make("worker", {"serviceRef": {"name": "service"}, "site": "site"}))
    studies = Studies(registry, cast(Any, requester), lambda _: None, cast(Any, None), access)
    task = asyncio.create_task(studies.run())
    studies.study_changed(None, study)
    try:
        async with asyncio.timeout(5):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_study_says_that_it_waits_for_the_file_store() -> None:
    status = await reconcile()
    [condition] = status.conditions
    assert (condition.type, condition.status) == ("Complete", "False")
    assert condition.reason == names.Reason.WAITING_FOR_FILE_STORE
    assert PROBLEM in condition.message
    assert "ask the platform team" in condition.message
    assert status.started_time is not None, "its deadline counts"


@pytest.mark.parametrize(
    ("change", "reason"), [({"cancel": True}, "Cancelled"), ({"activeDeadlineSeconds": 1}, "DeadlineExceeded")]
)
async def test_a_study_ends_although_the_file_store_does_not_answer(change: Json, reason: str) -> None:
    status = await reconcile("2020-01-01T00:00:00Z", **change)
    assert {condition.reason for condition in status.conditions} == {reason}
    assert status.finished_time is not None


async def test_a_cancellation_that_the_broker_did_not_accept_is_sent_again() -> None:
    requester = Requester()
    async with reconciling(Server(), requester, None, cancel=True):
        await requester.repeated.wait()
    assert requester.sent == ["study-uid.0.1-cancel"] * 2
