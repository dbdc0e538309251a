# SPDX-License-Identifier: Apache-2.0
"""The accounts of frontends at a real API server: made and bound by an operator that has its own rights and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from frontend_stage import SERVICE, FrontendStage, StageClient

from simyard.api import names
from simyard.api.base import Json
from simyard.fleet.frontends.occi_broker import OcciBroker
from simyard.manifests.frontend_account import BINDING, ROLE_BINDINGS, SERVICE_ACCOUNTS
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard_dev.broker import Broker
from simyard_dev.controlplane import ControlPlane
from simyard_sites.kubernetes.errors import ForbiddenError, NotFoundError

FRONTEND: Json = {"replicas": 1}


@pytest.fixture
async def stages(installed: ControlPlane, tmp_path: Path) -> AsyncIterator[tuple[FrontendStage, FrontendStage]]:
    """Two namespaces of one platform, whose operators have the operator's account."""
    kubeconfig = tmp_path / "operator.kubeconfig"
    installed.write_service_account_kubeconfig(kubeconfig, names.SYSTEM_NAMESPACE, names.OPERATOR)
    platform = names.SYSTEM_NAMESPACE
    async with (
        FrontendStage.open(installed.kubeconfig, platform=platform, operator=kubeconfig) as one,
        FrontendStage.open(installed.kubeconfig, platform=platform, operator=kubeconfig) as other,
    ):
        yield one, other


@pytest.fixture
async def no_queues(broker: Broker) -> AsyncIterator[OcciBroker]:
    access = BrokerAccess.from_url(broker.url, broker.management_url or "")
    admin = BrokerAdmin(access)
    yield OcciBroker(access, admin, clients=False, endpoints=())
    await admin.aclose()


async def binding(stage: FrontendStage) -> Json | None:
    try:
        return await stage.client.get(ROLE_BINDINGS, BINDING, stage.namespace)
    except NotFoundError:
        return None


async def bound(stage: FrontendStage, *accounts: str) -> bool:
    found = await binding(stage)
    return sorted(item["name"] for item in (found or {}).get("subjects") or ()) == sorted(accounts)


async def test_a_frontends_account_writes_in_its_namespace_alone(
    stages: tuple[FrontendStage, FrontendStage], no_queues: OcciBroker, installed: ControlPlane, tmp_path: Path
) -> None:
    one, other = stages
    async with one.operator(no_queues), other.operator(no_queues):
        for stage in stages:
            await stage.publish(**FRONTEND)
            await stage.until(lambda stage=stage: bound(stage, stage.name), "its account is bound")
        kubeconfig = tmp_path / "frontend.kubeconfig"
        installed.write_service_account_kubeconfig(kubeconfig, names.SYSTEM_NAMESPACE, one.name)
        async with await StageClient.connect(kubeconfig) as client:
            for kind, spec in WRITTEN:
                body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "made"}, "spec": spec}
                await client.create(kind, body, one.namespace)
                with pytest.raises(ForbiddenError):
                    await client.create(kind, body, other.namespace)
            assert await client.list_all(names.WORKERS, one.namespace)
            with pytest.raises(ForbiddenError):
                await client.list_all(names.WORKERS, other.namespace)


WRITTEN = (
    (names.WORKER_POOLS, {"serviceRef": {"name": SERVICE}, "replicas": 0}),
    (names.WORKERS, {"serviceRef": {"name": SERVICE}, "site": "nowhere", "powerState": "Stopped"}),
    (names.SERVICE_ACTIONS, {"target": {"kind": "WorkerPool", "name": "made"}, "action": "solve"}),
)


async def test_the_binding_comes_back_and_goes_when_frontends_are_switched_off(
    stages: tuple[FrontendStage, FrontendStage], no_queues: OcciBroker
) -> None:
    stage, _ = stages
    async with stage.operator(no_queues):
        await stage.publish(**FRONTEND)
        await stage.until(lambda: bound(stage, stage.name), "the account is bound")
        await stage.client.delete(ROLE_BINDINGS, BINDING, stage.namespace)
        await stage.until(lambda: bound(stage, stage.name), "the binding is made again")
        foreign = {"subjects": [{"kind": "User", "apiGroup": ROLE_BINDINGS.group, "name": "eve"}]}
        await stage.client.patch(ROLE_BINDINGS, BINDING, foreign, stage.namespace)
        await stage.until(lambda: bound(stage, stage.name), "nobody else is bound")
        await stage.change(None)
        await stage.until(lambda: absent(stage), "account and binding are removed")


async def test_another_binding_of_that_name_is_replaced(
    stages: tuple[FrontendStage, FrontendStage], no_queues: OcciBroker
) -> None:
    stage, _ = stages
    role = {"apiGroup": ROLE_BINDINGS.group, "kind": "ClusterRole", "name": "view"}
    body = {"apiVersion": ROLE_BINDINGS.api_version, "kind": ROLE_BINDINGS.kind, "metadata": {"name": BINDING}}
    await stage.client.create(ROLE_BINDINGS, {**body, "roleRef": role}, stage.namespace)
    async with stage.operator(no_queues):
        await stage.publish(**FRONTEND)
        await stage.until(lambda: bound(stage, stage.name), "the account is bound")
        found = await binding(stage)
        assert found is not None
        assert found["roleRef"]["name"] == names.FRONTEND


async def test_the_binding_goes_with_the_last_service_also_without_an_operator(
    stages: tuple[FrontendStage, FrontendStage], no_queues: OcciBroker
) -> None:
    stage, _ = stages
    async with stage.operator(no_queues):
        await stage.publish(**FRONTEND)
        await stage.until(lambda: bound(stage, stage.name), "the account is bound")
    await stage.withdraw()
    await stage.until(lambda: bound(stage), "Kubernetes removes the binding")
    async with stage.operator(no_queues):
        await stage.until(lambda: absent(stage), "the next operator removes the account")


async def absent(stage: FrontendStage) -> bool:
    return await binding(stage) is None and await stage.part(SERVICE_ACCOUNTS) is None
