# SPDX-License-Identifier: Apache-2.0
"""The facts that make a worker lost."""

from __future__ import annotations

import pytest
from plan_objects import NOW, make_worker, not_ready

from simyard.api.names import Reason
from simyard.plan.lost_workers import (
    DISCONNECT_GRACE_SECONDS,
    RECONNECT_SECONDS,
    get_time_limit,
    is_adapter_gone,
    is_machine_lost,
)

DELETED = make_worker().model_copy(
    update={"metadata": make_worker().metadata.model_copy(update={"deletion_timestamp": NOW})}
)


def test_a_worker_whose_machine_is_gone_is_lost() -> None:
    assert is_machine_lost(make_worker(), ended_on_request=False)


@pytest.mark.parametrize(("worker", "ended"), [(None, False), (DELETED, False), (make_worker(), True)])
def test_a_machine_that_ended_on_request_makes_no_worker_lost(worker: object, ended: bool) -> None:
    assert not is_machine_lost(worker, ended_on_request=ended)  # type: ignore[arg-type]


def test_an_adapter_has_time_to_reconnect_before_it_counts_as_gone() -> None:
    assert is_adapter_gone(100.0, 101.0) == (False, DISCONNECT_GRACE_SECONDS - 1)
    assert is_adapter_gone(100.0, 100.0 + DISCONNECT_GRACE_SECONDS) == (True, 0.0)


@pytest.mark.parametrize(
    ("reason", "seconds"),
    [(Reason.MACHINE_FAILED, 0), (Reason.MACHINE_LOST, 0), (Reason.ADAPTER_DISCONNECTED, RECONNECT_SECONDS)],
)
def test_each_reason_has_its_time_limit(reason: Reason, seconds: float) -> None:
    ready = not_ready(make_worker(), reason, NOW).status.conditions[0]
    assert get_time_limit(make_worker(), ready, 600) == seconds
