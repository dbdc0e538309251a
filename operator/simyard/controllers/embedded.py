"""kopf inside of our own event loop."""

from __future__ import annotations

from typing import Any

import kopf
from kubernetes_asyncio.client import Configuration

from simyard.api import names
from simyard.controllers.kinds import handlers
from simyard.fleet.fleet import Fleet

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
    """Run kopf's handlers until cancelled, or until SIGTERM or SIGINT, which it takes over in the main thread."""
    registry = handlers(fleet)
    configuration = fleet.registry.client.configuration

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection_info(configuration)

    kopf.on.login(registry=registry)(login)
    await kopf.operator(registry=registry, settings=operator_settings(), standalone=True, clusterwide=True)


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
