# SPDX-License-Identifier: Apache-2.0
"""The memory of requested restarts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from simyard.fleet.sites.restarts import Restarts
from simyard.plan.machine import Step


def test_what_was_never_answered_is_forgotten_with_its_worker() -> None:
    workers = {
        name: SimpleNamespace(metadata=SimpleNamespace(uid=name), spec=SimpleNamespace(restarts=1)) for name in "ab"
    }
    machines = {f"machine-{name}": SimpleNamespace(owner=SimpleNamespace(worker_uid=name)) for name in "ab"}
    registry = SimpleNamespace(find_worker=workers.get)
    restarts = Restarts(cast(Any, machines), cast(Any, registry), cast(Any, None), stop_ends=False)
    restarts.record_request(Step.RESTART, list(machines))
    restarts.forget("a")
    assert list(restarts._sent) == ["machine-b"]
    restarts.record_answer(Step.RESTART, "machine-a", accepted=False)
    restarts.forget("b")
    assert restarts._sent == {}
