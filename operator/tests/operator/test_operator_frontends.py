# SPDX-License-Identifier: Apache-2.0
"""Frontends at a real API server: made, repaired, scaled by their load, removed, across restarts of the operator."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import aiohttp
import pytest
from frontend_stage import SERVICE, Figures, FrontendStage, shown

from simyard.api.base import Json
from simyard.api.frontend import FrontendsStatus
from simyard.api.frontend_pod import FrontendPod
from simyard.fleet.frontends.occi_broker import OcciBroker
from simyard.manifests.frontend import BUDGETS, DEPLOYMENTS, SERVICES, build_frontend
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import open_connection
from simyard.messaging.occi_topology import name_request_queue
from simyard_dev.broker import Broker
from simyard_dev.controlplane import ControlPlane

ALL = {"ServiceAccount", "RoleBinding", "Deployment", "Service", "PodDisruptionBudget"}
ADDRESSES = [f"127.0.7.{number}" for number in range(1, 9)]


@pytest.fixture
async def stage(installed: ControlPlane) -> AsyncIterator[FrontendStage]:
    async with FrontendStage.open(installed.kubeconfig) as stage:
        yield stage


@pytest.fixture
async def no_queues(broker: Broker) -> AsyncIterator[OcciBroker]:
    """Clients speak HTTP alone."""
    access = BrokerAccess.from_url(broker.url, broker.management_url or "")
    admin = BrokerAdmin(access)
    yield OcciBroker(access, admin, clients=False, endpoints=())
    await admin.aclose()


async def test_they_are_made_changed_and_removed_as_the_service_says(
    stage: FrontendStage, no_queues: OcciBroker
) -> None:
    async with stage.operator(no_queues):
        await stage.publish(replicas=2)
        await stage.until(lambda: has(stage, ALL, 2), "they are made")
        await stage.change({"replicas": 1})
        await stage.until(lambda: has(stage, ALL - {"PodDisruptionBudget"}, 1), "one is left")
        await stage.change({"replicas": None, "autoscaling": {"minReplicas": 3}})
        await stage.until(lambda: has(stage, ALL, 3), "minReplicas")
        await stage.change(None)
        await stage.until(lambda: has(stage, set(), None), "they are removed")


async def test_what_others_change_is_put_right(stage: FrontendStage, no_queues: OcciBroker) -> None:
    async with stage.operator(no_queues):
        await stage.publish(replicas=2)
        await stage.until(lambda: has(stage, ALL, 2), "they are made")
        changes: list[Json] = [
            {"spec": {"replicas": 7}},
            {"metadata": {"labels": {"app.kubernetes.io/component": "other"}}},
            {"spec": {"template": {"spec": {"serviceAccountName": "default"}}}},
        ]
        for change in changes:
            found = await stage.client.patch(DEPLOYMENTS, stage.name, change, stage.platform)
            await stage.until(partial(is_other, stage, found), f"{change} is put right")
        for kind in (SERVICES, BUDGETS, DEPLOYMENTS):
            await stage.client.delete(kind, stage.name, stage.platform)
        await stage.until(lambda: has(stage, ALL, 2), "they are made again")


async def test_a_restart_writes_nothing_where_nothing_differs(stage: FrontendStage, no_queues: OcciBroker) -> None:
    async with stage.operator(no_queues):
        await stage.publish(replicas=2)
        await stage.until(lambda: has(stage, ALL, 2), "they are made")
    async with stage.operator(no_queues) as operator:
        # What is put right last tells that all was looked at.
        await stage.client.delete(BUDGETS, stage.name, stage.platform)
        await stage.until(lambda: has(stage, ALL, 2), "the budget is made again")
        assert len(operator.applied()) == 1
    other = replace(stage.template, image="simyard:next")
    async with stage.operator(no_queues, template=other):
        await stage.until(lambda: has_image(stage, "simyard:next"), "another image is rolled out")
    pod = FrontendPod.from_json('{"logLevel": "debug", "resources": {"requests": {"cpu": 0.5}}}')
    async with stage.operator(no_queues, template=replace(other, pod=pod)):
        await stage.until(lambda: has_argument(stage, "--log-level=debug"), "other pods are rolled out")
    async with stage.operator(no_queues, template=replace(other, pod=pod)) as operator:
        await stage.client.delete(BUDGETS, stage.name, stage.platform)
        await stage.until(lambda: has(stage, ALL, 2), "the budget is made again")
        assert len(operator.applied()) == 1


@pytest.mark.parametrize("offers", [True, False], ids=["with-an-image", "without-one"])
async def test_what_a_service_left_while_no_operator_ran_is_removed(
    stage: FrontendStage, no_queues: OcciBroker, offers: bool
) -> None:
    async with stage.operator(no_queues):
        await stage.publish(replicas=2)
        await stage.until(lambda: has(stage, ALL, 2), "they are made")
    await stage.withdraw()
    async with stage.operator(no_queues, offers=offers):
        await stage.until(lambda: has(stage, set(), None), "they are removed")


async def test_a_service_that_only_cannot_be_read_keeps_them(stage: FrontendStage, no_queues: OcciBroker) -> None:
    async with stage.operator(no_queues) as operator:
        await stage.publish(replicas=2)
        await stage.until(lambda: has(stage, ALL, 2), "they are made")
        before = len(operator.applied())
        service = operator.registry.services.get(stage.namespace, SERVICE)
        assert service is not None
        operator.registry.services.forget(service)
        await operator.frontends._queue.pass_now([(stage.namespace, SERVICE)])
        assert await has(stage, ALL, 2)
        assert len(operator.applied()) == before


async def test_the_status_counts_those_that_answer(stage: FrontendStage, no_queues: OcciBroker) -> None:
    async with stage.operator(no_queues):
        await stage.publish(replicas=2)
        await stage.until(lambda: available(stage, "False", "FrontendsStarting"), "none answers")
        status = await stage.status()
        assert status.endpoints == [stage.endpoint]
        assert status.frontends == FrontendsStatus(desired=2, ready=0)
        await stage.until(lambda: ready(stage, 2), "both answer")
        assert await available(stage, "True", "FrontendsReady")
    async with stage.operator(no_queues) as operator:
        await stage.change({"replicas": 3})
        await stage.until(lambda: has(stage, ALL, 3), "the next operator works")
        await stage.until(lambda: available(stage, "True", "FrontendsStarting"), "a third one starts")
        assert not [write for write in operator.client.writes if "/serviceactions" in write]
        await stage.change(None)
        await stage.until(lambda: available(stage, "", ""), "nothing is said any more")


async def test_what_the_server_refuses_stands_in_the_status(stage: FrontendStage, no_queues: OcciBroker) -> None:
    nowhere = replace(stage.template, namespace=f"{stage.platform}-not-there")
    async with stage.operator(no_queues, template=nowhere):
        await stage.publish(replicas=2)
        await stage.until(lambda: available(stage, "False", "FrontendsRefused"), "it is said")
        condition = await stage.condition("FrontendsAvailable")
        assert condition is not None
        assert nowhere.namespace in condition.message


async def test_an_operator_without_an_image_removes_them_and_says_so(
    stage: FrontendStage, no_queues: OcciBroker
) -> None:
    async with stage.operator(no_queues):
        await stage.publish(replicas=2)
        await stage.until(lambda: ready(stage, 2), "they are made")
    async with stage.operator(no_queues, offers=False):
        await stage.until(lambda: has(stage, set(), None), "they are removed")
        await stage.until(lambda: available(stage, "False", "FrontendsNotOffered"), "it is said")
        status = await stage.status()
        assert (status.frontends, status.endpoints) == (None, [])
    async with stage.operator(no_queues, offers=False) as operator:
        made = {item["kind"]: item for item in build_frontend(stage.namespace, SERVICE, 2, stage.template)}
        await stage.client.create(SERVICES, made["Service"], stage.platform)
        await stage.until(lambda: has(stage, set(), None), "what comes back is removed")
        assert [write.split()[0] for write in operator.applied()] == ["DELETE"]
    async with stage.operator(no_queues):
        await stage.until(lambda: ready(stage, 2), "they are made again")


async def test_slow_answers_bring_more_and_a_restart_keeps_them(stage: FrontendStage, no_queues: OcciBroker) -> None:
    figures = Figures(latency_seconds=0.5)
    async with shown(figures, ADDRESSES) as port:
        async with stage.operator(no_queues, port=port):
            await stage.publish(autoscaling={"minReplicas": 2, "maxReplicas": 8})
            await stage.until(lambda: ready(stage, 8, ADDRESSES), "twice as many, and again")
            await stage.until(lambda: scaling(stage, "False", "ScalingLimited"), "more would be needed")
            assert any("from 2 to 4" in note and "mean latency 500 ms" in note
                       for note in await stage.events("FrontendsScaled"))  # fmt: skip
        figures.latency_seconds = 0.001
        async with stage.operator(no_queues, port=port):
            looks = figures.looks
            await stage.until(lambda: seen(figures, looks + 30), "the next operator looks")
            await stage.until(lambda: scaling(stage, "True", "LoadFollowed"), "it has seen that all is well")
            assert await stage.replicas() == 8, "none goes before it was quiet for a while"


async def test_nothing_is_asked_while_no_service_scales_by_load(stage: FrontendStage, no_queues: OcciBroker) -> None:
    figures = Figures(latency_seconds=0.5)
    async with shown(figures, ADDRESSES) as port, stage.operator(no_queues, port=port):
        await stage.publish(replicas=2)
        await stage.until(lambda: ready(stage, 2, ADDRESSES), "they answer")
        await stage.change({"replicas": 3})
        await stage.until(lambda: ready(stage, 3, ADDRESSES), "three answer")
        assert figures.looks == 0


@asynccontextmanager
async def clients_broker(broker: Broker) -> AsyncIterator[tuple[OcciBroker, BrokerAccess]]:
    """A virtual host for AMQP clients, and the administrator's access to it."""
    home = BrokerAccess.from_url(broker.url, broker.management_url or "")
    access = replace(home, vhost=f"stage-{secrets.token_hex(4)}")
    admin = BrokerAdmin(home)
    occi = OcciBroker(access, admin, clients=True, endpoints=())
    there = replace(home, vhost=occi.vhost)
    clients = BrokerAdmin(there)
    authorization = {"Authorization": aiohttp.encode_basic_auth(home.username, home.password)}
    async with aiohttp.ClientSession(home.management_url, headers=authorization, raise_for_status=True) as session:
        await clients.ensure_vhost()
        try:
            yield occi, there
        finally:
            for part in (occi, admin, clients):
                await part.aclose()
            await session.delete(f"/api/vhosts/{occi.vhost}")


async def test_requests_that_wait_bring_more_and_the_queue_goes_with_the_service(
    stage: FrontendStage, broker: Broker
) -> None:
    async with clients_broker(broker) as (occi, access), stage.operator(occi) as operator:
        operator.frontends.broker_changed(reachable=True)
        await stage.publish(autoscaling={"minReplicas": 1, "maxReplicas": 8, "targetQueueDepth": 10})
        await stage.until(lambda: queued(occi, stage, 0), "the queue is made")
        async with open_connection(access, "a client") as connection:
            channel = await connection.channel()
            for _ in range(25):
                await channel.basic_publish(b"", routing_key=name_request_queue(stage.endpoint))
        await stage.until(lambda: has(stage, ALL, 3), "as many as the queue asks for")
        await stage.withdraw()
        await stage.until(lambda: has(stage, set(), None), "they are removed")
        assert await queued(occi, stage, None)


async def test_a_broker_that_comes_back_empty_gets_the_queue_again(stage: FrontendStage, broker: Broker) -> None:
    async with clients_broker(broker) as (occi, _), stage.operator(occi) as operator:
        await stage.publish(replicas=1)
        await stage.until(lambda: has(stage, ALL - {"PodDisruptionBudget"}, 1), "they do not wait for the broker")
        operator.frontends.broker_changed(reachable=True)
        await stage.until(lambda: queued(occi, stage, 0), "the queue is made")
        await occi.remove_queue(stage.endpoint)
        operator.frontends.broker_changed(reachable=False)
        operator.frontends.broker_changed(reachable=True)
        await stage.until(lambda: queued(occi, stage, 0), "it is made again")


async def test_a_queue_that_somebody_deletes_is_made_again(stage: FrontendStage, broker: Broker) -> None:
    async with clients_broker(broker) as (occi, _), stage.operator(occi) as operator:
        operator.frontends.broker_changed(reachable=True)
        await stage.publish(replicas=1)
        await stage.until(lambda: queued(occi, stage, 0), "the queue is made")
        await occi.remove_queue(stage.endpoint)
        await stage.until(lambda: queued(occi, stage, 0), "it is made again")


async def has(stage: FrontendStage, kinds: set[str], replicas: int | None) -> bool:
    return (await stage.kinds(), await stage.replicas()) == (kinds, replicas)


async def has_image(stage: FrontendStage, image: str) -> bool:
    found: Any = await stage.part(DEPLOYMENTS)
    return bool(found["spec"]["template"]["spec"]["containers"][0]["image"] == image)


async def has_argument(stage: FrontendStage, argument: str) -> bool:
    found: Any = await stage.part(DEPLOYMENTS)
    return argument in found["spec"]["template"]["spec"]["containers"][0]["args"]


async def is_other(stage: FrontendStage, spoilt: Json) -> bool:
    """It was written after it was spoilt, and is as it should be."""
    found: Any = await stage.part(DEPLOYMENTS)
    return (
        found["metadata"]["resourceVersion"] != spoilt["metadata"]["resourceVersion"]
        and found["spec"]["replicas"] == 2
        and found["metadata"]["labels"]["app.kubernetes.io/component"] == "frontend"
        and found["spec"]["template"]["spec"]["serviceAccountName"] == stage.name
    )


async def available(stage: FrontendStage, status: str, reason: str) -> bool:
    condition = await stage.condition("FrontendsAvailable")
    return (condition.status, condition.reason) == (status, reason) if condition is not None else not status


async def scaling(stage: FrontendStage, status: str, reason: str) -> bool:
    condition = await stage.condition("ScalingActive")
    return condition is not None and (condition.status, condition.reason) == (status, reason)


async def ready(stage: FrontendStage, number: int, addresses: list[str] | None = None) -> bool:
    await stage.make_ready(addresses or ())
    return (await stage.status()).frontends == FrontendsStatus(desired=number, ready=number)


async def seen(figures: Figures, looks: int) -> bool:
    await asyncio.sleep(0)
    return figures.looks >= looks


async def queued(occi: OcciBroker, stage: FrontendStage, messages: int | None) -> bool:
    found = (await occi.list_queues()).get(name_request_queue(stage.endpoint))
    return messages is None if found is None else messages is not None
