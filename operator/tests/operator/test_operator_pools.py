# SPDX-License-Identifier: Apache-2.0
"""Pools with the real parts: kube-apiserver, RabbitMQ, an emulated site, adapter processes."""

import os
import signal

import pytest
from operator_stack import SERVICE, Operator, Scene, Stack, condition, wait_until

from simyard.api import names
from simyard_adapter.wire import name_pool_queue, name_pool_user, name_standalone_user

pytestmark = pytest.mark.xdist_group("operator")


def test_a_pool_becomes_available_and_says_how_its_start_went(world: Scene) -> None:
    world.make_pool(3)
    pool = world.available(3)
    start = pool["status"]["start"]
    assert start["workers"] == 3
    assert 0 <= start["bootMilliseconds"] <= start["registeredMilliseconds"]
    workers = world.workers()
    assert {item["metadata"]["name"] for item in workers} == {"pool-0", "pool-1", "pool-2"}
    for worker in workers:
        stages = worker["status"]["stages"]
        times = [stages[name] for name in ("start", "pending", "prolog", "boot", "running", "registered")]
        assert times == sorted(times)
        assert worker["status"]["attributes"] == {"state": "idle", "load": 10}
    assert len(world.machines()) == len(world.adapters()) == 3


def test_a_pool_follows_its_replicas_up_and_down(world: Scene) -> None:
    world.make_pool(3, scaleIn={"drainSeconds": 5})
    world.available(3)
    before = world.ready_uids()
    for replicas in (5, 2, 0):
        world.stack.patch(names.WORKER_POOLS, world.namespace, "pool", {"spec": {"replicas": replicas}})
        pool = world.available(replicas)
        wait_until(lambda replicas=replicas: len(world.adapters()) == len(world.machines()) == replicas)
        assert len(world.workers()) == replicas
        if replicas == 5:
            assert before < world.ready_uids()
    assert condition(pool, "Available")["reason"] == "ScaledToZero"


def test_a_deleted_pool_leaves_no_process_machine_queue_user_or_object(world: Scene) -> None:
    uid = world.make_pool(3)["metadata"]["uid"]
    world.available(3)
    user = name_pool_user(uid)
    stack = world.stack
    assert user in stack.broker_names("users")
    assert len([name for name in stack.broker_names("queues") if user in name]) == 4
    stack.delete(names.WORKER_POOLS, world.namespace, "pool")
    wait_until(lambda: stack.get(names.WORKER_POOLS, world.namespace, "pool") is None)
    assert world.workers() == []
    assert world.machines() == []
    assert world.adapters() == []
    assert not [name for name in stack.broker_names("queues") if user in name]
    assert name_pool_queue(user) not in stack.broker_names("queues")
    assert user not in stack.broker_names("users")


def test_a_site_stays_until_its_workers_are_gone(world: Scene) -> None:
    stack = world.stack
    world.make_pool(1)
    world.available(1)
    stack.delete(names.CLOUD_SITES, "", world.site)
    wait_until(
        lambda: condition(stack.get(names.CLOUD_SITES, "", world.site) or {}, "Ready")["reason"] == "WorkersRemain"
    )
    stack.delete(names.WORKER_POOLS, world.namespace, "pool")
    wait_until(lambda: stack.get(names.CLOUD_SITES, "", world.site) is None)


def test_a_worker_deleted_by_hand_is_replaced_under_its_name(world: Scene) -> None:
    world.make_pool(2)
    world.available(2)
    before = world.ready_uids()
    world.stack.delete(names.WORKERS, world.namespace, "pool-0")
    wait_until(lambda: len(world.ready_uids()) == 2 and len(before & world.ready_uids()) == 1)
    wait_until(lambda: len(world.machines()) == len(world.adapters()) == 2)
    assert {item["metadata"]["name"] for item in world.workers()} == {"pool-0", "pool-1"}


def test_a_killed_adapter_comes_back_without_its_worker_being_replaced(world: Scene) -> None:
    world.make_pool(1)
    world.available(1)
    before = world.ready_uids()
    killed = world.adapters()
    for identity in killed:
        os.kill(identity.pid, signal.SIGKILL)
    wait_until(lambda: world.adapters() and world.adapters() != killed)
    assert world.ready_uids() == before


async def test_a_machine_that_its_site_loses_is_replaced(world: Scene) -> None:
    world.make_pool(2)
    world.available(2)
    before = world.ready_uids()
    await world.lose_a_machine()
    wait_until(lambda: len(world.ready_uids()) == 2 and len(before & world.ready_uids()) == 1)
    wait_until(lambda: len(world.machines()) == 2)
    wait_until(lambda: [item["reason"] for item in world.pool()["status"].get("failures", [])] == ["MachineLost"])
    world.available(2)


def test_what_stands_in_the_way_is_named(world: Scene) -> None:
    stack = world.stack
    spec = {"serviceRef": {"name": "absent"}, "replicas": 1}
    stack.make(names.WORKER_POOLS, world.namespace, "orphan", spec)
    world.make_pool(1, "nowhere", placement={"sites": ["no-such-site"]})
    world.make_pool(1, "wrong", attributes={"load": -1})
    expected = {"orphan": "ServiceNotFound", "nowhere": "SiteNotFound", "wrong": "AttributesInvalid"}
    for name, reason in expected.items():
        wait_until(lambda name=name, reason=reason: condition(world.pool(name), "Available")["reason"] == reason, name)
    assert "load" in condition(world.pool("wrong"), "Available")["message"]
    assert world.workers() == []


def test_an_operator_that_starts_anew_changes_nothing(world: Scene, operator: Operator, stack: Stack) -> None:
    world.make_pool(2)
    world.available(2)
    operator.stop()
    before = {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in [world.pool(), *world.workers()]}
    operator.start()
    wait_until(lambda: f'simyard_machines{{site="{world.site}",state="Running"}} 2.0' in operator.answer("metrics"))
    after = {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in [world.pool(), *world.workers()]}
    assert after == before


def test_a_worker_that_stands_alone_becomes_ready_and_leaves_nothing(world: Scene) -> None:
    stack = world.stack
    spec = {"serviceRef": {"name": SERVICE}, "site": world.site, "attributes": {"load": 3}}
    uid = stack.make(names.WORKERS, world.namespace, "alone", spec)["metadata"]["uid"]
    wait_until(lambda: uid in world.ready_uids())
    assert stack.broker_names("users") >= {name_standalone_user(uid)}
    assert world.workers()[0]["status"]["attributes"]["load"] == 3
    stack.delete(names.WORKERS, world.namespace, "alone")
    wait_until(lambda: not world.machines() and not world.adapters())
    wait_until(lambda: name_standalone_user(uid) not in stack.broker_names("users"))
    assert not [name for name in stack.broker_names("queues") if uid in name]


def test_a_namespace_can_be_deleted_with_all_that_runs_in_it(world: Scene) -> None:
    world.make_pool(2)
    world.available(2)
    world.stack.api.request("DELETE", f"/api/v1/namespaces/{world.namespace}")
    wait_until(lambda: not world.stack.api.request("GET", f"/api/v1/namespaces/{world.namespace}").accepted)
    wait_until(lambda: not world.machines() and not world.adapters())
