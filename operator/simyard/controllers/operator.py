# SPDX-License-Identifier: Apache-2.0
"""The kopf operator: the start and end of its process, its credentials and its settings."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
from kubernetes_asyncio.client import Configuration

from simyard.api import names
from simyard.controllers import cloud_sites, worker_pools  # noqa: F401 - an import registers the handlers
from simyard.controllers.leadership import Leadership
from simyard.kube.cache import ALL_NAMESPACES

IDLE_SECONDS = 0.05
SERVER_SECONDS = 300
CLIENT_SECONDS = 330
CONNECT_SECONDS = 10
REQUEST_SECONDS = 30
END_SECONDS = 20.0


async def run_operator(memo: Leadership, stop: asyncio.Event) -> None:
    """Run kopf until SIGTERM, or until ``stop`` is set.

    When kopf ends, it cancels every task that began after kopf. So such tasks of the caller end as well.

    Raises:
        LeaseLostError: in an exception group; another operator may lead.
        StandstillError: in an exception group; kopf does not handle objects any more.
    """
    watched = memo.fleet.registry.namespaces
    scope: dict[str, Any] = {"clusterwide": True} if watched == ALL_NAMESPACES else {"namespaces": watched}
    await kopf.operator(memo=memo, standalone=True, stop_flag=stop, **scope)
    memo.raise_failure()


class NoDiffBase(kopf.DiffBaseStorage):
    """Storage that writes no earlier state into the objects, because Simyard's handlers need no differences."""

    def fetch(self, *, body: kopf.Body) -> None:
        """Return None, because no earlier state is stored."""

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: Any) -> None:
        """Do nothing."""


@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
async def lead(memo: Leadership, settings: kopf.OperatorSettings, **_: Any) -> None:
    """Wait until this process leads and its caches have all objects. kopf begins to watch objects after this."""
    configure(settings)
    await memo.begin()


@kopf.on.cleanup()
async def stop_leading(memo: Leadership, **_: Any) -> None:
    """Stop the fleet and release the Lease."""
    await memo.end()


@kopf.on.login()
async def login(memo: Leadership, **_: Any) -> kopf.ConnectionInfo:
    """Return kopf's connection to the API server; kopf calls this again when the server refuses the credentials."""
    configuration: Configuration = memo.fleet.registry.client.configuration
    scheme, _separator, token = str(await configuration.get_api_key_with_prefix("BearerToken") or "").rpartition(" ")
    return kopf.ConnectionInfo(
        server=str(configuration.host),
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        scheme=scheme or None,
        token=token or None,
    )


def configure(settings: kopf.OperatorSettings) -> None:
    """Configure kopf: no peering, no Events, no scans of CRDs; a timeout for each request, and Simyard's finalizer."""
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
    settings.process.ultimate_exiting_timeout = END_SECONDS
