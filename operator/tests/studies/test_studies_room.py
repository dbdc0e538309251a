# SPDX-License-Identifier: Apache-2.0
"""Workers that may get a chunk of a study."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest

from simyard.api.base import Json
from simyard.api.study import Study
from simyard.fleet.registry import Registry
from simyard.fleet.studies.assigned import Assigned
from simyard.fleet.studies.room import REFUSAL_SECONDS, Capacity, Room
from simyard_adapter.wire import ErrorReason, WireError

READY = {"type": "Ready", "status": "True", "reason": "Registered", "lastTransitionTime": "2030-01-01T00:00:00Z"}


def make(name: str, **body: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "ns", "uid": f"{name}-uid", "resourceVersion": "1"}, **body}


@pytest.mark.parametrize(("reason", "waits"), [("Busy", True), ("Draining", True), ("Cancelled", False)])
async def test_a_worker_that_refuses_a_chunk_gets_none_of_any_study_for_a_while(reason: str, waits: bool) -> None:
    registry, now = Registry(cast(Any, None)), 100.0
    spec = {"serviceRef": {"name": "service"}, "site": "site"}
    worker = registry.workers.learn(make("w", spec=spec, status={"conditions": [READY]}))
    assert worker is not None
    design = {"grid": {"axes": [{"name": "x", "values": [1]}]}}
    body = {"target": {"kind": "Worker", "name": "w"}, "action": "solve", "design": design}
    capacity = Capacity(registry, lambda _: None, time=lambda: now)
    rooms = {name: Room() for name in ("refused", "other")}

    def choose(name: str) -> list[str]:
        study = Study.model_validate(make(name, spec=body))
        return capacity.choose(study, Assigned(Counter()), rooms[name], 1, 1)

    assert choose("refused") == ["w-uid"]
    capacity.note_error("w-uid", WireError(ErrorReason(reason), "no"))
    chosen = [] if waits else ["w-uid"]
    assert [choose("refused"), choose("other")] == [chosen, chosen]
    assert capacity.find_pause_end() == (REFUSAL_SECONDS if waits else None)
    now += REFUSAL_SECONDS
    assert [choose("refused"), choose("other")] == [["w-uid"], ["w-uid"]]
    assert capacity.find_pause_end() is None


async def test_only_workers_of_the_target_may_run_a_study() -> None:
    registry = Registry(cast(Any, None))
    for name in ("w", "other"):
        registry.workers.learn(make(name, spec={"serviceRef": {"name": "service"}, "site": "site"}))
    design = {"grid": {"axes": [{"name": "x", "values": [1]}]}}
    spec = {"target": {"kind": "Worker", "name": "w"}, "action": "solve", "design": design}
    study = Study.model_validate(make("study", spec=spec))
    assert [registry.may_run(f"{name}-uid", study) for name in ("w", "other")] == [True, False]
