# SPDX-License-Identifier: Apache-2.0
"""Usage with the real parts: what the ledger says agrees with the times of the stages, through kills and restarts."""

from __future__ import annotations

import re
import time
from datetime import datetime

import pytest
from operator_stack import SERVICE, Operator, Scene, wait_until

from simyard.api import names
from simyard.api.base import Json

pytestmark = pytest.mark.xdist_group("operator")


def rows(world: Scene) -> list[Json]:
    found = world.stack.get(names.USAGES, world.namespace, names.USAGE)
    return found.get("status", {}).get("rows", []) if found else []  # it is there before its first status


def seconds_of(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def ran_from(world: Scene) -> dict[str, float]:
    """Since when the machine of each worker runs, as the site said."""
    return {item["metadata"]["uid"]: seconds_of(item["status"]["stages"]["running"]) for item in world.workers()}


def settled(world: Scene, workers: int) -> Json:
    """Wait until the ledger says that so many machines run, and give its row."""
    (row,) = wait_until(lambda: [row for row in rows(world) if row["workers"] == workers], f"{rows(world)}")
    return dict(row)


def counted(operator: Operator, world: Scene, name: str) -> float:
    """The sum of a counter over the rows of the namespace."""
    lines = re.findall(rf"^simyard_usage_{name}_total{{(.*?)}} (\S+)$", operator.answer("metrics"), re.MULTILINE)
    return sum(float(value) for labels, value in lines if f'namespace="{world.namespace}"' in labels)


def test_usage_agrees_with_the_stages_when_the_operator_is_killed(world: Scene, operator: Operator) -> None:
    price = {"currency": "CHF", "workerHourMillis": 3_600_000, "coreHourMillis": 0}  # 1 CHF per second
    world.stack.patch(names.CLOUD_SITES, "", world.site, {"spec": {"cost": price}})
    world.make_pool(3, scaleIn={"drainSeconds": 0})
    world.available(3)
    begun = ran_from(world)
    first = settled(world, 3)
    assert (first["pool"], first["service"], first["site"], first["cores"]) == ("pool", SERVICE, world.site, 3)
    ran = sum(seconds_of(first["accountedUntil"]) - begin for begin in begun.values())
    assert first["workerMilliseconds"] / 1000 == pytest.approx(ran, abs=0.01)

    operator.kill()  # what runs goes on
    asked = time.time()
    world.stack.patch(names.WORKER_POOLS, world.namespace, "pool", {"spec": {"replicas": 1}})
    operator.start()
    world.available(1)
    wait_until(lambda: len(ran_from(world)) == 1, "those that go are gone")
    left = set(ran_from(world))
    second = settled(world, 1)
    asked_last = time.time()
    world.stack.patch(names.WORKER_POOLS, world.namespace, "pool", {"spec": {"replicas": 0}})
    world.available(0)
    last = settled(world, 0)

    used = last["workerMilliseconds"] / 1000
    least = sum((asked_last if uid in left else asked) - begin for uid, begin in begun.items())
    most = sum(seconds_of((last if uid in left else second)["accountedUntil"]) - begin for uid, begin in begun.items())
    assert least <= used <= most + 0.01
    assert last["coreMilliseconds"] == last["workerMilliseconds"]
    assert (last["licenceMilliseconds"], last["hourCostMillis"]) == (0, 0)
    assert last["costMillis"] == last["workerMilliseconds"], "1 CHF per second is a thousandth per millisecond"
    assert counted(operator, world, "worker_seconds") == pytest.approx(used)
    assert counted(operator, world, "cost") == pytest.approx(used)


def test_usage_outlives_its_pool_and_nobody_but_the_operator_writes_it(world: Scene) -> None:
    world.make_pool(1)
    world.available(1)
    world.stack.delete(names.WORKER_POOLS, world.namespace, "pool")
    wait_until(lambda: world.stack.get(names.WORKER_POOLS, world.namespace, "pool") is None)
    assert settled(world, 0)["workerMilliseconds"] > 0
    user = f"user-of-{world.namespace}"
    world.stack.api.bind(user, world.namespace, "ClusterRole", "admin")
    wait_until(lambda: world.stack.api.may(user, "get", names.USAGES, namespace=world.namespace))
    path = f"/apis/{names.API_VERSION}/namespaces/{world.namespace}/{names.USAGES.plural}/{names.USAGE}"
    change = {"status": {"rows": []}}
    for place in (path, f"{path}/status"):
        answer = world.stack.api.request("PATCH", place, change, user=user, media="application/merge-patch+json")
        assert answer.status == 403, answer.message
    assert world.stack.api.request("DELETE", path, user=user).status == 403
