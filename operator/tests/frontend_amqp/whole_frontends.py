"""Frontends with an API server and a broker behind them: all but HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from amqp_frontends import ENDPOINT, TOKEN, Vhost

from simyard.frontend.amqp_transport import AmqpTransport
from simyard.frontend.cloud4e import ServiceAdapters
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
    """A frontend of a namespace; ``replicas``: the virtual host where it speaks with others of its kind."""

    async def identify(token: str) -> Identity:
        assert token == TOKEN
        return ADMINISTRATOR

    async with await KubeClient.connect(control_plane.kubeconfig) as client:
        services = ServiceAdapters()
        objects = Objects(client, namespace, foreign=services)
        transport = AmqpTransport(ENDPOINT, Handlers(objects).handle, identify, services)
        transport.use(vhost.frontend)
        if replicas is not None:
            objects.broker.use(replicas)
        tasks = [asyncio.create_task(run) for run in (objects.run(), transport.run(), objects.broker.run())]
        try:
            async with asyncio.timeout(60):
                while True:
                    if objects.synced and transport.finding.good and services.connected:
                        break
                    await asyncio.sleep(0.02)
            yield objects
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
