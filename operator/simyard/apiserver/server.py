"""The process: listens, keeps its copies true, and stops without dropping a request."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from simyard.api.base import Json
from simyard.api.names import APISERVER_BROKER_SECRET
from simyard.apiserver.actions import SYNC_SECONDS, Actions
from simyard.apiserver.api import Api, Services
from simyard.apiserver.attributes import Attributes
from simyard.apiserver.authorization import Authorizer
from simyard.apiserver.broker import BrokerLink
from simyard.apiserver.directory import Directory
from simyard.apiserver.feed import AttributeFeed
from simyard.apiserver.follow import follow
from simyard.apiserver.frontproxy import CONFIG_MAPS, CONFIG_NAME, CONFIG_NAMESPACE, FrontProxy
from simyard.apiserver.health import Health
from simyard.apiserver.settings import ApiServerSettings
from simyard.apiserver.tls import ServingTls
from simyard.apiserver.values import ValueStore
from simyard.messaging.access import BrokerAccess
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.resource import Resource

log = logging.getLogger(__name__)

SECRETS = Resource("", "v1", "secrets", "Secret")
KEEPALIVE_SECONDS = 120.0
"""Longer than kube-apiserver keeps an idle connection (90 s), so that it never sends into one that we just closed."""


async def serve(settings: ApiServerSettings, stop: asyncio.Event, health: Health) -> None:
    """Serve until ``stop`` is set; then finish what is under way. ``health`` says meanwhile how it goes.

    Raises:
        OSError: the certificate cannot be read, or a port is taken.
    """
    tls = ServingTls(settings.certificate, settings.key)
    async with await KubeClient.connect(settings.kubeconfig) as client:
        directory = Directory(client, settings.watch_namespaces)
        store = ValueStore()
        broker = BrokerLink(AttributeFeed(directory, store).take)
        health.directory, health.broker = directory, broker
        services = Services(
            directory=directory,
            authorizer=Authorizer(client),
            broker=broker,
            actions=Actions(client, directory, broker),
            attributes=Attributes(directory, store, broker),
            health=health,
        )
        api = Api(services, max_in_flight=settings.max_in_flight)
        server = web.Server(api.handle, keepalive_timeout=KEEPALIVE_SECONDS, access_log=None)

        def use_front_proxy(config_map: Json) -> None:
            front_proxy = FrontProxy.from_config_map(config_map)
            tls.trust(front_proxy.client_ca)
            api.front_proxy = front_proxy
            health.front_proxy_known = True
            for connection in server.connections:  # verified against the CA before
                connection.close()

        runner = web.ServerRunner(server, shutdown_timeout=SYNC_SECONDS + 5)
        try:
            await runner.setup()
            await web.TCPSite(runner, settings.bind, settings.port, ssl_context=tls.context).start()
            log.info("serving at %s:%d", settings.bind, settings.port)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(directory.run()),
                    group.create_task(follow(client, CONFIG_MAPS, CONFIG_NAMESPACE, CONFIG_NAME, use_front_proxy)),
                    group.create_task(broker.run()),
                    group.create_task(_broker_access(client, settings, broker)),
                ]
                await stop.wait()
                health.stopping = True
                await asyncio.sleep(settings.drain_seconds)
                await runner.cleanup()
                for task in tasks:
                    task.cancel()
        finally:
            await runner.cleanup()


async def _broker_access(client: KubeClient, settings: ApiServerSettings, broker: BrokerLink) -> None:
    if settings.broker is not None:
        broker.use(settings.broker)
        return

    def use_secret(secret: Json) -> None:
        broker.use(BrokerAccess.from_secret(secret.get("data") or {}))

    await follow(client, SECRETS, settings.namespace, APISERVER_BROKER_SECRET, use_secret)
