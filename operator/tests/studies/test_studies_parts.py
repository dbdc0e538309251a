# SPDX-License-Identifier: Apache-2.0
"""The rows that workers offer in an installation without a file store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from simyard.api.study_record import MAX_RECORD_BYTES, MAX_STUDY_RECORD_BYTES
from simyard.files.keys import StudyKeys
from simyard.files.studies import StudyStore
from simyard.fleet.registry import Registry
from simyard.fleet.studies.assigned import Assigned, Flight
from simyard.fleet.studies.parts import PartRefusedError, Parts
from simyard.fleet.studies.prices import Prices
from simyard.fleet.studies.runs import Run
from simyard.guest.chunks import ChunkSummary
from simyard.guest.messages import PartWanted
from simyard.plan.studies.layout import make_layout
from simyard.plan.studies.progress import Progress

UID = "12345678-1234-1234-1234-123456789abc"
NOBODY = cast(Any, None)
SUMMARY = ChunkSummary(1, 0.0, {}, ())
RECORDS = MAX_STUDY_RECORD_BYTES // MAX_RECORD_BYTES
STUDY = {
    "metadata": {"name": "s", "namespace": "ns", "uid": UID, "resourceVersion": "1"},
    "spec": {
        "target": {"kind": "WorkerPool", "name": "beams"},
        "action": "solve",
        "design": {"grid": {"axes": [{"name": "x", "values": [1]}]}},
    },
}


class Records:
    """The records that were created."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def create_object(self, key: str, content: bytes, metadata: Mapping[str, str] | None = None) -> bool:
        self.keys.append(key)
        return True


async def admit(question: PartWanted) -> None:
    raise AssertionError("the quota of files does not count records")


@pytest.mark.parametrize("counted", [True, False])
async def test_without_a_file_store_the_rows_of_a_study_are_bounded(counted: bool) -> None:
    registry, records, changed = Registry(NOBODY), Records(), list[str]()
    study = registry.studies.learn(STUDY)
    assert study is not None
    tasks = RECORDS + 1
    layout, keys = make_layout(tasks, 1, 1), StudyKeys("ns-uid", UID)
    store = StudyStore(None, cast(Any, records))
    now = datetime.now(UTC)
    run = Run(store, keys, NOBODY, NOBODY, layout, Progress(), now, Assigned(Counter()), Prices(registry), 0)
    parts = Parts(registry, {UID: run}, changed.append)

    async def offer(chunk: int) -> Mapping[str, object]:
        question = PartWanted("r", f"{UID}.{chunk}.1", "", MAX_RECORD_BYTES, SUMMARY, b"rows")
        return await parts.offer("w", question, admit)

    for chunk in range(tasks):
        run.assigned.add(Flight(chunk, 1, "w"))
    for chunk in range(RECORDS):
        assert await offer(chunk) == {"stored": True}
        if counted:
            run.finish(chunk, SUMMARY, MAX_RECORD_BYTES, study, now)
    with pytest.raises(PartRefusedError, match="ask the platform team") as refusal:
        await offer(RECORDS)
    assert len(records.keys) == RECORDS
    assert (run.blocked, changed) == (str(refusal.value), [UID])
