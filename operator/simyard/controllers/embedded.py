"""kopf inside of our own process.

kopf gets a thread with an event loop of its own: it takes over signals in the main thread, and when it ends it cancels
every task of its loop, whoever made it. It is started again when it ends by itself, and when objects that wait for it
show that it stands still (:mod:`simyard.controllers.duties`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

import kopf
from kubernetes_asyncio.client import Configuration
from prometheus_client import Counter, Gauge

from simyard.api import names
from simyard.controllers.duties import Duties
from simyard.controllers.kinds import handlers
from simyard.fleet.fleet import Fleet
from simyard.kube.cache import ALL_NAMESPACES

log = logging.getLogger(__name__)

STALLED = Gauge(
    "simyard_kopf_stalled_seconds", "How long objects have waited for kopf's finalizers without any of them moving on."
)
RESTARTS = Counter("simyard_kopf_restarts_total", "How often kopf was started again: it had ended, or stood still.")

T = TypeVar("T")

MAX_STALLED_SECONDS = 45.0
"""Above WAIT_SECONDS of a handler and the pause after it: in that time kopf shows that it makes progress."""
LOOK_SECONDS = 1.0
END_SECONDS = 20.0
"""kopf's own deadlines for its tasks add up to less."""
MAX_PAUSE_SECONDS = 30.0
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


class Kopf:
    """kopf's handlers for one fleet; owned by the operator's role."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._loop = asyncio.get_running_loop()
        self._duties = Duties(self._loop.time)
        self._runs = False
        fleet.registry.pools.subscribe(self._duties.changed)
        fleet.registry.sites.subscribe(self._duties.changed)

    def problem(self) -> str:
        """Return why kopf does not do its work; empty when it does."""
        STALLED.set(stalled := self._duties.stalled_seconds())
        if not self._runs:
            return "not running"
        return f"pools or sites have waited for {stalled:.0f} s" if stalled > MAX_STALLED_SECONDS else ""

    async def run(self) -> NoReturn:
        """Run kopf until cancelled, again and again.

        Raises:
            RuntimeError: its thread does not end; only the end of the process helps.
        """
        pause = LOOK_SECONDS
        while True:
            began = self._loop.time()
            await self._run_once()
            RESTARTS.inc()
            lasted = self._loop.time() - began
            pause = LOOK_SECONDS if lasted > 2 * MAX_STALLED_SECONDS else min(2 * pause, MAX_PAUSE_SECONDS)
            await asyncio.sleep(pause)

    async def _run_once(self) -> None:
        """Return when kopf has ended, or was ended because it stood still."""
        stop = threading.Event()
        thread = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(self._operate(stop))))
        self._runs, began = True, self._loop.time()
        try:
            while not thread.done():
                await asyncio.wait({thread}, timeout=LOOK_SECONDS)
                stalled = min(self._duties.stalled_seconds(), self._loop.time() - began)
                if stalled > MAX_STALLED_SECONDS:
                    log.error("kopf has stood still for %.0f s: starting it again", stalled)
                    stop.set()
                    await asyncio.wait({thread}, timeout=END_SECONDS)
                    if not thread.done():
                        raise RuntimeError("kopf does not end")
            if (error := thread.exception()) is not None:
                log.error("kopf has ended: %s: %s", type(error).__name__, error)
            else:
                log.warning("kopf has ended")
        finally:
            self._runs = False
            stop.set()

    async def _operate(self, stop: threading.Event) -> None:
        """In kopf's own loop; whatever concerns the fleet is done in the fleet's.

        ``stop`` is set in any case: a thread of kopf's waits for it, and asyncio waits for that thread.
        """
        fleet, loop = self._fleet, self._loop

        async def there(work: Coroutine[Any, Any, T]) -> T:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

        async def torn_down(uid: str) -> None:
            self._duties.called(uid)
            await fleet.pools.torn_down(uid)

        async def emptied(name: str, uid: str) -> None:
            self._duties.called(uid)
            await fleet.sites.emptied(name)

        registry = handlers(lambda uid: there(torn_down(uid)), lambda name, uid: there(emptied(name, uid)))

        async def login(**_: Any) -> kopf.ConnectionInfo:
            return await there(connection_info(fleet.registry.client.configuration))

        kopf.on.login(registry=registry)(login)
        watched = fleet.registry.namespaces
        scope: Any = {"clusterwide": True} if watched == ALL_NAMESPACES else {"namespaces": watched}
        try:
            await kopf.operator(
                registry=registry, settings=operator_settings(), standalone=True, stop_flag=stop, **scope
            )
        finally:
            stop.set()


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
