# SPDX-License-Identifier: Apache-2.0
"""Seats of a licence over pools and namespaces, and the figures of a start, with the real parts."""

from collections.abc import Iterator

import pytest
from operator_stack import SERVICE, Operator, Scene, Stack, condition, scene, unique, wait_until

from simyard.api import names
from simyard.api.base import Json

pytestmark = pytest.mark.xdist_group("operator")


@pytest.fixture
def neighbour(stack: Stack, operator: Operator) -> Iterator[Scene]:
    with scene(stack) as made:
        yield made


def make_licence(stack: Stack, name: str, seats: int) -> None:
    manifest = {"apiVersion": names.API_VERSION, "kind": "Licence", "metadata": {"name": name}}
    assert stack.api.create({**manifest, "spec": {"seats": seats}}).accepted


def use_licence(world: Scene, name: str) -> None:
    change = {"spec": {"licence": {"licenceRef": {"name": name}}}}
    world.stack.patch(names.SIMULATION_SERVICES, world.namespace, SERVICE, change)


def service(world: Scene) -> Json:
    found = world.stack.get(names.SIMULATION_SERVICES, world.namespace, SERVICE)
    assert found is not None
    return found


def scale(world: Scene, name: str, replicas: int) -> None:
    world.stack.patch(names.WORKER_POOLS, world.namespace, name, {"spec": {"replicas": replicas}})


def waiting(world: Scene, name: str) -> Json:
    """The condition of a pool, once it waits for seats."""

    def check() -> Json | None:
        found = condition(world.pool(name), "LicenceAvailable")
        return found if found["reason"] == "WaitingForSeats" else None

    found: Json = wait_until(check, f"{name} waits")
    return found


def test_pools_of_two_namespaces_share_the_seats_of_a_licence_first_come_first_served(
    world: Scene, neighbour: Scene, operator: Operator
) -> None:
    name = unique("licence")
    for item in (world, neighbour):
        use_licence(item, name)
        wait_until(lambda item=item: condition(service(item), "LicencePermitted")["reason"] == "LicenceNotFound")
    make_licence(world.stack, name, 3)
    for item in (world, neighbour):
        wait_until(lambda item=item: condition(service(item), "LicencePermitted")["status"] == "True")

    world.make_pool(2, "first")
    world.available(2, "first")
    neighbour.make_pool(3, "second")
    assert waiting(neighbour, "second")["message"].startswith("waits for 2 more seats, as number 1 in the queue")
    wait_until(lambda: len(neighbour.ready_uids()) == 1)  # it starts in part
    world.make_pool(1, "third")
    wait_until(lambda: "as number 2 in the queue" in waiting(world, "third")["message"])
    message = waiting(neighbour, "second")["message"]
    assert world.namespace not in message
    assert "first" not in message
    wait_until(lambda: service(world)["status"].get("licence") == {"seats": 3, "taken": 3, "waiting": 3})

    def shared() -> Json:
        return (world.stack.get(names.LICENCES, "", name) or {}).get("status") or {}

    wait_until(lambda: (shared().get("services"), shared().get("used"), shared().get("waiting")) == (2, 3, 3))
    holders = [{"name": world.namespace, "used": 2}, {"name": neighbour.namespace, "used": 1}]
    assert shared()["namespaces"] == holders

    operator.kill()
    scale(world, "first", 1)
    operator.start()
    wait_until(lambda: len(neighbour.ready_uids()) == 2)
    assert "as number 1 in the queue" in waiting(neighbour, "second")["message"]
    assert f'simyard_licence_seats{{licence="{name}",state="taken"}} 3.0' in operator.answer("metrics")
    assert len(world.workers()) == 1

    scale(neighbour, "second", 2)
    scale(world, "first", 0)
    world.available(1, "third")
    wait_until(lambda: condition(world.pool("third"), "LicenceAvailable")["status"] == "True")


def test_the_figures_of_a_start_are_told_in_its_status_its_metrics_and_its_events(
    world: Scene, operator: Operator
) -> None:
    world.make_pool(2)

    def complete() -> Json | None:
        start: Json = (world.pool().get("status") or {}).get("start") or {}
        return start if "publishedMilliseconds" in start else None

    start = wait_until(complete)
    assert start["bootMilliseconds"] <= start["registeredMilliseconds"] <= start["publishedMilliseconds"]
    assert set(start["stages"]) == {"pending", "prolog", "boot", "running", "registered"}
    metrics = operator.answer("metrics")
    for figure in ("T_boot", "T_r", "T_m"):
        assert f'simyard_pool_start_seconds_count{{figure="{figure}"}}' in metrics
    assert f'simyard_worker_stage_duration_seconds_count{{site="{world.site}",stage="boot"}} 2.0' in metrics
    assert f'simyard_worker_start_duration_seconds_count{{site="{world.site}"}} 2.0' in metrics

    path = f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events"

    def notes() -> dict[str, str]:
        return {item["reason"]: item["note"] for item in world.stack.api.request("GET", path).body["items"]}

    wait_until(lambda: {"StartBegun", "StartFinished"} <= set(notes()))
    assert notes()["StartBegun"] == "2 workers are requested"
    assert notes()["StartFinished"].startswith("2 workers are ready: T_boot ")
