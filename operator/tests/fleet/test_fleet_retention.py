# SPDX-License-Identifier: Apache-2.0
"""The number of ServiceActions in a namespace, and large parameters that are read when they are needed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from scripted_site import until, versions

from simyard.api.base import Json
from simyard.api.weights import MAX_PARAMETERS_WEIGHT
from simyard.fleet.actions.retention import ActionLimits, Retention
from simyard.fleet.registry import Registry
from simyard.fleet.wiring import connect
from simyard_adapter.limits import MIB
from simyard_sites.kubernetes.client import KubeClient


@dataclass
class Client:
    """An API server with ServiceActions."""

    objects: dict[str, Json] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)

    async def get(self, resource: Any, name: str, namespace: str) -> Json:
        return self.objects[name]

    async def delete(self, resource: Any, name: str, namespace: str, *, uid: str) -> None:
        self.deleted.append(name)


class Namespace:
    """The ServiceActions of one namespace, in the operator's cache."""

    def __init__(self, **limits: int) -> None:
        self.client = Client()
        self.registry = Registry(cast(KubeClient, self.client))
        self.retention = Retention(self.registry, ActionLimits(**limits))
        connect(self.registry, self.retention)

    def add(
        self,
        name: str,
        parameters: Json | None = None,
        finished: str = "",
        namespace: str = "ns",
        result: Json | None = None,
    ) -> None:
        metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
        raw: Json = {
            "metadata": {**metadata, "resourceVersion": str(next(versions))},
            "spec": {"target": {"kind": "Worker", "name": "w"}, "action": "solve", "parameters": parameters or {}},
        }
        if finished:
            condition = {"type": "Complete", "status": "True", "reason": "Succeeded", "lastTransitionTime": finished}
            raw["status"] = {"finishedTime": finished, "conditions": [condition], "result": result}
        self.client.objects[name] = raw
        self.registry.actions.learn(raw)

    def refusal(self, name: str) -> tuple[str, str] | None:
        action = self.registry.actions.get("ns", name)
        assert action is not None
        return self.retention.check_room(action)


async def test_of_finished_actions_above_the_limit_the_oldest_go() -> None:
    there = Namespace(finished=2)
    task = asyncio.create_task(there.retention.run())
    for day in (3, 1, 4, 2):
        there.add(f"a-{day}", finished=f"2026-01-0{day}T00:00:00Z")
        there.add(f"other-{day}", finished=f"2026-01-0{day}T00:00:00Z", namespace=f"ns-{day}")
    there.add("open")
    await until(lambda: len(there.client.deleted) == 2)
    task.cancel()
    assert there.client.deleted == ["a-1", "a-2"]
    assert there.registry.actions.count("finished", "ns") == 2


async def test_unfinished_actions_above_the_limit_are_not_taken() -> None:
    there = Namespace(unfinished=2)
    there.add("done", finished="2026-01-01T00:00:00Z")
    there.add("a")
    there.add("b")
    assert there.refusal("b") is None
    there.add("c")
    refused = there.refusal("c")
    assert refused is not None
    assert refused[0] == "TooManyActions"
    assert "namespace ns has more than 2 unfinished ServiceActions" in refused[1]


def large(mebibytes: float) -> Json:
    return {"mesh": "x" * int(mebibytes * MIB)}


async def test_unfinished_actions_above_the_limit_in_bytes_are_not_taken_until_some_have_finished() -> None:
    there = Namespace(unfinished_mib=2)
    there.add("done", result=large(1), finished="2026-01-01T00:00:00Z")
    there.add("elsewhere", large(1), namespace="other")
    for name in ("a", "b"):
        there.add(name, large(0.9))
    assert there.refusal("b") is None
    there.add("c", large(0.9))
    refused = there.refusal("c")
    assert refused is not None
    assert refused[0] == "TooManyActions"
    assert "namespace ns has unfinished ServiceActions of more than 2 MiB together" in refused[1]
    there.add("a", large(0.9), finished="2026-01-01T00:00:00Z")
    assert there.refusal("c") is None


async def test_of_finished_actions_above_the_limit_in_bytes_the_oldest_go_until_the_others_fit() -> None:
    there = Namespace(finished_mib=2)
    task = asyncio.create_task(there.retention.run())
    for day in (3, 1, 4, 2):
        finished = f"2026-01-0{day}T00:00:00Z"
        there.add(f"a-{day}", finished=finished, result=large(0.9))
        there.add(f"other-{day}", finished=finished, result=large(0.9), namespace=f"ns-{day}")
    there.add("open", large(1))
    await until(lambda: len(there.client.deleted) == 2)
    task.cancel()
    assert there.client.deleted == ["a-1", "a-2"]
    assert there.registry.actions.count("finished", "ns") == 2


async def test_large_parameters_are_not_in_memory_and_read_when_they_are_needed() -> None:
    there = Namespace()
    there.add("large", {"mesh": "x" * 100_000})
    kept = there.registry.actions.get("ns", "large")
    assert kept is not None
    assert kept.spec.parameters == {}
    assert (await there.registry.fetch_whole_action(kept)).spec.parameters == {"mesh": "x" * 100_000}


async def test_parameters_above_the_limit_are_refused_with_a_remedy() -> None:
    there = Namespace()
    there.add("huge", {"mesh": "x" * MAX_PARAMETERS_WEIGHT})
    refused = there.refusal("huge")
    assert refused is not None
    assert refused[0] == "InvalidParameters"
    assert f"spec.parameters: weighs {MAX_PARAMETERS_WEIGHT + 12}" in refused[1]
