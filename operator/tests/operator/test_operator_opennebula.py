# SPDX-License-Identifier: Apache-2.0
"""A site of OpenNebula, through a whole operator.

A real kube-apiserver, RabbitMQ, adapter processes. Simulated: oned (``simyard_simulators.oned``). Played: its hosts
(``one_hosts``).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from one_hosts import OneHosts
from operator_stack import SERVICE, Operator, Scene, Stack, condition, scene, unique, wait_until

from simyard.api import names
from simyard.api.base import Json
from simyard_sites.kubernetes.resource import Resource

pytestmark = pytest.mark.xdist_group("operator")

SECRETS = Resource("", "v1", "secrets", "Secret")
LOGIN = {"username": "simyard", "password": "wrong"}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[OneHosts]:
    with OneHosts(tmp_path) as hosts:
        yield hosts


@pytest.fixture
def world(stack: Stack, operator: Operator, hosts: OneHosts) -> Iterator[Scene]:
    """A scene whose site is an OpenNebula; the password in its Secret is wrong."""
    with scene(stack) as made:
        image = {"spec": {"images": {"openNebula": "debian"}}}
        stack.patch(names.SIMULATION_SERVICES, made.namespace, SERVICE, image)
        made.site = unique("one")
        secret = stack.manifest(SECRETS, names.SYSTEM_NAMESPACE, made.site)
        del secret["spec"]
        answer = stack.api.create({**secret, "stringData": LOGIN})
        assert answer.accepted, answer.message
        provider = {
            "endpoint": hosts.url,
            "credentialsSecretRef": {"name": made.site},
            "template": "worker",
            "imageOwner": "oneadmin",
            "loginTokenSeconds": 600,
            "pollMilliseconds": 100,
            "quietPollSeconds": 2,
        }
        stack.make(names.CLOUD_SITES, "", made.site, {"provider": {"openNebula": provider}})
        yield made


def site_ready(world: Scene) -> Json:
    return condition(world.stack.get(names.CLOUD_SITES, "", world.site) or {}, "Ready")


def test_a_pool_on_opennebula_from_the_wrong_password_to_the_last_worker(world: Scene, hosts: OneHosts) -> None:
    wait_until(lambda: site_ready(world)["reason"] == "Unauthenticated", "the password is said to be wrong")
    assert "spec.provider.openNebula.credentialsSecretRef" in site_ready(world)["message"]
    secret = {"stringData": {"password": "secret"}}
    world.stack.patch(SECRETS, names.SYSTEM_NAMESPACE, world.site, secret)
    world.stack.patch(names.CLOUD_SITES, "", world.site, {"spec": {"limits": {"maxWorkers": 10}}})
    wait_until(lambda: site_ready(world)["status"] == "True", "the site is ready")

    world.make_pool(2)
    world.available(2)
    workers = {item["metadata"]["name"]: item for item in world.workers()}
    assert workers.keys() == {"pool-0", "pool-1"}
    expected = {f"{name}-{item['metadata']['uid'][:8]}" for name, item in workers.items()}
    assert hosts.vms().keys() == expected
    assert all(item["status"]["stages"].get("running") for item in workers.values())

    _stops_and_starts(world)
    _is_replaced_when_it_fails(world, hosts)
    world.stack.patch(names.WORKER_POOLS, world.namespace, "pool", {"spec": {"replicas": 0}})
    wait_until(lambda: not hosts.vms(), "no machine is left")


def _stops_and_starts(world: Scene) -> None:
    def worker() -> Json:
        return world.stack.get(names.WORKERS, world.namespace, "pool-0") or {}

    uid = worker()["metadata"]["uid"]
    world.stack.patch(names.WORKERS, world.namespace, "pool-0", {"spec": {"powerState": "Stopped"}})
    wait_until(lambda: worker()["status"].get("machineState") == "Stopped", "it is stopped")
    world.stack.patch(names.WORKERS, world.namespace, "pool-0", {"spec": {"powerState": "Running"}})
    world.available(2)
    assert worker()["metadata"]["uid"] == uid


def _is_replaced_when_it_fails(world: Scene, hosts: OneHosts) -> None:
    before = dict(hosts.vms())
    name = next(name for name in before if name.startswith("pool-1-"))
    hosts.fail(before[name])
    wait_until(lambda: name not in hosts.vms(), "the machine that failed is gone")
    wait_until(lambda: world.pool()["status"].get("failures"), "the pool tells of it")
    [failure] = world.pool()["status"]["failures"]
    assert failure["message"].startswith("BootFailure")
    world.available(2)
