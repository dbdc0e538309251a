# SPDX-License-Identifier: Apache-2.0
"""Processes die without warning while work is under way: nothing is lost, nothing is made twice."""

import re
import signal
from collections.abc import Iterator

import pytest
from operator_stack import Operator, Scene, Stack, condition, scene, wait_until

from simyard.api import names
from simyard_dev.local_broker import LocalBroker

pytestmark = pytest.mark.xdist_group("operator")
SIZE = 20


@pytest.fixture
def slow_world(stack: Stack, operator: Operator) -> Iterator[Scene]:
    """Its machines take a while to start, so that a crash finds them in all stages."""
    with scene(stack, pendingMilliseconds=300, prologMilliseconds=300, bootMilliseconds=300) as made:
        yield made


def made_once(world: Scene, count: int) -> bool:
    """Whether the machines are the first so many that the site ever made: their ids are counted up from 0."""
    return {path.name for path in world.machines()} == {str(index) for index in range(count)}


def test_an_operator_that_is_killed_again_and_again_starts_each_worker_once(
    slow_world: Scene, operator: Operator
) -> None:
    slow_world.make_pool(SIZE)
    for reached in (1, SIZE // 2, SIZE):
        wait_until(lambda reached=reached: len(slow_world.workers()) >= reached)
        operator.kill()
        operator.start(ready=False)
    slow_world.available(SIZE)
    assert len(slow_world.workers()) == SIZE
    assert made_once(slow_world, SIZE)
    wait_until(lambda: len(slow_world.adapters()) == SIZE)


def test_an_operator_that_is_killed_during_a_deletion_finishes_it(world: Scene, operator: Operator) -> None:
    world.make_pool(5)
    world.available(5)
    world.stack.delete(names.WORKER_POOLS, world.namespace, "pool")
    operator.kill()
    operator.start()
    wait_until(lambda: world.stack.get(names.WORKER_POOLS, world.namespace, "pool") is None)
    assert world.workers() == world.machines() == world.adapters() == []


def test_a_worker_deleted_while_no_operator_runs_leaves_no_machine(world: Scene, operator: Operator) -> None:
    world.make_pool(2)
    world.available(2)
    operator.kill()
    world.stack.patch(names.WORKER_POOLS, world.namespace, "pool", {"spec": {"replicas": 1}})
    world.stack.delete(names.WORKERS, world.namespace, "pool-1")
    operator.start()
    world.available(1)
    wait_until(lambda: len(world.machines()) == len(world.adapters()) == 1)


def test_two_operators_at_once_start_each_worker_once(slow_world: Scene, stack: Stack) -> None:
    second = stack.operator("second", lease_name="second-operator")
    second.start()
    try:
        slow_world.make_pool(SIZE)
        slow_world.available(SIZE)
        assert len(slow_world.workers()) == SIZE
        assert made_once(slow_world, SIZE)
        stack.patch(names.WORKER_POOLS, slow_world.namespace, "pool", {"spec": {"replicas": 5}})
        slow_world.available(5)
        wait_until(lambda: len(slow_world.adapters()) == len(slow_world.machines()) == 5)
        assert {path.name for path in slow_world.machines()} < {str(index) for index in range(SIZE)}
    finally:
        second.stop()


def test_a_pool_does_not_flap_when_the_broker_is_killed_and_comes_back(world: Scene, stack: Stack) -> None:
    if not isinstance(stack.broker, LocalBroker):
        pytest.skip("this broker is not ours to kill")
    world.make_pool(3)
    world.available(3)
    before = {item["metadata"]["uid"]: condition(item, "Ready") for item in world.workers()}
    stack.broker.stop(grace_seconds=0)
    world.stack.patch(names.WORKER_POOLS, world.namespace, "pool", {"spec": {"replicas": 4}})
    wait_until(lambda: condition(world.pool(), "Available")["reason"] == "BrokerUnreachable")
    stack.broker.start()
    world.available(4)
    after = {item["metadata"]["uid"]: condition(item, "Ready") for item in world.workers()}
    assert {uid: after.get(uid) for uid in before} == before
    assert not world.pool()["status"].get("failures")


def test_a_standby_takes_over_when_the_leader_ends(world: Scene, operator: Operator, stack: Stack) -> None:
    standby = stack.operator("standby")
    standby.start(ready=False)
    try:
        wait_until(lambda: re.search(r"lease.*(?<!no operator) leads", standby.try_answer("readyz")))
        operator.process.stop(20)
        wait_until(standby.is_ready)
        world.make_pool(1)
        world.available(1)
    finally:
        standby.stop()


def test_a_leader_that_cannot_renew_its_lease_ends(stack: Stack, operator: Operator) -> None:
    identity = operator.process.identity
    assert identity is not None
    stack.control_plane.kubectl(
        "patch", "lease", names.OPERATOR, f"--namespace={names.SYSTEM_NAMESPACE}", "--type=merge",
        "--patch", '{"spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 600}}',
    )  # fmt: skip
    try:
        assert identity.wait_gone(60)
    finally:
        stack.control_plane.kubectl("delete", "lease", names.OPERATOR, f"--namespace={names.SYSTEM_NAMESPACE}")


def test_sigterm_ends_an_operator_at_once_and_frees_its_lease(stack: Stack, operator: Operator) -> None:
    operator.signal(signal.SIGTERM)
    assert operator.gone_within(10)
    lease = stack.control_plane.kubectl(
        "get", "lease", names.OPERATOR, f"--namespace={names.SYSTEM_NAMESPACE}", "-o=jsonpath={.spec.holderIdentity}"
    )
    assert lease == ""
