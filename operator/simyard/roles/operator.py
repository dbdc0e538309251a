"""``simyard operator``."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import uvloop
from prometheus_client import Gauge

from simyard.api.frontend_pod import FrontendPod
from simyard.api.frontend_route import FrontendRoute
from simyard.api.names import FRONTEND, OPERATOR, SYSTEM_NAMESPACE
from simyard.build.frontend import FrontendTemplate
from simyard.controllers.embedded import Kopf
from simyard.fleet.fleet import Fleet, FleetSettings
from simyard.fleet.retention import ActionLimits
from simyard.kube.cache import ALL_NAMESPACES, MOST_AGE_SECONDS, Cache
from simyard.kube.lease import Lease, LeaseLostError
from simyard.messaging.access import BrokerAccess
from simyard.plan.times import believed_skew
from simyard.roles.health import Check, serving
from simyard.roles.logs import configure_logs
from simyard_sites.kubernetes.client import KubeClient

log = logging.getLogger(__name__)

LEASE_AGE = Gauge("simyard_lease_age_seconds", "How long ago the Lease was last renewed; 0 while another one leads.")
LEADS = Gauge("simyard_leader", "1 while this operator leads, else 0: the sum is 1.")
WATCH_AGE = Gauge(
    "simyard_watch_age_seconds",
    "How long ago the API server was last heard on the watch; it speaks about every minute.",
    ["resource"],
)
CLOCK_SKEW = Gauge("simyard_clock_skew_seconds", "How far the API server's clock is ahead of the operator's.")
END_SECONDS = 10.0
MAX_OVERDUE_SECONDS = 120.0
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Attributes:
    fleet: where broker, namespace and machines are.
    kubeconfig: for the Kubernetes API; ``$KUBECONFIG`` or the cluster that this process runs in when it is None.
    bind: address of metrics and probes.
    metrics_port: their port.
    lease_seconds: after so long without renewal another operator takes over.
    lease_name: the name of the Lease.
    """

    fleet: FleetSettings
    kubeconfig: Path | None
    bind: str
    metrics_port: int
    lease_seconds: int
    lease_name: str


def _pod(context: click.Context, parameter: click.Parameter, value: str) -> FrontendPod:
    try:
        return FrontendPod.from_json(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _route(context: click.Context, parameter: click.Parameter, value: str) -> FrontendRoute:
    try:
        return FrontendRoute.from_json(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option("--kubeconfig", type=_FILE, envvar="KUBECONFIG", help="Default: the cluster that this process runs in.")
@click.option("--namespace", default=SYSTEM_NAMESPACE, envvar="SIMYARD_NAMESPACE", show_default=True,
              help="Where the platform lives.")  # fmt: skip
@click.option("--watch-namespace", multiple=True, envvar="SIMYARD_WATCH_NAMESPACES", metavar="NAMESPACE",
              help="Work for the objects of this namespace; may be repeated. Default: for those of all.")  # fmt: skip
@click.option("--installation", default="default", envvar="SIMYARD_INSTALLATION", show_default=True,
              help="Tells our machines from those of other installations at the same site.")  # fmt: skip
@click.option("--amqp-secret", type=click.Path(exists=True, file_okay=False, path_type=Path), envvar="AMQP_SECRET",
              help="The broker, as an administrator: a mounted Secret with host, username, password, ...")  # fmt: skip
@click.option("--amqp-url", envvar="AMQP_URL", help="Or: its URL.")
@click.option("--amqp-management-url", envvar="AMQP_MANAGEMENT_URL", default="", help="Its management API.")
@click.option("--amqp-ca-file", type=_FILE, envvar="AMQP_CA_FILE", help="The broker's CA certificate, for amqps.")
@click.option("--amqp-statistics-seconds", envvar="AMQP_STATISTICS_SECONDS", type=click.IntRange(1, 300), default=5,
              show_default=True, help="The broker's collect_statistics_interval.")  # fmt: skip
@click.option("--amqp-worker-host", envvar="AMQP_WORKER_HOST", help="The broker for workers; default: the same.")
@click.option("--amqp-worker-port", envvar="AMQP_WORKER_PORT", type=click.IntRange(1, 65535),
              help="Its port for workers; default: the same.")  # fmt: skip
@click.option("--occi-amqp", is_flag=True, envvar="SIMYARD_OCCI_AMQP",
              help="Let OCCI clients speak AMQP, in a virtual host of their own.")  # fmt: skip
@click.option("--occi-endpoint", multiple=True, envvar="SIMYARD_OCCI_ENDPOINTS", metavar="URL",
              help="OCCI frontends that somebody else runs there serve a queue too; may be repeated.")  # fmt: skip
@click.option("--frontend-image", envvar="SIMYARD_FRONTEND_IMAGE",
              help="The image of the services' OCCI frontends; without it none are made or kept.")  # fmt: skip
@click.option("--frontend-tls-secret", envvar="SIMYARD_FRONTEND_TLS_SECRET", default=f"{FRONTEND}-tls",
              show_default=True, help="Their certificate (kubernetes.io/tls), good for *.DOMAIN.")  # fmt: skip
@click.option("--frontend-domain", envvar="SIMYARD_FRONTEND_DOMAIN", metavar="DOMAIN",
              help="Their hosts are in it. Default: NAMESPACE.svc, where their Services are.")  # fmt: skip
@click.option("--frontend-cloud4e", is_flag=True, envvar="SIMYARD_FRONTEND_CLOUD4E",
              help="They also serve adapters that speak Cloud4E's AMQP binding.")  # fmt: skip
@click.option("--frontend-pod", envvar="SIMYARD_FRONTEND_POD", default="{}", metavar="JSON", callback=_pod,
              help="Their pods, by the names of the chart's values: resources, extraEnv, ...")  # fmt: skip
@click.option("--max-unfinished-actions", type=click.IntRange(1), default=ActionLimits.unfinished, show_default=True,
              envvar="SIMYARD_MAX_UNFINISHED_ACTIONS",
              help="Unfinished ServiceActions of one namespace; more fail.")  # fmt: skip
@click.option("--max-finished-actions", type=click.IntRange(0), default=ActionLimits.finished, show_default=True,
              envvar="SIMYARD_MAX_FINISHED_ACTIONS", help="Finished ones; of more the oldest are deleted.")  # fmt: skip
@click.option("--rotate-after-seconds", type=click.IntRange(0), default=3600, show_default=True,
              envvar="SIMYARD_ROTATE_AFTER_SECONDS",
              help="A pool's password at the broker changes so long after a worker left it; 0: never.")  # fmt: skip
@click.option("--frontend-route", envvar="SIMYARD_FRONTEND_ROUTE", default="{}", metavar="JSON", callback=_route,
              help="How clients outside of the cluster reach them: ingress, gateway.")  # fmt: skip
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address of metrics and probes.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), default=8080, show_default=True,
              help="For metrics and probes, plain HTTP.")  # fmt: skip
@click.option("--lease-seconds", type=click.IntRange(2, 300), default=15, show_default=True,
              help="After so long without renewal another operator takes over.")  # fmt: skip
@click.option("--lease-name", default=OPERATOR, show_default=True,
              help="Operators with Leases of different names work at the same time.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
              show_default=True)  # fmt: skip
def operator(
    kubeconfig: Path | None,
    namespace: str,
    watch_namespace: tuple[str, ...],
    installation: str,
    amqp_secret: Path | None,
    amqp_url: str | None,
    amqp_management_url: str,
    amqp_ca_file: Path | None,
    amqp_statistics_seconds: int,
    amqp_worker_host: str | None,
    amqp_worker_port: int | None,
    occi_amqp: bool,
    occi_endpoint: tuple[str, ...],
    frontend_image: str | None,
    frontend_tls_secret: str,
    frontend_domain: str | None,
    frontend_cloud4e: bool,
    frontend_pod: FrontendPod,
    max_unfinished_actions: int,
    max_finished_actions: int,
    rotate_after_seconds: int,
    frontend_route: FrontendRoute,
    bind: str,
    metrics_port: int,
    lease_seconds: int,
    lease_name: str,
    log_format: str,
    log_level: str,
) -> None:
    """Run the operator: keeps sites, services, pools and workers as they should be."""
    configure_logs(log_format, log_level)
    try:
        broker = _broker(amqp_secret, amqp_url, amqp_management_url, amqp_ca_file)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    workers = replace(broker, host=amqp_worker_host or broker.host, port=amqp_worker_port or broker.port)
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(3)}"
    frontends = None
    if frontend_image:
        domain = frontend_domain or f"{namespace}.svc"
        frontends = FrontendTemplate(
            frontend_image, namespace, frontend_tls_secret, domain, frontend_cloud4e, frontend_pod, frontend_route
        )
    fleet = FleetSettings(
        broker,
        workers,
        namespace,
        installation,
        identity,
        amqp_statistics_seconds,
        occi_amqp,
        occi_endpoint,
        frontends,
        ActionLimits(max_unfinished_actions, max_finished_actions),
        watch_namespace or ALL_NAMESPACES,
        rotate_after_seconds,
    )
    settings = OperatorSettings(fleet, kubeconfig, bind, metrics_port, lease_seconds, lease_name)
    lost: ExceptionGroup[LeaseLostError] | None = None
    try:
        uvloop.run(run(settings))
    except* LeaseLostError as group:
        lost = group
    if lost is not None:
        log.critical("%s", lost.exceptions[0])
        sys.exit(1)


def _broker(secret: Path | None, url: str | None, management_url: str, ca_file: Path | None) -> BrokerAccess:
    if secret is not None:
        return BrokerAccess.from_directory(secret)
    if not url or not management_url:
        raise ValueError("--amqp-secret, or --amqp-url and --amqp-management-url, are needed")
    return BrokerAccess.from_url(url, management_url, ca_file)


async def run(settings: OperatorSettings) -> None:
    """Wait for the Lease, then lead until SIGTERM.

    Raises:
        LeaseLostError: in an exception group; the process must end at once.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with (
        await KubeClient.connect(settings.kubeconfig) as client,
        # Of its own: a renewal must not wait behind thousands of writes.
        await KubeClient.connect(settings.kubeconfig, max_connections=2) as lease_client,
    ):
        lease = Lease(
            lease_client,
            namespace=settings.fleet.namespace,
            name=settings.lease_name,
            identity=settings.fleet.identity,
            duration_seconds=settings.lease_seconds,
            renew_seconds=settings.lease_seconds / 5,
        )
        fleet = Fleet(client, settings.fleet)
        role = _Role(lease, fleet, settings)
        async with serving(settings.bind, settings.metrics_port, role.checks):
            await _until(stop, role.lead())
            if role.leads:
                await lease.release()


async def _until(stop: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    """Run until ``stop`` is set, or the work fails."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in (working, stopping):
        task.cancel()
    _, pending = await asyncio.wait({working, stopping}, timeout=END_SECONDS)
    if pending:
        log.critical("tasks did not end within %.0f s", END_SECONDS)
        os._exit(1)
    if not working.cancelled():
        working.result()


class _Role:
    """What this process is at the moment: waiting for the Lease, or leading."""

    def __init__(self, lease: Lease, fleet: Fleet, settings: OperatorSettings) -> None:
        self._lease = lease
        self._fleet = fleet
        self._settings = settings
        self._kopf = Kopf(fleet)
        self._clock_wrong = False
        self.leads = False

    async def lead(self) -> None:
        """Wait for the Lease, then work as long as it is held."""
        await self._lease.acquire()
        self.leads = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lease.hold(), name="lease")
            group.create_task(self._fleet.run(), name="fleet")
            group.create_task(self._run_kopf(), name="kopf")

    async def _run_kopf(self) -> None:
        await self._fleet.registry.synced()
        await self._kopf.run()

    def checks(self) -> list[Check]:
        """What makes it ready: while another one leads, nothing more is needed."""
        LEADS.set(self.leads)
        if not self.leads:
            LEASE_AGE.set(0)
            leader = self._lease.leader
            return [Check("lease", leader is not None, f"{leader or 'nobody'} leads")]
        age = self._lease.age_seconds
        LEASE_AGE.set(age)
        checks = [Check("lease", age < self._settings.lease_seconds, f"renewed {age:.1f} s ago")]
        caches: tuple[Cache[Any], ...] = (*self._fleet.registry.caches, *self._fleet.frontends.caches)
        for cache in caches:
            plural, watch_age = cache.resource.plural, cache.age_seconds()
            WATCH_AGE.labels(plural).set(watch_age)
            good = cache.synced.is_set() and watch_age < MOST_AGE_SECONDS
            detail = f"heard of {watch_age:.1f} s ago" if cache.synced.is_set() else "not listed yet"
            checks.append(Check(plural, good, detail))
        connected = self._fleet.requester.connected and self._fleet.broker.prepared.is_set()
        checks.append(Check("broker", connected, "connected" if connected else "not connected"))
        alarm = self._fleet.broker_health.alarm or self._fleet.requester.blocked
        checks.append(Check("broker alarms", not alarm, alarm or "none"))
        queue, overdue = self._fleet.most_overdue()
        detail = f"{queue} is {overdue:.0f} s behind" if overdue > 1 else "up to date"
        checks.append(Check("work", overdue < MAX_OVERDUE_SECONDS, detail))
        checks.append(self._clock())
        problem = self._kopf.problem()
        checks.append(Check("kopf", not problem, problem or "makes progress"))
        return checks

    def _clock(self) -> Check:
        """Tell of a wrong clock. It makes nobody unready: durations are measured by a clock that nobody sets."""
        CLOCK_SKEW.set(skew := self._fleet.registry.client.clock_skew_seconds or 0.0)
        wrong = believed_skew(skew) != 0
        if wrong and not self._clock_wrong:
            log.error("the API server's clock is %+.0f s off ours: set this node's clock, or the API server's", skew)
        self._clock_wrong = wrong
        return Check("clock", True, f"{skew:+.0f} s off the API server's" if wrong else "agrees with the API server's")
