# SPDX-License-Identifier: Apache-2.0
"""OCCI clients' wishes carried out: a frontend's objects, an operator, real adapters, a real API server and broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fleet_life import WorldClient
from fleet_world import SERVICE, World, living
from living_operator import Operator

from simyard.api import names
from simyard.frontend.backend import Invocation, Verb
from simyard.frontend.entities.identifiers import make_object_name
from simyard.frontend.exchange import Identity
from simyard.frontend.objects import Objects
from simyard.manifests.frontend_account import build_bound_account
from simyard.occi.errors import OcciError
from simyard.occi.model import Draft, Entity, Mixin, Value
from simyard.occi.standard import AMQPLINK, COMPUTE, COMPUTE_ACTION_SCHEME, SSH_KEY, USER_DATA
from simyard.occi.validation import check_creation, check_invocation, check_update
from simyard_dev.controlplane import ControlPlane

ADMIN = Identity("admin", "", ("system:masters",), ())
SECONDS = 240.0
TAG = Mixin("http://example.org/tags#", "urgent", "Urgent", "/urgent/", applies=(COMPUTE,), user=True)


class Frontend:
    """Does what the handlers do."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def entity(self, path: str) -> Entity:
        found = self.objects.get_entity(path)
        assert found is not None, path
        return found

    def state(self, path: str) -> Value | None:
        found = self.objects.get_entity(path)
        return found.attributes["occi.compute.state"] if found is not None else None

    async def create(self, *mixins: str, kind: str = COMPUTE, key: str = "", **given: Any) -> Entity:
        return await self.objects.create(
            ADMIN, check_creation(Draft(kind, mixins, given), self.objects.get_model()), key=key
        )

    async def update(self, path: str, **given: Any) -> Entity:
        entity = self.entity(path)
        update = check_update(Draft(attributes=given), entity, self.objects.get_model(), False)
        return await self.objects.update(ADMIN, entity, update, replace=False)

    async def act(self, action: str, path: str, wait: bool = True, **given: Any) -> Any:
        entity, term = self.entity(path), action.rpartition("#")[2]
        found, attributes = check_invocation(
            Draft(action=action, attributes=given), term, entity, self.objects.get_model()
        )
        return await self.objects.act([entity], Invocation(ADMIN, found, attributes, wait))

    async def until(self, check: Callable[[], object], what: str) -> None:
        assert await self.objects.view.wait_until(lambda: bool(check()), SECONDS), what


Serve = Callable[[], AbstractAsyncContextManager[Frontend]]


@asynccontextmanager
async def serving(world: World, kubeconfig: Path) -> AsyncIterator[Frontend]:
    client = await WorldClient.connect(kubeconfig)
    client.namespace = client.site = world.name
    objects = Objects(client, world.name)
    objects.broker.set_access(world.access)
    async with client, asyncio.TaskGroup() as group:
        tasks = [group.create_task(objects.run()), group.create_task(objects.broker.run())]
        frontend = Frontend(objects)
        await world.until(lambda: objects.synced and objects.broker.connected, "the frontend is ready")
        yield frontend
        for task in tasks:
            task.cancel()


@pytest.fixture
async def world(make_world: Callable[[], Awaitable[World]]) -> World:
    return await make_world()


@pytest.fixture
async def operator(world: World) -> AsyncIterator[Operator]:
    async with living(world) as operator:
        await world.ready(operator)
        yield operator


@pytest.fixture
def serve(world: World, operator: Operator, installed: ControlPlane, tmp_path: Path) -> Serve:
    """Runs a frontend with the rights that frontends have, and no more."""
    kubeconfig = tmp_path / "frontend.kubeconfig"
    account = f"occi-{world.name}"
    for manifest in build_bound_account(account, world.name, names.SYSTEM_NAMESPACE):
        installed.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))
    installed.write_service_account_kubeconfig(kubeconfig, names.SYSTEM_NAMESPACE, account)
    return lambda: serving(world, kubeconfig)


@pytest.fixture
async def frontend(serve: Serve) -> AsyncIterator[Frontend]:
    async with serve() as frontend:
        yield frontend


async def test_the_life_of_a_compute(world: World, frontend: Frontend, tmp_path: Path) -> None:
    made = await frontend.create(
        f"http://simyard.dev/occi/os_tpl#{SERVICE}",
        "http://simyard.dev/occi/resource_tpl#medium",
        SSH_KEY,
        USER_DATA,
        **{
            "occi.credentials.ssh.publickey": "ssh-rsa A",
            "occi.compute.userdata": "#cloud-config\n",
            "occi.compute.hostname": "beam",
            "cloud4e.load": 20,
        },
    )
    path = made.path
    await frontend.until(lambda: frontend.state(path) == "active", "it is active")
    [request] = world.cloud.requests.values()
    assert (request.cores, request.memory_mib, request.hostname) == (2, 4096, "beam")
    assert (request.user_data, request.ssh_public_keys) == ("#cloud-config\n", ("ssh-rsa A",))
    await frontend.objects.refresh([frontend.entity(path)])
    assert frontend.entity(path).attributes["cloud4e.load"] == 20
    assert frontend.objects.measure_age_seconds(path) < SECONDS

    changed = await frontend.update(path, **{"cloud4e.load": 5, "occi.core.title": "Mine"})
    assert (changed.title, changed.attributes["cloud4e.load"]) == ("Mine", 5)
    with pytest.raises(OcciError, match="below the minimum"):
        await _status(frontend.update(path, **{"cloud4e.load": -1}))

    ledger = tmp_path / "ledger"
    result = await frontend.act(f"http://cloud4e/{SERVICE}/action#run", path, ledger=str(ledger))
    assert ledger.read_text().split() == [str(result["pid"])]
    with pytest.raises(OcciError, match="nonpositive jacobian") as failed:
        await frontend.act(f"http://cloud4e/{SERVICE}/action#refuse", path)
    assert failed.value.status == 400

    await frontend.act(f"{COMPUTE_ACTION_SCHEME}stop", path)
    assert frontend.state(path) == "inactive"
    await frontend.act(f"{COMPUTE_ACTION_SCHEME}start", path)
    assert frontend.state(path) == "active"
    await frontend.act(f"{COMPUTE_ACTION_SCHEME}restart", path)
    worker = make_object_name(made.id)

    def restarts() -> int | None:
        found = world.seen.workers.get(world.name, worker)
        return found.status.restarts if found is not None else None

    assert frontend.state(path) == "active"
    await world.until(lambda: restarts() == 1, "its site has restarted it")
    assert world.made_once()

    await frontend.objects.delete(ADMIN, [frontend.entity(path)])
    assert frontend.objects.get_entity(path) is None
    await world.until(lambda: not world.cloud.machines(), "its machine is gone")


async def _status(call: Awaitable[Any]) -> Any:
    """What the handlers make of refusals of parts that they share with the aggregated API."""
    try:
        return await call
    except OcciError:
        raise
    except Exception as error:
        raise OcciError(getattr(error, "code", 500), str(error)) from error


async def test_a_compute_of_a_pool_that_is_deleted_stays_gone_and_no_other_goes(
    world: World, frontend: Frontend
) -> None:
    application = f"/application/{frontend.objects.view.get_service(SERVICE).metadata.uid}"  # type: ignore[union-attr]
    await frontend.act(f"http://cloud4e/{SERVICE}/action#start_workers", application, n=4)
    pool = world.seen.pools.get(world.name, SERVICE)
    assert pool is not None
    paths = frontend.objects.list_paths("/compute/")
    assert [frontend.state(path) for path in paths] == ["active"] * 4
    assert frontend.entity(application).attributes["org.simyard.replicas"] == 4
    await frontend.objects.delete(ADMIN, [frontend.entity(paths[1])])
    await world.until(lambda: world.is_right(pool, 3), "three are left")
    assert frontend.objects.list_paths("/compute/") == (paths[0], *paths[2:])
    assert len(world.cloud.made) == 4, "nobody made another in its place"


async def test_what_one_frontend_makes_every_other_shows_and_none_loses_what_others_write(
    frontend: Frontend, serve: Serve
) -> None:
    async with serve() as other:
        made = await frontend.create(**{"occi.core.id": "mine"}, key="message-1")
        assert made.path == "/compute/mine"
        found = await other.objects.find(made.path)
        assert found is not None and found.id == "mine"
        again, foreign = await asyncio.gather(
            other.create(**{"occi.core.id": "mine"}, key="message-1"),
            other.create(**{"occi.core.id": "mine"}, key="message-2"),
        )
        assert again.path == made.path != foreign.path

        await frontend.objects.define(ADMIN, [TAG])
        await other.until(lambda: other.objects.get_model().find_mixin(TAG.id), "the mixin is known")
        paths = [made.path, foreign.path]
        for path in paths:
            await frontend.objects.find(path)
        await asyncio.gather(
            *(
                one.objects.associate(ADMIN, TAG, [path], replace=False)
                for one, path in ((frontend, paths[0]), (other, paths[1]), (frontend, paths[1]), (other, paths[0]))
            )
        )
        for one in (frontend, other):
            await one.until(lambda: sorted(one.objects.list_paths("/urgent/")) == sorted(paths), "both have it")  # noqa: B023
        await asyncio.gather(
            frontend.objects.dissociate(ADMIN, TAG, [paths[0]]), other.objects.dissociate(ADMIN, TAG, [paths[1]])
        )
        for one in (frontend, other):
            await one.until(lambda: one.objects.list_paths("/urgent/") == (), "neither has it")  # noqa: B023

        given = {"occi.core.source": made.path, "occi.core.target": "amqp:///q", "occi.amqplink.queue": "q"}
        link = await other.create(kind=AMQPLINK, **given)
        await frontend.until(lambda: frontend.objects.get_entity(link.path), "the link is shown")
        await frontend.objects.delete(ADMIN, [frontend.entity(made.path)])
        await other.until(lambda: other.objects.get_entity(link.path) is None, "it went with its compute")


async def test_who_may_not_is_refused(frontend: Frontend) -> None:
    nobody = Identity("nobody", "", (), ())
    for verb, path in ((Verb.LIST, "/compute/"), (Verb.CREATE, "/compute/"), (Verb.LIST, "/-/"), (Verb.CREATE, "/-/")):
        await frontend.objects.may(ADMIN, verb, path)
        with pytest.raises(OcciError) as refused:
            await frontend.objects.may(nobody, verb, path)
        assert refused.value.status == 403
