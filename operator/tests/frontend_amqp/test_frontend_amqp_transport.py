# SPDX-License-Identifier: Apache-2.0
"""The transport follows the frontends' Secret."""

import asyncio
import base64
import contextlib
from dataclasses import replace

from amqp_frontends import ENDPOINT, Vhost, echo, identify, until

from simyard.frontend.amqp.cloud4e import ServiceAdapters
from simyard.frontend.amqp.transport import AmqpTransport, build_clients_access
from simyard.messaging.occi_topology import build_frontend_clients_user_spec


def encoded(**texts: str) -> dict[str, str]:
    return {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}


def test_the_secret_says_where_clients_are(vhost: Vhost) -> None:
    main = vhost.frontend.enter_vhost("main")
    assert build_clients_access(main, encoded(occi_vhost=vhost.frontend.vhost)) == vhost.frontend
    for secret in ({}, encoded(occi_vhost=""), {"occi_vhost": "?"}, {"occi_vhost": "/w=="}):
        assert build_clients_access(main, secret) is None


async def test_it_serves_where_there_is_something_to_serve_and_follows_the_credentials(vhost: Vhost) -> None:
    services = ServiceAdapters()
    transport = AmqpTransport(ENDPOINT, echo, identify, services)
    task = asyncio.create_task(transport.run())
    try:
        assert transport.health_check.good
        transport.use_access(vhost.frontend)
        await until(lambda: transport.health_check.good and services.connected)
        transport.use_access(vhost.frontend.as_user(vhost.frontend.username, "another password"))
        await until(lambda: not transport.health_check.good)
        spec = replace(build_frontend_clients_user_spec(), name=vhost.frontend.username)
        await vhost.admin.ensure_user(spec, "another password")
        await until(lambda: transport.health_check.good)
        async with vhost.connect() as client:
            assert (await client.call("get", "/")).status == 200
        transport.use_access(None)
        assert transport.health_check.good
        await until(lambda: not services.connected)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
