# SPDX-License-Identifier: Apache-2.0
"""Role ``simyard frontend``, an OCCI server."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import click
import uvloop

from simyard.api.names import SYSTEM_NAMESPACE
from simyard.frontend.health import Health
from simyard.frontend.server import serve
from simyard.frontend.settings import FrontendSettings
from simyard.messaging.access import BrokerAccess
from simyard.roles.health import serve_health
from simyard.roles.logs import configure_logs
from simyard_adapter.file_urls import AllowedUrls

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+", re.ASCII)


def _url(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Check that an option is ``https://HOST[:PORT]``, with or without a slash at its end, and return it.

    ``http`` is valid too, because an older server may have given its entities such names.
    """
    if value and not _ORIGIN.fullmatch(value.removesuffix("/")):
        raise click.BadParameter(f"{value}: must be https://HOST[:PORT] (or http://) without a path")
    return value


def _urls(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_url(context, parameter, value) for value in values)


def _origins(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    for value in values:
        if not _ORIGIN.fullmatch(value):
            raise click.BadParameter(
                f"{value}: must be an origin as browsers send it: https://HOST[:PORT] (or http://)"
            )
    return frozenset(values)


@click.command()
@click.option(
    "--kubeconfig", type=_FILE, envvar="KUBECONFIG", help="The kubeconfig file. Default: the cluster of this process."
)
@click.option("--namespace", default="default", show_default=True, help="The namespace whose objects are served.")
@click.option("--service", default="", help="The SimulationService to serve. Default: all of the namespace.")
@click.option("--platform-namespace", default=SYSTEM_NAMESPACE, envvar="SIMYARD_NAMESPACE", show_default=True,
              help="The namespace of the platform.")  # fmt: skip
@click.option("--endpoint", default="", callback=_url,
              help="https://HOST:PORT as clients see it. Default: the host that each request names.")  # fmt: skip
@click.option("--amqp-endpoint", default="", callback=_url,
              help="The URL that names the queue of AMQP clients. Default: the endpoint.")  # fmt: skip
@click.option("--other-endpoint", "other_endpoints", multiple=True, callback=_urls,
              help="The URL of another frontend whose URIs name the same entities; repeatable.")  # fmt: skip
@click.option("--files-url", "files_urls", multiple=True, envvar="SIMYARD_FILES_URLS", metavar="URL",
              help="A prefix of https URLs that file parameters may have; repeatable. Default: no URLs.")  # fmt: skip
@click.option("--cloud4e", is_flag=True, help="Also serve the service adapters of Cloud4E.")
@click.option("--bind", default="0.0.0.0", show_default=True, help="The address to listen on.")  # noqa: S104
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8443, show_default=True, help="The port for clients (TLS)."
)
@click.option("--tls-cert", type=_FILE, required=True, help="The certificate of the server (PEM); a change is noticed.")
@click.option("--tls-key", type=_FILE, required=True, help="The private key of the certificate (PEM).")
@click.option("--metrics-port", type=click.IntRange(1, 65535), default=8080, show_default=True,
              help="The port for metrics and probes (plain HTTP).")  # fmt: skip
@click.option("--cors-origin", "cors_origins", multiple=True, callback=_origins,
              help="A web origin that may send the credentials of the browser; others may send tokens.")  # fmt: skip
@click.option("--max-in-flight", type=click.IntRange(min=1), default=1000, show_default=True,
              help="The largest number of parallel requests; further ones get status 503.")  # fmt: skip
@click.option("--drain-seconds", type=click.FloatRange(min=0), default=3.0, show_default=True,
              help="The time for which the server still answers after SIGTERM.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
              show_default=True)  # fmt: skip
@click.option("--amqp-url", envvar="AMQP_URL",
              help="The broker for AMQP clients. Default: the Secret that the operator writes.")  # fmt: skip
@click.option("--amqp-ca-file", type=_FILE, envvar="AMQP_CA_FILE", help="The CA certificate of the broker, for amqps.")
def frontend(
    kubeconfig: Path | None,
    namespace: str,
    service: str,
    platform_namespace: str,
    endpoint: str,
    amqp_endpoint: str,
    other_endpoints: tuple[str, ...],
    files_urls: tuple[str, ...],
    cloud4e: bool,
    bind: str,
    port: int,
    tls_cert: Path,
    tls_key: Path,
    metrics_port: int,
    cors_origins: frozenset[str],
    max_in_flight: int,
    drain_seconds: float,
    log_format: str,
    log_level: str,
    amqp_url: str | None,
    amqp_ca_file: Path | None,
) -> None:
    """Run an OCCI frontend of one namespace, over HTTPS, and over AMQP if the broker has a virtual host for clients."""
    configure_logs(log_format, log_level)
    try:
        broker = BrokerAccess.from_url(amqp_url, "", amqp_ca_file) if amqp_url else None
        file_urls = AllowedUrls(files_urls)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    settings = FrontendSettings(
        certificate=tls_cert,
        key=tls_key,
        kubeconfig=kubeconfig,
        namespace=namespace,
        service=service,
        platform_namespace=platform_namespace,
        endpoint=endpoint.rstrip("/"),
        amqp_endpoint=amqp_endpoint or endpoint,
        other_endpoints=other_endpoints,
        cloud4e=cloud4e,
        file_urls=file_urls,
        broker=broker,
        bind=bind,
        port=port,
        cors_origins=cors_origins,
        max_in_flight=max_in_flight,
        drain_seconds=drain_seconds,
    )
    uvloop.run(_run(settings, metrics_port))


async def _run(settings: FrontendSettings, metrics_port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    health = Health()
    async with serve_health(settings.bind, metrics_port, health.run_checks):
        await serve(settings, stop, health)
