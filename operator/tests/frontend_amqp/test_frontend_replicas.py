# SPDX-License-Identifier: Apache-2.0
"""Two replicas of a frontend, on a real API server and a real broker: one client sees its own writes on both."""

import asyncio
import contextlib
import secrets
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from amqp_frontends import PASSWORD, until

from kube_api import Api
from simyard.api import names
from simyard.frontend.changes.written import Record, Written
from simyard.frontend.exchange import Identity, OcciRequest, OcciResponse, parse_target
from simyard.frontend.handlers import Handlers
from simyard.frontend.objects import Objects
from simyard.frontend.replicas import Replicas
from simyard.manifests import install
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.topology import build_frontend_user_spec, build_platform_specs
from simyard_dev.broker import Broker
from simyard_dev.controlplane import ControlPlane
from simyard_sites.kubernetes.client import KubeClient, WatchEvent
from simyard_sites.kubernetes.resource import Resource

ADMINISTRATOR = Identity("admin", "", ("system:masters",), ())
TAG = 'Category: tag; scheme="http://example.org/tags#"; class="mixin"; location="/tag/"'
WORKERS = 12


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Api:
    api = Api(control_plane.kubeconfig)
    api.install(install.build_objects())
    return api


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    namespace = f"replicas-{uuid.uuid4().hex[:8]}"
    assert api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}).accepted
    for number in range(WORKERS):
        worker = {
            "apiVersion": names.API_VERSION,
            "kind": "Worker",
            "metadata": {"name": f"w{number}", "namespace": namespace},
            "spec": {"serviceRef": {"name": "anything"}, "site": "nowhere"},
        }
        assert api.create(worker).accepted
    yield namespace
    api.request("DELETE", f"/api/v1/namespaces/{namespace}")


@pytest.fixture
async def access(broker: Broker) -> AsyncIterator[BrokerAccess]:
    """Return the access of the frontends' user to the installation's virtual host."""
    if broker.management_url is None:
        pytest.skip("RABBITMQ_MANAGEMENT_URL is not set")
    digits = secrets.token_hex(8)
    ca_file = broker.ca_file if "amqps:" in broker.url else None
    platform = BrokerAccess.from_url(broker.url, broker.management_url, ca_file).enter_vhost(f"test/{digits}")
    user = replace(build_frontend_user_spec(), name=f"frontend-{digits}")
    async with contextlib.aclosing(BrokerAdmin(platform)) as admin:
        await admin.ensure_vhost()
        try:
            await admin.ensure_platform(build_platform_specs())
            await admin.ensure_user(user, PASSWORD)
            yield platform.as_user(user.name, PASSWORD)
        finally:
            await admin.delete_user(user.name)
            await admin.delete_vhost()


class SlowWatch:
    """A client of the API server whose watches deliver nothing until the test releases them."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.released = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def watch(self, resource: Resource, namespace: str = "", **options: Any) -> AsyncIterator[WatchEvent]:
        await self.released.wait()
        async for event in self._client.watch(resource, namespace, **options):
            yield event


@dataclass
class Replica:
    objects: Objects
    client: SlowWatch

    async def ask(self, method: str, target: str, body: str = "", **headers: str) -> OcciResponse:
        path, query = parse_target(target, "target")
        sent = [(name.replace("_", "-"), value) for name, value in headers.items()]
        request = OcciRequest(method, path, query, sent, body.encode(), ADMINISTRATOR, "https://h")
        return await Handlers(self.objects).handle(request)


@contextlib.asynccontextmanager
async def replicas(
    control_plane: ControlPlane, namespace: str, access: BrokerAccess, count: int = 2, *, slow: bool = True
) -> AsyncIterator[list[Replica]]:
    """Run this number of replicas that know each other; with ``slow``, their watches deliver nothing by themselves."""
    async with contextlib.AsyncExitStack() as stack:
        made: list[Replica] = []
        tasks: list[asyncio.Task[Any]] = []
        for _ in range(count):
            client = SlowWatch(await stack.enter_async_context(await KubeClient.connect(control_plane.kubeconfig)))
            if not slow:
                client.released.set()
            objects = Objects(client, namespace)  # type: ignore[arg-type]
            objects.broker.set_access(access)
            made.append(Replica(objects, client))
            tasks += [asyncio.create_task(run) for run in (objects.run(), objects.broker.run())]
        try:
            await until(lambda: all(one.objects.synced and one.objects.replicas.known == count - 1 for one in made))
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def computes(replica: Replica) -> Sequence[str]:
    response = await replica.ask("GET", "/compute/", accept="text/uri-list")
    return [uri.removeprefix("https://h") for uri in response.body.decode().split()]


async def test_a_client_sees_its_writes_on_every_replica_however_late_the_watch_is(
    control_plane: ControlPlane, namespace: str, access: BrokerAccess
) -> None:
    async with replicas(control_plane, namespace, access, 3) as (one, *others):
        path = (await computes(one))[0]
        title = 'X-OCCI-Attribute: occi.core.title="mine"'
        assert (await one.ask("POST", path, title)).status == 200
        assert (await one.ask("POST", "/-/", TAG)).status == 200
        assert (await one.ask("POST", "/tag/", f"X-OCCI-Location: {path}")).status == 200
        for other in others:
            shown = (await other.ask("GET", path)).body.decode()
            assert 'occi.core.title="mine"' in shown and "tags#" in shown
            assert path in (await other.ask("GET", "/tag/")).body.decode()
        assert (await others[0].ask("DELETE", path)).status == 200
        for replica in (one, *others):
            assert (await replica.ask("GET", path)).status == 404
            assert path not in await computes(replica)
            assert (await replica.ask("GET", "/tag/")).body == b""
        assert (await one.ask("DELETE", "/compute/")).status == 200
        for replica in (one, *others):
            assert await computes(replica) == []


async def test_under_load_no_replica_shows_what_was_before_a_client_s_own_write(
    control_plane: ControlPlane, namespace: str, access: BrokerAccess
) -> None:
    async with replicas(control_plane, namespace, access, slow=False) as (one, other):
        paths = await computes(one)
        assert len(paths) == WORKERS

        async def client(path: str, here: Replica, there: Replica) -> None:
            for number in range(5):
                changed = await here.ask("POST", path, f'X-OCCI-Attribute: occi.core.title="{number}"')
                assert changed.status == 200, changed.body
                assert f'occi.core.title="{number}"' in (await there.ask("GET", path)).body.decode()
                here, there = there, here
            assert (await here.ask("DELETE", path)).status == 200
            assert (await there.ask("GET", path)).status == 404
            assert path not in await computes(there)

        async with asyncio.TaskGroup() as group:
            for number, path in enumerate(paths):
                group.create_task(client(path, *((one, other) if number % 2 else (other, one))))


async def nothing(*_: object) -> None:
    raise AssertionError("nobody writes to this one")


@contextlib.asynccontextmanager
async def running(access: BrokerAccess, *replicas: Replicas) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run replicas without a backend."""
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(replica.run(access)) for replica in replicas]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


RECORD = Record({("workers", "u"): Written("workers", "n", "w", "u", 1)})


async def test_a_replica_that_has_ended_is_not_waited_for(access: BrokerAccess) -> None:
    writer, ended = Replicas("g", nothing, confirm_seconds=3600), Replicas("g", nothing)
    async with running(access, writer):
        async with running(access, ended):
            await until(lambda: writer.known == 1)
        async with asyncio.timeout(240):
            await writer.wait_confirmed(RECORD)
        assert writer.known == 0


async def test_a_replica_that_hangs_delays_one_write_and_is_waited_for_again_when_it_is_heard(
    access: BrokerAccess,
) -> None:
    wakes, applied = asyncio.Event(), 0

    async def hang(*_: object) -> None:
        nonlocal applied
        await wakes.wait()
        applied += 1

    writer = Replicas("g", nothing, confirm_seconds=0.2)
    hanging, stranger = Replicas("g", hang), Replicas("another", nothing)
    async with running(access, writer, hanging, stranger):
        await until(lambda: writer.known == hanging.known == 1)
        await writer.wait_confirmed(RECORD)
        assert (writer.known, applied) == (0, 0)
        await writer.wait_confirmed(RECORD)  # waits for no replica
        wakes.set()
        await until(lambda: writer.known == 1 and applied == 2)
        await writer.wait_confirmed(RECORD)
        assert (writer.known, stranger.known, applied) == (1, 0, 3)


async def test_without_a_broker_a_write_is_answered_all_the_same() -> None:
    await Replicas("g", nothing).wait_confirmed(RECORD)
