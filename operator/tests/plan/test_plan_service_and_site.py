# SPDX-License-Identifier: Apache-2.0
"""The status of services and of sites."""

from dataclasses import replace
from typing import Any

import pytest
from plan_objects import NOW, at, make_machine, make_service, make_site

from simyard.api.base import find_condition
from simyard.api.cloud_site import CloudSite, SiteWorkers
from simyard.api.names import Reason
from simyard.plan.platform import PlatformProblem
from simyard.plan.service import ServiceCounts, find_values_problem, plan_service
from simyard.plan.site import (
    BreakerObservation,
    CallObservation,
    SiteObservation,
    StageSeconds,
    count_machines,
    describe_left_behind,
    find_turn,
    plan_site,
)
from simyard.plan.tuner import START, Setting
from simyard_sites.base import (
    CapacityExhaustedError,
    MachineState,
    QuotaExhaustedError,
    SiteError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
)


def test_a_good_manifest_is_published() -> None:
    status = plan_service(make_service(), ServiceCounts(2, 5, 4), NOW)
    assert (status.pools, status.workers, status.ready_workers, len(status.interface_digest)) == (2, 5, 4, 12)
    condition = find_condition(status.conditions, "Available")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "Published")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"type": "number", "default": "x"}, "spec.interface.attributes[v].default"),
        ({"type": "number", "default": 5, "maximum": 4}, "spec.interface.attributes[v].default"),
        ({"type": "number", "minimum": 5, "maximum": 4}, "spec.interface.attributes[v].minimum"),
        ({"type": "string", "pattern": "("}, "spec.interface: v: the pattern ("),
    ],
)
def test_declarations_that_contradict_themselves_are_named_by_their_path(value: dict[str, Any], path: str) -> None:
    service = make_service(interface={"attributes": [{"name": "v", **value}], "actions": []})
    assert service.problem.startswith(path)
    condition = find_condition(plan_service(service, ServiceCounts(0, 0, 0), NOW).conditions, "Available")
    assert condition is not None
    assert (condition.reason, condition.message) == ("InterfaceInvalid", service.problem)


def test_commands_are_checked_against_the_interface() -> None:
    commands = {"actions": [{"action": "solve", "command": ["ccx", "$(deck)"]}]}
    service = make_service(
        interface={"attributes": [], "actions": [{"name": "solve"}]}, connector={"commands": commands}
    )
    assert service.problem.startswith("spec.connector.commands.actions[0].command[1]")


def test_initial_values_must_fit_the_declared_attributes() -> None:
    assert find_values_problem(make_service(), {"load": 3}) == ""
    assert "spec.attributes.load" in find_values_problem(make_service(), {"load": -3})
    assert "spec.attributes.colour" in find_values_problem(make_service(), {"colour": "red"})


def observed(**fields: Any) -> SiteObservation:
    return SiteObservation(**{"workers": SiteWorkers(), "version": "cloud 1", "probed": at(5), **fields})


def conditions(site: CloudSite, seen: SiteObservation) -> dict[str, tuple[str, str]]:
    return {item.type: (item.status, item.reason) for item in plan_site(site, seen, NOW).conditions}


SITE = make_site("a", limits={"maxWorkers": 3}).site.model_copy(
    update={"status": CloudSite.model_fields["status"].default}
)


def test_a_site_that_answers_is_ready() -> None:
    assert conditions(SITE, observed()) == {
        "Reachable": ("True", "ProbeSucceeded"),
        "CredentialsValid": ("True", "ProbeSucceeded"),
        "Ready": ("True", "ProbeSucceeded"),
        "CapacityAvailable": ("True", "CapacityLeft"),
        "PlatformHealthy": ("True", "PlatformWorks"),
    }
    assert conditions(SITE, observed(probed=None)) == {}


@pytest.mark.parametrize(
    ("error", "reachable", "valid"),
    [(UnauthenticatedError("wrong password"), "True", "False"), (UnavailableError("no answer"), "False", "Unknown")],
)
def test_an_error_says_whose_fault_it_is(error: SiteError, reachable: str, valid: str) -> None:
    found = conditions(SITE, observed(error=error))
    assert (found["Reachable"][0], found["CredentialsValid"][0]) == (reachable, valid)
    assert found["Ready"] == ("False", error.reason)


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ({"error": UnavailableError("no answer")}, "SiteUnreachable"),
        ({"error": UnauthenticatedError("wrong password")}, "Unauthenticated"),
        ({"breaker": BreakerObservation("Open", cause=UnavailableError("down"))}, "BreakerOpen"),
    ],
)
def test_whether_a_site_that_cannot_be_used_has_room_is_unknown(trouble: dict[str, Any], reason: str) -> None:
    good = SITE.model_copy(update={"status": plan_site(SITE, observed(), NOW)})
    assert conditions(good, observed(**trouble))["CapacityAvailable"] == ("Unknown", reason)


def test_a_site_has_no_more_room_than_it_says() -> None:
    assert conditions(SITE, observed(capacity=2, desired=1))["CapacityAvailable"] == ("True", "CapacityLeft")
    assert conditions(SITE, observed(capacity=2, desired=2))["CapacityAvailable"] == ("False", "QuotaExhausted")


def test_it_is_told_when_a_site_becomes_ready_and_when_it_ceases_to_be() -> None:
    ready = plan_site(SITE, observed(), NOW)
    broken = plan_site(SITE, observed(error=UnavailableError("no answer")), NOW)
    first, last = find_turn(SITE.status, ready), find_turn(ready, broken)
    assert first is not None
    assert last is not None
    assert (first.reason, first.warning, last.reason, last.warning) == ("SiteReady", False, "SiteNotReady", True)
    assert "no answer" in last.note
    assert find_turn(ready, ready) is None


def test_the_end_of_a_site_that_is_being_deleted_is_no_trouble_of_it() -> None:
    deleted = SITE.model_copy(update={"metadata": SITE.metadata.model_copy(update={"deletion_timestamp": NOW})})
    assert find_turn(plan_site(SITE, observed(), NOW), plan_site(deleted, observed(), NOW)) is None


def test_what_is_left_at_a_site_that_is_given_up_is_named() -> None:
    assert "there may be machines left" in describe_left_behind([])
    assert "1 machine known (name-m)" in describe_left_behind([make_machine()])
    many = describe_left_behind([make_machine(id=f"{number:02}") for number in range(22)])
    assert "22 machines known (name-00, " in many
    assert "name-19, and 2 more)" in many


def test_a_full_site_stays_ready() -> None:
    for exhausted, desired, reason in (
        (QuotaExhaustedError("limit of 5 reached"), 0, "QuotaExhausted"),
        (CapacityExhaustedError("no host"), 0, "CapacityExhausted"),
        (None, 3, "MaxWorkersReached"),
    ):
        found = conditions(SITE, observed(exhausted=exhausted, desired=desired))
        assert found["CapacityAvailable"] == ("False", reason)
        assert found["Ready"][0] == "True"


def test_a_site_that_asked_for_a_pause_says_until_when() -> None:
    call = CallObservation(
        "Create", START, growing=True, bound=False, idle=True, rate=1, median_seconds=1, high_seconds=1
    )
    seen = observed(exhausted=ThrottledError("slower"), paused_until=at(300), calls=(call,))
    assert conditions(SITE, seen)["CapacityAvailable"] == ("False", "Throttled")
    status = plan_site(SITE, seen, NOW)
    until = f"no requests until {at(300):%Y-%m-%dT%H:%M:%SZ}"
    assert until in status.tuning[0].message
    assert until in next(item.message for item in status.conditions if item.type == "CapacityAvailable")


def test_a_provider_that_cannot_be_made_is_told() -> None:
    found = conditions(SITE, observed(setup_problem=("ProviderNotInstalled", "no package offers it"), probed=None))
    problem = "ProviderNotInstalled"
    healthy = ("True", "PlatformWorks")
    assert found == {
        "Ready": ("False", problem), "CapacityAvailable": ("Unknown", problem), "PlatformHealthy": healthy,
    }  # fmt: skip


def test_a_problem_of_the_platform_is_told_beside_what_is_known_of_the_site() -> None:
    problem = PlatformProblem(Reason.CLOCK_SKEW, "the clocks differ")
    for seen in (observed(), observed(error=UnavailableError("down"))):
        found = conditions(SITE, replace(seen, platform=problem))
        assert found["PlatformHealthy"] == ("False", "ClockSkew")
        assert found["Ready"] == conditions(SITE, seen)["Ready"]
    assert "PlatformHealthy" not in conditions(SITE, SiteObservation(SiteWorkers(), platform=problem))


def test_another_probe_alone_is_no_new_status() -> None:
    first = plan_site(SITE, observed(), NOW)
    site = SITE.model_copy(update={"status": first})
    assert plan_site(site, observed(probed=at(60)), at(60)) == first
    assert plan_site(site, observed(probed=at(60), version="cloud 2"), at(60)).last_probe_time == at(60)


def test_machines_are_counted_by_what_they_do() -> None:
    states = [MachineState.PENDING, MachineState.BOOT, MachineState.RUNNING, MachineState.FAILED, MachineState.STOPPED]
    counts = dict.fromkeys(states, 1)
    assert count_machines(counts) == SiteWorkers(total=5, starting=2, running=1, failed=1)


def call(**changes: Any) -> CallObservation:
    seen: dict[str, Any] = {"growing": False, "bound": False, "idle": False, "rate": 63.27, "high_seconds": 0.5}
    return CallObservation(**{"call": "Create", "setting": Setting(2, 32), "median_seconds": 0.1234, **seen, **changes})


@pytest.mark.parametrize(
    ("changes", "limit", "said"),
    [
        ({}, "Latency", "only wait longer"),
        ({"growing": True}, "Growing", "no limit met yet"),
        ({"bound": True}, "Bound", "spec.limits"),
        ({"pace": 101.9, "throttled": 7}, "Throttled", "more than about 100 requests per second"),
        ({"idle": True, "pace": 101.9}, "Idle", "2 calls of 32"),
    ],
)
def test_what_was_learned_of_a_site_is_shown_with_its_reason(changes: dict[str, Any], limit: str, said: str) -> None:
    (tuning,) = plan_site(SITE, observed(calls=(call(**changes),)), NOW).tuning
    assert (tuning.in_flight, tuning.batch_size, tuning.requests_per_second) == (64, 32, 63)
    assert (tuning.latency_milliseconds, tuning.high_latency_milliseconds) == (120, 500)
    assert (tuning.throttled, tuning.limited_by) == (changes.get("throttled", 0), limit)
    assert said in tuning.message


def test_noise_is_no_new_status() -> None:
    first = plan_site(SITE, observed(calls=(call(),), stages=StageSeconds(0.1, 1.0, 2.0, 3.1)), NOW)
    assert (first.stages.prolog_milliseconds, first.stages.total_milliseconds) == (1000, 3100)
    site = SITE.model_copy(update={"status": first})
    again = observed(
        calls=(call(rate=63.4, median_seconds=0.1236),), stages=StageSeconds(0.1, 1.001, 2.01, 3.12), probed=at(60)
    )
    assert plan_site(site, again, at(60)) == first


def test_what_was_learned_before_a_restart_stays_until_something_is_learned_anew() -> None:
    first = plan_site(SITE, observed(calls=(call(),), stages=StageSeconds(0.1, 1.0, 2.0, 3.1)), NOW)
    after = plan_site(SITE.model_copy(update={"status": first}), observed(), at(60))
    assert (after.tuning, after.stages) == (first.tuning, first.stages)


def test_an_open_breaker_makes_the_site_not_ready_and_says_when_it_is_tried_again() -> None:
    breaker = BreakerObservation("Open", NOW, UnavailableError("no route"), at(4))
    status = plan_site(SITE, observed(breaker=breaker), NOW)
    ready = find_condition(status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason, ready.message) == ("False", "BreakerOpen", "no route")
    assert (status.breaker.state, status.breaker.reason, status.breaker.next_probe_time) == (
        "Open",
        "Unavailable",
        at(4),
    )
    site = SITE.model_copy(update={"status": status})
    assert conditions(site, observed())["Ready"] == ("True", "ProbeSucceeded")
    assert plan_site(site, observed(), NOW).breaker.state == "Closed"
