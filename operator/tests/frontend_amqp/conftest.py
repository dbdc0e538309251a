"""A clients' virtual host for each test, with the frontends' queue in it, and users as the platform makes them."""

import contextlib
import secrets
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.occi_topology import (
    client_user_spec,
    clients_specs,
    frontend_clients_user_spec,
    request_queue_spec,
)
from simyard.messaging.topology import QueueKind
from simyard_dev.broker import Broker

sys.path.insert(0, str(Path(__file__).parent))

from amqp_frontends import ENDPOINT, PASSWORD, Vhost


@pytest.fixture
def queue_kind(request: pytest.FixtureRequest) -> QueueKind:
    """The kind of the shared queue; tests for which it matters ask for both."""
    kind: QueueKind = getattr(request, "param", QueueKind.CLASSIC)
    return kind


@pytest.fixture
async def vhost(broker: Broker, queue_kind: QueueKind) -> AsyncIterator[Vhost]:
    if broker.management_url is None:
        pytest.skip("RABBITMQ_MANAGEMENT_URL is not set")
    digits = secrets.token_hex(8)
    ca_file = broker.ca_file if "amqps:" in broker.url else None
    access = BrokerAccess.from_url(broker.url, broker.management_url, ca_file).in_vhost(f"test/{digits}-occi")
    specs = {
        "frontend": replace(frontend_clients_user_spec(), name=f"frontend-{digits}"),
        "client": client_user_spec(f"client-{digits}"),
        "service": client_user_spec(f"service-{digits}", serves=True),
    }
    async with contextlib.aclosing(BrokerAdmin(access)) as admin:
        await admin.ensure_vhost()
        try:
            await admin.ensure_platform(clients_specs())
            await admin.ensure_queues([request_queue_spec(ENDPOINT, queue_kind)])
            for spec in specs.values():
                await admin.ensure_user(spec, PASSWORD)
            users = {role: access.as_user(spec.name, PASSWORD) for role, spec in specs.items()}
            yield Vhost(admin, access, users["frontend"], users["client"], users["service"])
        finally:
            for spec in specs.values():
                await admin.delete_user(spec.name)
            await admin.delete_vhost()
