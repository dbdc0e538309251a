# SPDX-License-Identifier: Apache-2.0
"""The table of the parts that hear of a change."""

from __future__ import annotations

from typing import Any, cast

from simyard.fleet import wiring
from simyard.fleet.pools.licences import Licences
from simyard.fleet.pools.uses import Uses
from simyard.fleet.registry import Registry
from simyard.fleet.wiring import FLOWS, SIGNALS, connect


def test_a_part_hears_of_the_changes_that_its_lines_name_and_of_no_others() -> None:
    registry = Registry(cast(Any, None))
    heard: list[str] = []
    uses = Uses(registry, lambda pool: heard.append(pool.metadata.name))
    connect(registry, uses)
    metadata = {"namespace": "ns", "uid": "pool", "name": "pool", "resourceVersion": "1"}
    pool = {"metadata": metadata, "spec": {"serviceRef": {"name": "service"}, "idleTimeoutSeconds": 60}}
    registry.pools.learn(pool)
    target = {"target": {"kind": "WorkerPool", "name": "pool"}, "action": "solve"}
    registry.actions.learn({"metadata": {**metadata, "name": "act", "uid": "act"}, "spec": target, "status": {}})
    assert heard == ["pool"]


def test_a_signal_connects_two_parts_once() -> None:
    registry = Registry(cast(Any, None))
    licences = Licences(registry)
    connect(registry, licences)
    assert licences.on_pool_due == licences.on_change == []


def test_every_line_names_a_method_of_its_part_and_stands_in_the_table_once() -> None:
    lines = [(flow.cache, flow.part, flow.method) for flow in FLOWS]
    assert len(lines) == len(set(lines))
    for flow in FLOWS:
        assert getattr(flow.part, flow.method.__name__) is flow.method
    kinds = {"worker": wiring.WORKER, "pool": wiring.POOL, "service": wiring.SERVICE, "site": wiring.SITE}
    kinds |= {"action": wiring.ACTION, "study": wiring.STUDY, "licence": wiring.LICENCE, "usage": wiring.USAGE}
    for flow in FLOWS:
        assert flow.cache is kinds[flow.method.__name__.removesuffix("_changed")]
    assert len({(signal.source, signal.target) for signal in SIGNALS}) == len(SIGNALS)
