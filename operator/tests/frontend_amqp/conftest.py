# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a clients' virtual host for each test, with the frontends' queue and users as the platform creates them."""

import contextlib
import secrets
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kube_api import Api
from simyard.api import names
from simyard.manifests import install
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.occi_topology import (
    build_client_user_spec,
    build_clients_specs,
    build_frontend_clients_user_spec,
    build_request_queue_spec,
)
from simyard.messaging.topology import QueueKind
from simyard_dev.broker import Broker
from simyard_dev.controlplane import ControlPlane

sys.path.insert(0, str(Path(__file__).parent))

from amqp_frontends import ENDPOINT, PASSWORD, Vhost


@pytest.fixture
def queue_kind(request: pytest.FixtureRequest) -> QueueKind:
    """Return the kind of the shared queue; tests for which it matters run with both kinds."""
    kind: QueueKind = getattr(request, "param", QueueKind.CLASSIC)
    return kind


@pytest.fixture
async def vhost(broker: Broker, queue_kind: QueueKind) -> AsyncIterator[Vhost]:
    if broker.management_url is None:
        pytest.skip("RABBITMQ_MANAGEMENT_URL is not set")
    digits = secrets.token_hex(8)
    ca_file = broker.ca_file if "amqps:" in broker.url else None
    access = BrokerAccess.from_url(broker.url, broker.management_url, ca_file).enter_vhost(f"test/{digits}-occi")
    specs = {
        "frontend": replace(build_frontend_clients_user_spec(), name=f"frontend-{digits}"),
        "client": build_client_user_spec(f"client-{digits}"),
        "service": build_client_user_spec(f"service-{digits}", serves=True),
    }
    async with contextlib.aclosing(BrokerAdmin(access)) as admin:
        await admin.ensure_vhost()
        try:
            await admin.ensure_platform(build_clients_specs())
            await admin.ensure_queues([build_request_queue_spec(ENDPOINT, queue_kind)])
            for spec in specs.values():
                await admin.ensure_user(spec, PASSWORD)
            users = {role: access.as_user(spec.name, PASSWORD) for role, spec in specs.items()}
            yield Vhost(admin, access, users["frontend"], users["client"], users["service"])
        finally:
            for spec in specs.values():
                await admin.delete_user(spec.name)
            await admin.delete_vhost()


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Api:
    api = Api(control_plane.kubeconfig)
    api.install(install.build_objects())
    return api


@pytest.fixture
def compute(api: Api) -> Iterator[tuple[str, str]]:
    """Return a namespace, and the path of the one compute in it."""
    namespace = f"cloud4e-{uuid.uuid4().hex[:8]}"
    assert api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}).accepted
    worker = {
        "apiVersion": names.API_VERSION,
        "kind": "Worker",
        "metadata": {"name": "old", "namespace": namespace},
        "spec": {"serviceRef": {"name": "anything"}, "site": "nowhere"},
    }
    made = api.create(worker)
    assert made.accepted, made.message
    yield namespace, f"/compute/{made.body['metadata']['uid']}"
    api.request("DELETE", f"/api/v1/namespaces/{namespace}")
