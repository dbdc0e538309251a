"""kopf inside of our own process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import kopf
from kubernetes_asyncio.client import Configuration

from simyard.api import names
from simyard.controllers.kinds import handlers
from simyard.fleet.fleet import Fleet

T = TypeVar("T")

IDLE_SECONDS = 0.05
SERVER_SECONDS = 300
CLIENT_SECONDS = 330
CONNECT_SECONDS = 10
REQUEST_SECONDS = 30


class NoDiffBase(kopf.DiffBaseStorage):
    """Keeps nothing on the objects: no handler of ours asks what has changed."""

    def fetch(self, *, body: kopf.Body) -> None:
        """Nothing is known of an earlier state."""

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: Any) -> None:
        """Nothing is stored."""


async def run_kopf(fleet: Fleet) -> None:
    """Run kopf's handlers until cancelled.

    kopf gets a thread with an event loop of its own: it takes over signals in the main thread, and when it ends it
    cancels every task of its loop, whoever made it.
    """
    loop = asyncio.get_running_loop()
    stop = threading.Event()
    try:
        await asyncio.to_thread(lambda: asyncio.run(_operate(fleet, loop, stop)))
        raise RuntimeError("kopf has ended by itself")
    finally:
        stop.set()


async def _operate(fleet: Fleet, loop: asyncio.AbstractEventLoop, stop: threading.Event) -> None:
    """In kopf's own loop; whatever concerns the fleet is done in ``loop``, which is the fleet's."""

    async def there(work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    registry = handlers(
        lambda uid: there(fleet.pools.torn_down(uid)),
        lambda name: there(fleet.sites.emptied(name)),
    )

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await there(connection_info(fleet.registry.client.configuration))

    kopf.on.login(registry=registry)(login)
    await kopf.operator(
        registry=registry, settings=operator_settings(), standalone=True, clusterwide=True, stop_flag=stop
    )


def operator_settings() -> kopf.OperatorSettings:
    """No peering, no Events, no scans of CRDs, a deadline on every request; names of ours on the objects."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.finalizer = names.FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.GROUP)
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.watching.server_timeout = SERVER_SECONDS
    settings.watching.client_timeout = CLIENT_SECONDS
    settings.watching.connect_timeout = CONNECT_SECONDS
    settings.networking.request_timeout = REQUEST_SECONDS
    settings.networking.connect_timeout = CONNECT_SECONDS
    settings.execution.max_workers = 1
    return settings


async def connection_info(configuration: Configuration) -> kopf.ConnectionInfo:
    """Our own way to the API server, for kopf; asked again when the server refuses the credentials."""
    scheme, _, token = str(await configuration.get_api_key_with_prefix("BearerToken") or "").rpartition(" ")
    return kopf.ConnectionInfo(
        server=str(configuration.host),
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        scheme=scheme or None,
        token=token or None,
    )
