# SPDX-License-Identifier: Apache-2.0
"""Runs the process of a frontend: it listens, keeps its copies up to date, and answers all requests before it stops."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Mapping

from aiohttp import web

from simyard.api.base import Json
from simyard.api.names import FRONTEND_BROKER_SECRET
from simyard.frontend.amqp.cloud4e import ServiceAdapters
from simyard.frontend.amqp.transport import AmqpTransport, build_clients_access
from simyard.frontend.handlers import REQUEST_SECONDS, Handlers
from simyard.frontend.health import Health
from simyard.frontend.http.connection import Listener
from simyard.frontend.http.transport import HttpFrontend
from simyard.frontend.identity import Authenticator
from simyard.frontend.objects import Objects
from simyard.frontend.settings import FrontendSettings
from simyard.kube.cache import MAX_AGE_SECONDS
from simyard.messaging.access import BrokerAccess
from simyard.serving.checks import HealthCheck
from simyard.serving.follow import follow
from simyard.serving.tls import ServingTls
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.resource import Resource

log = logging.getLogger(__name__)

SECRETS = Resource("", "v1", "secrets", "Secret")
BACKLOG = 1024
STOP_SECONDS = REQUEST_SECONDS + 5
"""Time for the requests in progress when the process stops; it is longer than the time limit of a request.

This time and ``drain_seconds`` together must be shorter than the grace period of the pod (``GRACE_SECONDS`` of its
manifest).
"""


async def serve(settings: FrontendSettings, stop: asyncio.Event, health: Health) -> None:
    """Serve until ``stop`` is set, then finish the requests in progress; add the checks of the frontend to ``health``.

    Raises:
        OSError: the certificate cannot be read, or a port is in use.
    """
    tls = ServingTls(settings.certificate, settings.key, client_certificates=False)
    async with await KubeClient.connect(settings.kubeconfig) as client:
        services = ServiceAdapters() if settings.cloud4e and settings.amqp_endpoint else None
        objects = Objects(
            client,
            settings.namespace,
            settings.service,
            foreign=services,
            endpoint=settings.endpoint,
            file_urls=settings.file_urls,
        )
        authenticator = Authenticator(client)
        own = (settings.endpoint, settings.amqp_endpoint, *settings.other_endpoints)
        handlers = Handlers(objects, endpoints=tuple(filter(None, own)))
        amqp = None
        if settings.amqp_endpoint:
            amqp = AmqpTransport(settings.amqp_endpoint, handlers.handle, authenticator.identify_token, services)
        _add_checks(health, objects, amqp)
        http = HttpFrontend(
            handlers,
            authenticator.identify_header,
            health,
            endpoint=settings.endpoint,
            cors_origins=settings.cors_origins,
            max_in_flight=settings.max_in_flight,
        )
        runner = web.ServerRunner(Listener(http.handle), shutdown_timeout=STOP_SECONDS)
        try:
            await runner.setup()
            await web.TCPSite(
                runner, settings.bind, settings.port, ssl_context=tls.context, backlog=BACKLOG
            ).start()  # fmt: skip
            log.info("serving at %s:%d", settings.bind, settings.port)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(objects.run()),
                    group.create_task(objects.broker.run()),
                    group.create_task(_follow_broker_access(client, settings, objects, amqp)),
                ]
                if amqp is not None:
                    tasks.append(group.create_task(amqp.run()))
                health.started = True
                await stop.wait()
                health.stopping = True
                await asyncio.sleep(settings.drain_seconds)
                await _drain(runner, amqp)
                for task in tasks:
                    task.cancel()
        finally:
            await runner.cleanup()


def _add_checks(health: Health, objects: Objects, amqp: AmqpTransport | None) -> None:
    """Add the checks of a frontend to its health.

    The frontend stays ready while the broker is down: it then refuses requests that need the broker, and serves all
    others.
    """

    def copies() -> HealthCheck:
        age = objects.watch_age_seconds()
        good = objects.synced and age < MAX_AGE_SECONDS
        return HealthCheck("objects", good, f"up to date {age:.0f} s ago" if objects.synced else "not listed")

    def broker() -> HealthCheck:
        return HealthCheck("broker", True, "connected" if objects.broker.connected else "not connected (not required)")

    health.checks += [copies, broker]
    if amqp is not None:
        health.checks.append(lambda: dataclasses.replace(amqp.health_check, good=True))


async def _drain(runner: web.ServerRunner, amqp: AmqpTransport | None) -> None:
    """Stop accepting requests, and return when all accepted requests are answered."""
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.cleanup())
        if amqp is not None:
            group.create_task(_drain_queue(amqp))


async def _drain_queue(amqp: AmqpTransport) -> None:
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await amqp.drain()
    except TimeoutError:
        log.warning("some requests of AMQP clients are not answered yet; the broker gives them to another frontend")


async def _follow_broker_access(
    client: KubeClient, settings: FrontendSettings, objects: Objects, amqp: AmqpTransport | None
) -> None:
    if settings.broker is not None:
        objects.broker.set_access(settings.broker)
        return None

    def use_secret(secret: Json) -> None:
        data: Mapping[str, str] = secret.get("data") or {}
        access = BrokerAccess.from_secret(data)
        objects.broker.set_access(access)
        if amqp is not None:
            amqp.use_access(build_clients_access(access, data))

    await follow(client, SECRETS, settings.platform_namespace, FRONTEND_BROKER_SECRET, use_secret)
