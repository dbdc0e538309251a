# SPDX-License-Identifier: Apache-2.0
"""Rollouts and pools that sleep, with the real parts: kube-apiserver, RabbitMQ, an emulated site, adapter processes."""

from pathlib import Path

import pytest
from operator_stack import SERVICE, Operator, Scene, condition, wait_until

from simyard.api import names

pytestmark = pytest.mark.xdist_group("operator")


def activities(world: Scene) -> list[str]:
    """The reasons of what was done for the pool."""
    return [item["reason"] for item in world.pool()["status"].get("activities", [])]


def test_a_changed_service_replaces_the_workers_of_its_pools(world: Scene) -> None:
    world.make_pool(4, rollout={"maxUnavailable": 2}, scaleIn={"drainSeconds": 5})
    world.available(4)
    before = world.ready_uids()
    stack = world.stack
    stack.patch(names.SIMULATION_SERVICES, world.namespace, SERVICE, {"spec": {"description": "other words"}})
    stack.patch(names.SIMULATION_SERVICES, world.namespace, SERVICE, {"spec": {"resources": {"cpu": 2}}})
    wait_until(lambda: not before & {item["metadata"]["uid"] for item in world.workers()})
    wait_until(lambda: len(world.ready_uids()) == len(world.machines()) == len(world.adapters()) == 4)
    assert len({item["metadata"]["labels"][names.LABEL_REVISION] for item in world.workers()}) == 1
    wait_until(lambda: "RollingOut" in activities(world))
    wait_until(lambda: condition(world.pool(), "Progressing")["reason"] == "WorkersUpdated")
    assert world.available(4)["status"]["updatedReplicas"] == 4
    assert activities(world).count("RollingOut") == 1


def test_a_pool_that_nobody_uses_sleeps_until_an_action_waits_for_it(
    world: Scene, operator: Operator, tmp_path: Path
) -> None:
    world.make_pool(2, idleTimeoutSeconds=4, scaleIn={"drainSeconds": 2})
    world.available(2)
    assert wait_until(lambda: condition(world.pool(), "Available")["reason"] == "Idle")
    wait_until(lambda: not world.machines() and not world.adapters())
    assert world.workers() == []

    operator.stop()
    operator.start()
    assert condition(world.pool(), "Available")["reason"] == "Idle"
    until = tmp_path / "until"
    world.act("run", "needed", parameters={"ledger": str(tmp_path / "ledger"), "until": str(until)})
    world.available(2)
    assert world.pool()["spec"]["replicas"] == 2
    until.touch()
    assert condition(world.finished("needed"), "Complete")["status"] == "True"
    wait_until(lambda: condition(world.pool(), "Available")["reason"] == "Idle")
    assert activities(world)[-3:] == ["Idle", "Scaled", "Idle"]
