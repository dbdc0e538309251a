# SPDX-License-Identifier: Apache-2.0
"""The apiserver's process: it serves requests, keeps its local copies up to date, and drains before it stops."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from simyard.api.base import Json
from simyard.api.names import APISERVER_BROKER_SECRET
from simyard.apiserver.api import Api, Services
from simyard.apiserver.frontproxy import CONFIG_MAPS, CONFIG_NAME, CONFIG_NAMESPACE, FrontProxy
from simyard.apiserver.settings import ApiServerSettings
from simyard.files.catalog import open_catalog
from simyard.messaging.access import BrokerAccess
from simyard.serving.actions import Actions
from simyard.serving.attribute_feed import AttributeFeed
from simyard.serving.attributes import Attributes
from simyard.serving.authorization import Authorizer
from simyard.serving.broker import BrokerClient
from simyard.serving.directory import Directory
from simyard.serving.files import Files
from simyard.serving.follow import follow
from simyard.serving.health import Health
from simyard.serving.logs import Logs
from simyard.serving.study_results import StudyResults
from simyard.serving.tls import ServingTls
from simyard.serving.values import ValueStore
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.resource import Resource

log = logging.getLogger(__name__)

SECRETS = Resource("", "v1", "secrets", "Secret")
KEEPALIVE_SECONDS = 120.0
"""Time after which an idle connection is closed.

It is longer than the time of kube-apiserver (90 s). So kube-apiserver closes a connection first, and sends no request
over a connection that this process has just closed.
"""


async def serve(settings: ApiServerSettings, stop: asyncio.Event, health: Health) -> None:
    """Serve until ``stop`` is set, then finish the requests that are under way. ``health`` gets the present state.

    Raises:
        OSError: the certificate cannot be read, or the port is in use.
    """
    tls = ServingTls(settings.certificate, settings.key)
    async with await KubeClient.connect(settings.kubeconfig) as client, open_catalog(settings.files) as catalog:
        directory = Directory(client, settings.watch_namespaces)
        store = ValueStore()
        broker = BrokerClient(AttributeFeed(directory, store).apply_event)
        health.directory, health.broker = directory, broker
        services = Services(
            directory=directory,
            authorizer=Authorizer(client),
            broker=broker,
            actions=Actions(client, directory, broker, settings.file_urls, sync_seconds=settings.sync_seconds),
            attributes=Attributes(directory, store, broker),
            logs=Logs(directory, broker, lambda: health.stopping),
            files=(files := Files(client, catalog, settings.watch_namespaces, settings.files_quota)),
            study_results=StudyResults(client, catalog, files),
            health=health,
        )
        api = Api(services, max_in_flight=settings.max_in_flight)
        server = web.Server(api.handle, keepalive_timeout=KEEPALIVE_SECONDS, access_log=None)

        def use_front_proxy(config_map: Json) -> None:
            front_proxy = FrontProxy.from_config_map(config_map)
            tls.trust(front_proxy.client_ca)
            api.front_proxy = front_proxy
            health.front_proxy_known = True
            for connection in server.connections:  # their certificates were verified with the previous CA
                connection.close()  # an idle connection stays open after this, but gets no answers any more
                group.create_task(connection.shutdown(settings.sync_seconds + 5))

        runner = web.ServerRunner(server, shutdown_timeout=settings.sync_seconds + 5)
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


async def _broker_access(client: KubeClient, settings: ApiServerSettings, broker: BrokerClient) -> None:
    if settings.broker is not None:
        broker.set_access(settings.broker)
        return

    def use_secret(secret: Json) -> None:
        broker.set_access(BrokerAccess.from_secret(secret.get("data") or {}))

    await follow(client, SECRETS, settings.namespace, APISERVER_BROKER_SECRET, use_secret)
