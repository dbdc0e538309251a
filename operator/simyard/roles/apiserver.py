# SPDX-License-Identifier: Apache-2.0
"""Role ``simyard apiserver``, the aggregated API server."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click
import uvloop

from simyard.api.names import SYSTEM_NAMESPACE
from simyard.api.quantities import parse_bytes
from simyard.apiserver.server import serve
from simyard.apiserver.settings import ApiServerSettings
from simyard.files.access import StoreAccess
from simyard.kube.cache import ALL_NAMESPACES
from simyard.messaging.access import BrokerAccess
from simyard.roles.health import serve_health
from simyard.roles.logs import configure_logs
from simyard.serving.health import Health
from simyard_adapter.file_urls import AllowedUrls

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option(
    "--kubeconfig", type=_FILE, envvar="KUBECONFIG", help="The kubeconfig file. Default: the cluster of this process."
)
@click.option(
    "--namespace",
    default=SYSTEM_NAMESPACE,
    envvar="SIMYARD_NAMESPACE",
    show_default=True,
    help="The namespace of the platform.",
)
@click.option("--watch-namespace", multiple=True, envvar="SIMYARD_WATCH_NAMESPACES", metavar="NAMESPACE",
              help="Serve objects of this namespace only; repeatable. Default: all namespaces.")  # fmt: skip
@click.option("--bind", default="0.0.0.0", show_default=True, help="The address to listen on.")  # noqa: S104
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8443, show_default=True, help="The port for kube-apiserver (TLS)."
)
@click.option("--tls-cert", type=_FILE, required=True, help="The certificate of the server (PEM); a change is noticed.")
@click.option("--tls-key", type=_FILE, required=True, help="The private key of the certificate (PEM).")
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    default=8080,
    show_default=True,
    help="The port for metrics and probes (plain HTTP).",
)
@click.option("--max-in-flight", type=click.IntRange(min=1), default=1000, show_default=True,
              help="The largest number of parallel requests; further ones get status 429.")  # fmt: skip
@click.option("--drain-seconds", type=click.FloatRange(min=0), default=3.0, show_default=True,
              help="The time for which the server still answers after SIGTERM.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
              show_default=True)  # fmt: skip
@click.option(
    "--amqp-url", envvar="AMQP_URL", help="The URL of the broker. Default: the Secret that the operator writes."
)
@click.option("--amqp-ca-file", type=_FILE, envvar="AMQP_CA_FILE", help="The CA certificate of the broker, for amqps.")
@click.option("--files-directory", type=_DIRECTORY, envvar="SIMYARD_FILES_DIRECTORY",
              help="The directory of the mounted Secret of the file store. Default: no files.")  # fmt: skip
@click.option("--files-quota", envvar="SIMYARD_FILES_QUOTA", default="", metavar="QUANTITY",
              help="The size of files that a namespace may have, such as 100Gi. Default: no limit.")  # fmt: skip
@click.option("--files-url", "files_urls", multiple=True, envvar="SIMYARD_FILES_URLS", metavar="URL",
              help="A prefix of https URLs that file parameters may have; repeatable. Default: no URLs.")  # fmt: skip
def apiserver(
    kubeconfig: Path | None,
    namespace: str,
    watch_namespace: tuple[str, ...],
    bind: str,
    port: int,
    tls_cert: Path,
    tls_key: Path,
    metrics_port: int,
    max_in_flight: int,
    drain_seconds: float,
    log_format: str,
    log_level: str,
    amqp_url: str | None,
    amqp_ca_file: Path | None,
    files_directory: Path | None,
    files_quota: str,
    files_urls: tuple[str, ...],
) -> None:
    """Run the aggregated API server, which serves actions, attributes and logs as subresources."""
    configure_logs(log_format, log_level)
    try:
        broker = BrokerAccess.from_url(amqp_url, "", amqp_ca_file) if amqp_url else None
        files = StoreAccess.open_directory(files_directory)
        quota = parse_bytes(files_quota) if files_quota else None
        file_urls = AllowedUrls(files_urls)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    settings = ApiServerSettings(
        certificate=tls_cert,
        key=tls_key,
        kubeconfig=kubeconfig,
        namespace=namespace,
        watch_namespaces=watch_namespace or ALL_NAMESPACES,
        broker=broker,
        files=files,
        files_quota=quota,
        file_urls=file_urls,
        bind=bind,
        port=port,
        max_in_flight=max_in_flight,
        drain_seconds=drain_seconds,
    )
    uvloop.run(_run(settings, metrics_port))


async def _run(settings: ApiServerSettings, metrics_port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    health = Health()
    async with serve_health(settings.bind, metrics_port, health.run_checks):
        await serve(settings, stop, health)
