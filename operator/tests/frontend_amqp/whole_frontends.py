# SPDX-License-Identifier: Apache-2.0
"""Frontends with an API server and a broker behind them, without HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from amqp_frontends import ENDPOINT, TOKEN, Vhost

from simyard.frontend.amqp.cloud4e import ServiceAdapters
from simyard.frontend.amqp.transport import AmqpTransport
from simyard.frontend.exchange import Identity
from simyard.frontend.handlers import Handlers
from simyard.frontend.objects import Objects
from simyard.messaging.access import BrokerAccess
from simyard_dev.controlplane import ControlPlane
from simyard_sites.kubernetes.client import KubeClient

ADMINISTRATOR = Identity("admin", "", ("system:masters",), ())


@contextlib.asynccontextmanager
async def frontend(
    control_plane: ControlPlane, vhost: Vhost, namespace: str, replicas: BrokerAccess | None = None
) -> AsyncIterator[Objects]:
    """Run a frontend of a namespace; ``replicas`` is the virtual host where it finds its replicas."""

    async def identify(token: str) -> Identity:
        assert token == TOKEN
        return ADMINISTRATOR

    async with await KubeClient.connect(control_plane.kubeconfig) as client:
        services = ServiceAdapters()
        objects = Objects(client, namespace, foreign=services)
        transport = AmqpTransport(ENDPOINT, Handlers(objects).handle, identify, services)
        transport.use_access(vhost.frontend)
        if replicas is not None:
            objects.broker.set_access(replicas)
        tasks = [asyncio.create_task(run) for run in (objects.run(), transport.run(), objects.broker.run())]
        try:
            async with asyncio.timeout(240):
                while True:
                    if objects.synced and transport.health_check.good and services.connected:
                        break
                    await asyncio.sleep(0.02)
            yield objects
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
