# SPDX-License-Identifier: Apache-2.0
"""A world with a file store and a pool of workers that run the tasks of studies."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
from pathlib import Path
from typing import Any

from fleet_world import World

from simyard.api import names
from simyard.api.base import Json, find_condition
from simyard.api.names import ConditionType
from simyard.api.study import Study, StudyStatus
from simyard.files.access import StoreAccess
from simyard.files.keys import FileKey, FileOrigin, StudyKeys, StudyObject
from simyard.files.store import ObjectStore
from simyard.fleet.studies.records import list_part_page
from simyard_adapter.python_backend import load_class

CONNECTOR = Path(__file__).parent / "study_connector.py"
SERVICE = "squares"


class StudyWorld:
    """A namespace with a file store, a pool of workers and studies.

    Attributes:
        pool: the pool; it exists after :meth:`start`.
    """

    def __init__(self, world: World, access: StoreAccess, store: ObjectStore) -> None:
        self.world = world
        self.access = access
        self._store = store

    async def start(self, workers: int = 2) -> None:
        interface = load_class("study_connector:Squares", CONNECTOR.parent).interface.to_json()
        files = [{"path": CONNECTOR.name, "content": CONNECTOR.read_text()}]
        connector = {"python": {"class": "study_connector:Squares"}, "files": files}
        await self.world.make(names.SIMULATION_SERVICES, SERVICE, {"interface": interface, "connector": connector})
        self.pool = await self.world.make_pool(workers, serviceRef={"name": SERVICE})
        await self.world.right(self.pool, workers)
        self._namespace_uid = (await self.world.client.get(names.NAMESPACES, self.world.name, ""))["metadata"]["uid"]

    async def make(self, name: str, design: Json, action: str = "square", **spec: Any) -> Study:
        target = {"kind": names.WORKER_POOLS.kind, "name": self.pool.metadata.name}
        body = {"target": target, "action": action, "design": design, **spec}
        return Study.model_validate(await self.world.make(names.STUDIES, name, body))

    async def make_counted(self, name: str, count: int, action: str = "square", **spec: Any) -> Study:
        """A study of the numbers from 0."""
        axes = [{"name": "x", "start": 0, "stop": count - 1, "step": 1}]
        return await self.make(name, {"grid": {"axes": axes}}, action, **spec)

    async def change(self, study: Study, **spec: Any) -> None:
        await self.world.client.patch(names.STUDIES, study.metadata.name, {"spec": spec}, self.world.name)

    def status(self, study: Study) -> StudyStatus:
        found = self.world.seen.studies.get(self.world.name, study.metadata.name)
        return found.status if found is not None else StudyStatus()

    def condition(self, study: Study, kind: ConditionType) -> tuple[str, str]:
        """Status and reason of a condition."""
        found = find_condition(self.status(study).conditions, kind)
        return (found.status, found.reason) if found is not None else ("Unknown", "")

    async def ended(self, study: Study, kind: ConditionType = ConditionType.COMPLETE, seconds: float = 0.0) -> str:
        """Wait until a condition is True, and return its reason."""
        await self.world.until(
            lambda: self.status(study).finished_time is not None, f"{study.metadata.name} has ended", seconds=seconds
        )
        status, reason = self.condition(study, kind)
        assert status == "True", self.status(study)
        return reason

    def keys(self, study: Study) -> StudyKeys:
        return StudyKeys(self._namespace_uid, study.metadata.uid)

    async def list_objects(self, study: Study) -> list[str]:
        return [item.key async for item in self._store.list_objects(self.keys(study).prefix)]

    async def upload(self, content: bytes) -> str:
        """Store a file of a user, and return its address."""
        address = f"sha256:{hashlib.sha256(content).hexdigest()}"
        await self._store.put_object(str(FileKey(self._namespace_uid, FileOrigin.USER, address)), content)
        return address

    async def recorded_rows(self, study: Study) -> list[dict[str, str]]:
        """All rows that are in StudyRecords, in the order of their chunks."""
        rows: list[dict[str, str]] = []
        parts, _ = await list_part_page(self.world.client, self.world.name, study.metadata.uid, 500)
        for _, content in parts:
            rows += csv.DictReader(io.StringIO(gzip.decompress(base64.b64decode(content)).decode()))
        return rows

    async def rows(self, study: Study) -> list[dict[str, str]]:
        """All rows of a study, in the order of their chunks."""
        rows: list[dict[str, str]] = []
        async for item in self._store.list_objects(self.keys(study).make_prefix(StudyObject.PART)):
            content = await self._store.get_object(item.key)
            assert content is not None
            rows += csv.DictReader(io.StringIO(gzip.decompress(content).decode()))
        return rows
