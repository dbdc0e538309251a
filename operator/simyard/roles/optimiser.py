# SPDX-License-Identifier: Apache-2.0
"""Role ``simyard optimiser``, which chooses the points of studies with the design ``optimise``."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click
import uvloop

from simyard.files.access import StoreAccess
from simyard.files.store import ObjectStore
from simyard.kube.cache import ALL_NAMESPACES
from simyard.roles.health import serve_health
from simyard.roles.logs import configure_logs
from simyard_sites.kubernetes.client import KubeClient

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option(
    "--kubeconfig", type=_FILE, envvar="KUBECONFIG", help="The kubeconfig file. Default: the cluster of this process."
)
@click.option("--watch-namespace", multiple=True, envvar="SIMYARD_WATCH_NAMESPACES", metavar="NAMESPACE",
              help="Search for studies of this namespace only; repeatable. Default: all namespaces.")  # fmt: skip
@click.option("--files-directory", type=_DIRECTORY, envvar="SIMYARD_FILES_DIRECTORY", required=True,
              help="The directory of the mounted Secret of the file store.")  # fmt: skip
@click.option("--bind", default="127.0.0.1", show_default=True, help="The address of metrics and probes.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), default=8080, show_default=True,
              help="The port for metrics and probes (plain HTTP).")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
              show_default=True)  # fmt: skip
def optimiser(
    kubeconfig: Path | None,
    watch_namespace: tuple[str, ...],
    files_directory: Path,
    bind: str,
    metrics_port: int,
    log_format: str,
    log_level: str,
) -> None:
    """Run the optimiser, which chooses the points of studies by the results of earlier points."""
    configure_logs(log_format, log_level)
    access = StoreAccess.open_directory(files_directory)
    assert access is not None, "the option is required"
    uvloop.run(_run(access, kubeconfig, watch_namespace or ALL_NAMESPACES, bind, metrics_port))


async def _run(
    access: StoreAccess, kubeconfig: Path | None, namespaces: tuple[str, ...], bind: str, metrics_port: int
) -> None:
    try:
        from simyard.optimiser.server import Optimiser
    except ImportError as error:
        raise click.ClickException(
            f"{error}: the algorithms are not installed: pip install 'simyard[optimise]'"
        ) from None
    async with await KubeClient.connect(kubeconfig) as client, ObjectStore(access) as store:
        parts = Optimiser(client, store, namespaces)
        async with serve_health(bind, metrics_port, parts.list_checks):
            work = asyncio.create_task(parts.run())
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, work.cancel)
            try:
                await work
            except asyncio.CancelledError:
                return
