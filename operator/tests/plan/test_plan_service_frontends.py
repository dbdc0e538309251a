# SPDX-License-Identifier: Apache-2.0
"""Conditions of a service about its frontends: whether they answer, and whether their number follows the load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plan_objects import NOW, at, make_service

from simyard.api.base import find_condition
from simyard.api.frontend import FrontendsStatus
from simyard.api.names import Reason
from simyard.api.simulation_service import SimulationService
from simyard.plan.frontends import (
    FrontendsView,
    Problem,
    Scaling,
    count_desired_frontends,
    resume_scaling,
)
from simyard.plan.service import ServiceCounts, plan_service


def service(desired: int | None = None, **frontend: Any) -> SimulationService:
    made = make_service(**({"frontend": frontend} if frontend else {})).service
    if desired is None:
        return made
    status = made.status.model_copy(update={"frontends": FrontendsStatus(desired=desired, ready=0)})
    return made.model_copy(update={"status": status})


def test_scaling_goes_on_where_the_status_says() -> None:
    assert resume_scaling(service(autoscaling={})) == Scaling(2)
    assert resume_scaling(service(3, autoscaling={})) == Scaling(3)
    assert resume_scaling(service(9, autoscaling={})) == Scaling(4)
    assert resume_scaling(service(replicas=3)) is None
    assert resume_scaling(service()) is None


def test_a_number_that_is_given_counts_whatever_the_load() -> None:
    assert count_desired_frontends(service(), None) is None
    assert count_desired_frontends(service(replicas=3), None) == 3
    assert count_desired_frontends(service(replicas=0), None) == 0
    assert count_desired_frontends(service(autoscaling={}), Scaling(3)) == 3


HERE = "https://occi.example.org"
REFUSED = Problem(Reason.FRONTENDS_REFUSED, "403 Forbidden: quota")


@pytest.mark.parametrize(
    ("view", "status", "reason"),
    [
        (FrontendsView(2), "False", "FrontendsNotOffered"),
        (FrontendsView(2, problem=REFUSED), "False", "FrontendsNotOffered"),
        (FrontendsView(0, 0, HERE), "False", "ScaledToZero"),
        (FrontendsView(2, 0, HERE), "False", "FrontendsStarting"),
        (FrontendsView(2, 1, HERE), "True", "FrontendsStarting"),
        (FrontendsView(2, 2, HERE), "True", "FrontendsReady"),
        (FrontendsView(2, 0, HERE, REFUSED), "False", "FrontendsRefused"),
        (FrontendsView(2, 2, HERE, REFUSED), "True", "FrontendsRefused"),
    ],
)
def test_the_status_says_whether_frontends_answer(view: FrontendsView, status: str, reason: str) -> None:
    published = make_service(frontend={"replicas": view.desired})
    result = plan_service(published, ServiceCounts(0, 0, 0), NOW, frontends=view)
    condition = find_condition(result.conditions, "FrontendsAvailable")
    assert condition is not None
    assert (condition.status, condition.reason) == (status, reason)
    assert (REFUSED.message in condition.message) is (view.problem is not None)
    status_of_them = FrontendsStatus(desired=view.desired or 0, ready=view.ready)
    assert result.frontends == (status_of_them if view.endpoint else None)
    assert result.endpoints == ([HERE] if view.endpoint and view.desired else [])
    assert find_condition(result.conditions, "ScalingActive") is None


@pytest.mark.parametrize(
    ("scaling", "status", "reason"),
    [
        (Scaling(2), "True", "LoadFollowed"),
        (Scaling(4, limited=True), "False", "ScalingLimited"),
        (Scaling(4, limited=True, blind=True), "False", "LoadUnknown"),
    ],
)
def test_the_status_says_whether_the_load_is_followed(scaling: Scaling, status: str, reason: str) -> None:
    published = make_service(frontend={"autoscaling": {}})
    view = FrontendsView(scaling.replicas, 2, HERE, scaling=scaling)
    result = plan_service(published, ServiceCounts(0, 0, 0), NOW, frontends=view)
    condition = find_condition(result.conditions, "ScalingActive")
    assert condition is not None
    assert (condition.status, condition.reason) == (status, reason)


def test_a_service_without_frontends_says_nothing_of_them() -> None:
    published = make_service(frontend={"autoscaling": {}})
    view = FrontendsView(2, 2, HERE, scaling=Scaling(2))
    before = plan_service(published, ServiceCounts(0, 0, 0), NOW, frontends=view)
    bare = make_service()
    service = bare.service.model_copy(update={"status": before})
    after = plan_service(replace(bare, service=service), ServiceCounts(0, 0, 0), at(1))
    assert [item.type for item in after.conditions] == ["Available"]
    assert (after.frontends, after.endpoints) == (None, [])
