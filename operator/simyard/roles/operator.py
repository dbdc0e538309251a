# SPDX-License-Identifier: Apache-2.0
"""Role ``simyard operator``, the process that reconciles sites, services, pools and workers."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import uvloop
from prometheus_client import Gauge

from simyard.api.frontend_pod import FrontendPod
from simyard.api.frontend_route import FrontendRoute
from simyard.api.names import FRONTEND, OPERATOR, SYSTEM_NAMESPACE
from simyard.api.quantities import parse_bytes
from simyard.controllers.leadership import Leadership
from simyard.controllers.operator import run_operator
from simyard.files.access import StoreAccess
from simyard.files.sweep import SweepSettings
from simyard.fleet.actions.retention import ActionLimits
from simyard.fleet.fleet import Fleet, FleetSettings
from simyard.kube.cache import ALL_NAMESPACES, MAX_AGE_SECONDS, Cache
from simyard.kube.lease import Lease
from simyard.manifests.frontend import FrontendTemplate
from simyard.messaging.access import BrokerAccess
from simyard.plan.platform import MAX_OVERDUE_SECONDS
from simyard.plan.times import filter_skew
from simyard.roles.health import serve_health
from simyard.roles.logs import configure_logs
from simyard.serving.checks import HealthCheck
from simyard_adapter.file_urls import AllowedUrls
from simyard_sites.kubernetes.client import KubeClient

log = logging.getLogger(__name__)

LEASE_AGE = Gauge(
    "simyard_lease_age_seconds", "The time since the last renewal of the Lease; 0 while another operator leads."
)
LEADS = Gauge("simyard_leader", "1 while this operator leads, else 0. The sum over all operators is 1.")
WATCH_AGE = Gauge(
    "simyard_watch_age_seconds",
    "The time since the last message of the API server on the watch; it sends one about every minute.",
    ["resource"],
)
CLOCK_SKEW = Gauge(
    "simyard_clock_skew_seconds", "The time by which the API server's clock is ahead of the operator's clock."
)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The settings of one operator process.

    Attributes:
        fleet: the settings of the operator's work, such as the broker and the namespaces.
        kubeconfig: the kubeconfig file; None: ``$KUBECONFIG`` or, without it, the cluster of this process.
        bind: the address of metrics and probes.
        metrics_port: the port of metrics and probes.
        lease_seconds: the time after which another operator takes over if the Lease is not renewed.
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
@click.option(
    "--kubeconfig", type=_FILE, envvar="KUBECONFIG", help="The kubeconfig file. Default: the cluster of this process."
)
@click.option("--namespace", default=SYSTEM_NAMESPACE, envvar="SIMYARD_NAMESPACE", show_default=True,
              help="The namespace of the platform.")  # fmt: skip
@click.option("--watch-namespace", multiple=True, envvar="SIMYARD_WATCH_NAMESPACES", metavar="NAMESPACE",
              help="Reconcile objects of this namespace only; repeatable. Default: all namespaces.")  # fmt: skip
@click.option("--installation", default="default", envvar="SIMYARD_INSTALLATION", show_default=True,
              help="The name that marks the machines of this installation at a shared site.")  # fmt: skip
@click.option("--amqp-secret", type=click.Path(exists=True, file_okay=False, path_type=Path), envvar="AMQP_SECRET",
              help="The broker: a mounted Secret of an administrator with host, username, password, ...")  # fmt: skip
@click.option("--amqp-url", envvar="AMQP_URL", help="The URL of the broker, in place of the Secret.")
@click.option(
    "--amqp-management-url", envvar="AMQP_MANAGEMENT_URL", default="", help="The URL of the broker's management API."
)
@click.option("--amqp-ca-file", type=_FILE, envvar="AMQP_CA_FILE", help="The CA certificate of the broker, for amqps.")
@click.option("--amqp-statistics-seconds", envvar="AMQP_STATISTICS_SECONDS", type=click.IntRange(1, 300), default=5,
              show_default=True, help="The value of collect_statistics_interval of the broker.")  # fmt: skip
@click.option(
    "--amqp-worker-host", envvar="AMQP_WORKER_HOST", help="The host of the broker for workers. Default: the same host."
)
@click.option("--amqp-worker-port", envvar="AMQP_WORKER_PORT", type=click.IntRange(1, 65535),
              help="The port of the broker for workers. Default: the same port.")  # fmt: skip
@click.option("--occi-amqp", is_flag=True, envvar="SIMYARD_OCCI_AMQP",
              help="Admit OCCI clients that speak AMQP, in a separate virtual host.")  # fmt: skip
@click.option("--occi-endpoint", multiple=True, envvar="SIMYARD_OCCI_ENDPOINTS", metavar="URL",
              help="The URL of OCCI frontends outside this installation that serve a queue; repeatable.")  # fmt: skip
@click.option("--frontend-image", envvar="SIMYARD_FRONTEND_IMAGE",
              help="The image of OCCI frontends. Without it the operator deletes all frontends.")  # fmt: skip
@click.option("--frontend-tls-secret", envvar="SIMYARD_FRONTEND_TLS_SECRET", default=f"{FRONTEND}-tls",
              show_default=True, help="The Secret with the certificate of all frontends, for *.DOMAIN.")  # fmt: skip
@click.option("--frontend-domain", envvar="SIMYARD_FRONTEND_DOMAIN", metavar="DOMAIN",
              help="The domain of all frontends. Default: NAMESPACE.svc, as their Services have.")  # fmt: skip
@click.option("--frontend-cloud4e", is_flag=True, envvar="SIMYARD_FRONTEND_CLOUD4E",
              help="Let frontends also serve adapters that speak the AMQP binding of Cloud4E.")  # fmt: skip
@click.option("--frontend-pod", envvar="SIMYARD_FRONTEND_POD", default="{}", metavar="JSON", callback=_pod,
              help="The pods of frontends, with the names of the chart's values: resources, extraEnv, ...")  # fmt: skip
@click.option("--max-unfinished-actions", type=click.IntRange(1), default=ActionLimits.unfinished, show_default=True,
              envvar="SIMYARD_MAX_UNFINISHED_ACTIONS",
              help="The largest number of unfinished ServiceActions in a namespace; further ones fail.")  # fmt: skip
@click.option("--max-unfinished-actions-mib", type=click.IntRange(1), default=ActionLimits.unfinished_mib,
              show_default=True, envvar="SIMYARD_MAX_UNFINISHED_ACTIONS_MIB",
              help="The largest size of these together, in MiB; further ones fail.")  # fmt: skip
@click.option("--max-finished-actions", type=click.IntRange(0), default=ActionLimits.finished, show_default=True,
              envvar="SIMYARD_MAX_FINISHED_ACTIONS",
              help="The largest number of finished ServiceActions in a namespace; the oldest are deleted.")  # fmt: skip
@click.option("--max-finished-actions-mib", type=click.IntRange(0), default=ActionLimits.finished_mib,
              show_default=True, envvar="SIMYARD_MAX_FINISHED_ACTIONS_MIB",
              help="The largest size of these together, in MiB; the oldest are deleted.")  # fmt: skip
@click.option("--rotate-after-seconds", type=click.IntRange(0), default=3600, show_default=True,
              envvar="SIMYARD_ROTATE_AFTER_SECONDS",
              help="The time between the end of a worker and the change of its pool's password; 0: never.")  # fmt: skip
@click.option("--files-directory", type=_DIRECTORY, envvar="SIMYARD_FILES_DIRECTORY",
              help="The directory of the mounted Secret of the file store. Default: no files.")  # fmt: skip
@click.option("--files-quota", envvar="SIMYARD_FILES_QUOTA", default="", metavar="QUANTITY",
              help="The bytes of files that a namespace may have, such as 100Gi. Default: no limit.")  # fmt: skip
@click.option("--files-url", "files_urls", multiple=True, envvar="SIMYARD_FILES_URLS", metavar="URL",
              help="A prefix of https URLs that file parameters may have; repeatable. Default: no URLs.")  # fmt: skip
@click.option("--files-retention-days", type=click.IntRange(0), default=30, show_default=True,
              envvar="SIMYARD_FILES_RETENTION_DAYS",
              help="The time for which files are kept that no object names and nobody uses; 0: for ever.")  # fmt: skip
@click.option("--frontend-route", envvar="SIMYARD_FRONTEND_ROUTE", default="{}", metavar="JSON", callback=_route,
              help="The way of clients outside the cluster to the frontends: ingress, gateway.")  # fmt: skip
@click.option("--bind", default="127.0.0.1", show_default=True, help="The address of metrics and probes.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), default=8080, show_default=True,
              help="The port for metrics and probes (plain HTTP).")  # fmt: skip
@click.option("--lease-seconds", type=click.IntRange(2, 300), default=15, show_default=True,
              help="The time after which another operator takes over a Lease that is not renewed.")  # fmt: skip
@click.option("--lease-name", default=OPERATOR, show_default=True,
              help="The name of the Lease. Operators with different names work at the same time.")  # fmt: skip
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
    max_unfinished_actions_mib: int,
    max_finished_actions_mib: int,
    rotate_after_seconds: int,
    files_directory: Path | None,
    files_quota: str,
    files_urls: tuple[str, ...],
    files_retention_days: int,
    frontend_route: FrontendRoute,
    bind: str,
    metrics_port: int,
    lease_seconds: int,
    lease_name: str,
    log_format: str,
    log_level: str,
) -> None:
    """Run the operator, which reconciles sites, services, pools and workers."""
    configure_logs(log_format, log_level)
    try:
        broker = _broker(amqp_secret, amqp_url, amqp_management_url, amqp_ca_file)
        files = StoreAccess.open_directory(files_directory)
        quota = parse_bytes(files_quota) if files_quota else None
        file_urls = AllowedUrls(files_urls)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    workers = replace(broker, host=amqp_worker_host or broker.host, port=amqp_worker_port or broker.port)
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(3)}"
    frontends = None
    if frontend_image:
        domain = frontend_domain or f"{namespace}.svc"
        frontends = FrontendTemplate(
            frontend_image,
            namespace,
            frontend_tls_secret,
            domain,
            frontend_cloud4e,
            frontend_pod,
            frontend_route,
            file_urls,
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
        ActionLimits(
            max_unfinished_actions, max_finished_actions, max_unfinished_actions_mib, max_finished_actions_mib
        ),
        watch_namespace or ALL_NAMESPACES,
        rotate_after_seconds,
        files,
        quota,
        SweepSettings(timedelta(days=files_retention_days) if files_retention_days else None),
        file_urls,
    )
    settings = OperatorSettings(fleet, kubeconfig, bind, metrics_port, lease_seconds, lease_name)
    failure: ExceptionGroup[Exception] | None = None
    try:
        uvloop.run(run(settings))
    except* Exception as group:  # noqa: BLE001 - the cause of the end belongs into the log, whatever it is
        failure = group
    if failure is not None:
        log.critical("the operator ends: %s", failure.exceptions[0], exc_info=failure)
        sys.exit(1)


def _broker(secret: Path | None, url: str | None, management_url: str, ca_file: Path | None) -> BrokerAccess:
    if secret is not None:
        return BrokerAccess.from_directory(secret)
    if not url or not management_url:
        raise ValueError("the broker is missing: give --amqp-secret, or both --amqp-url and --amqp-management-url")
    return BrokerAccess.from_url(url, management_url, ca_file)


async def run(settings: OperatorSettings) -> None:
    """Wait for the Lease, then work as the leading operator until SIGTERM.

    Raises:
        ExceptionGroup: with a LeaseLostError or a StandstillError; the process must end.
    """
    stop = asyncio.Event()
    async with (
        await KubeClient.connect(settings.kubeconfig) as client,
        # The Lease has its own client, because a renewal must not wait behind thousands of writes.
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
        leadership = Leadership(lease, Fleet(client, settings.fleet), on_failure=stop.set)
        readiness = _Readiness(leadership, settings)
        async with serve_health(settings.bind, settings.metrics_port, readiness.list_checks):
            await run_operator(leadership, stop)


class _Readiness:
    """The checks on which the readiness of the operator's process depends."""

    def __init__(self, leadership: Leadership, settings: OperatorSettings) -> None:
        self._leadership = leadership
        self._lease = leadership.lease
        self._fleet = leadership.fleet
        self._settings = settings
        self._clock_wrong = False

    def list_checks(self) -> list[HealthCheck]:
        """Return the results of all checks. A process that waits for the Lease is ready if another process leads."""
        leads = self._leadership.leads
        LEADS.set(leads)
        if not leads:
            LEASE_AGE.set(0)
            leader = self._lease.leader
            return [HealthCheck("lease", leader is not None, f"{leader or 'no operator'} leads")]
        age = self._lease.age_seconds
        LEASE_AGE.set(age)
        checks = [HealthCheck("lease", age < self._settings.lease_seconds, f"renewed {age:.1f} s ago")]
        caches: tuple[Cache[Any], ...] = (*self._fleet.registry.caches, *self._fleet.frontends.caches)
        for cache in caches:
            plural, watch_age = cache.resource.plural, cache.measure_age_seconds()
            WATCH_AGE.labels(plural).set(watch_age)
            good = cache.synced.is_set() and watch_age < MAX_AGE_SECONDS
            detail = f"last message {watch_age:.1f} s ago" if cache.synced.is_set() else "not listed yet"
            checks.append(HealthCheck(plural, good, detail))
        connected = self._fleet.requester.connected and self._fleet.broker.prepared.is_set()
        checks.append(HealthCheck("broker", connected, "connected" if connected else "not connected"))
        alarm = self._fleet.broker_health.alarm or self._fleet.requester.blocked
        checks.append(HealthCheck("broker alarms", not alarm, alarm or "none"))
        queue, overdue = self._fleet.find_most_overdue()
        detail = f"{queue} is {overdue:.0f} s behind" if overdue > 1 else "up to date"
        checks.append(HealthCheck("work", overdue < MAX_OVERDUE_SECONDS, detail))
        checks.append(self._clock())
        return checks

    def _clock(self) -> HealthCheck:
        """Return the state of the clock, and log an error when it becomes wrong.

        A wrong clock does not make the process unready, because a steady clock measures all durations.
        """
        CLOCK_SKEW.set(skew := self._fleet.registry.client.clock_skew_seconds or 0.0)
        wrong = filter_skew(skew) != 0
        if wrong and not self._clock_wrong:
            log.error(
                "the API server's clock differs by %+.0f s: set the clock of this node, or that of the API server", skew
            )
        self._clock_wrong = wrong
        return HealthCheck(
            "clock", True, f"the API server's differs by {skew:+.0f} s" if wrong else "agrees with the API server's"
        )
