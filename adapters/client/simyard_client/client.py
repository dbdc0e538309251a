# SPDX-License-Identifier: Apache-2.0
"""The client: the entry to everything in one namespace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from simyard_client import files
from simyard_client.actions import ServiceAction, find_batch
from simyard_client.batches import Batch
from simyard_client.connection import PATIENCE_SECONDS, Connection
from simyard_client.display import Table
from simyard_client.errors import ConfigError
from simyard_client.files import File
from simyard_client.kubeconfig import DEFAULT_NAMESPACE, Access, Cluster, User, load_access
from simyard_client.paths import (
    CLOUD_SITES,
    SERVICE_ACTIONS,
    SIMULATION_SERVICES,
    STUDIES,
    USAGES,
    WORKER_POOLS,
    Json,
    build_path,
    find_condition,
    has_condition,
)
from simyard_client.pools import Pool, Service, Worker, list_workers
from simyard_client.studies import Study
from simyard_client.watching import list_items

HOUR_MILLISECONDS = 3_600_000
FILES_CA_VARIABLE = "SIMYARD_FILES_CA_FILE"
"""Environment variable: the file with the certificates that signed that of the file store."""


def connect(
    kubeconfig: str | Path | None = None,
    *,
    context: str = "",
    namespace: str = "",
    url: str = "",
    token: str = "",
    ca_file: str | Path | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Client:
    """Return a client for the cluster of the kubeconfig, of the pod in which this process runs, or of a URL.

    Nothing is sent before the first use. Credentials that expire are renewed.

    Args:
        kubeconfig: The kubeconfig file; by default the files of ``KUBECONFIG``, or ``~/.kube/config``.
        context: The context of the kubeconfig; by default the current one.
        namespace: The namespace to work in; by default that of the context.
        url: The URL of an API server, instead of a kubeconfig.
        token: The bearer token for ``url``.
        ca_file: The certificates (PEM) that signed the certificate of ``url``; by default those of the system.
        patience_seconds: The time for which a request is repeated while no worker is ready, or while the platform
            asks for it.

    Raises:
        ConfigError: The kubeconfig cannot be used.
    """
    if url:
        authority = _read_text(Path(ca_file)) if ca_file else ""
        access = Access(Cluster(url.rstrip("/"), authority), User(token=token), namespace or DEFAULT_NAMESPACE)
    elif token or ca_file:
        raise ConfigError("token and ca_file belong to url: name the URL of the API server")
    else:
        access = load_access(kubeconfig, context, namespace)
    store = os.environ.get(FILES_CA_VARIABLE)
    return Client(
        Connection(access, patience_seconds=patience_seconds, files_ca=_read_text(Path(store)) if store else "")
    )


class Client:
    """A client of one namespace. Threads may share it; ``with`` closes it."""

    def __init__(self, connection: Connection) -> None:
        """Work through a connection; see :func:`connect`."""
        self._connection = connection

    @property
    def namespace(self) -> str:
        """The namespace to work in."""
        return self._connection.namespace

    def service(self, name: str) -> Service:
        """Return a service; nothing is sent yet."""
        return Service(self._connection, name)

    def pool(self, name: str) -> Pool:
        """Return a pool that exists; nothing is sent yet. ``service(...).pool(...)`` creates pools."""
        return Pool(self._connection, name)

    def worker(self, name: str) -> Worker:
        """Return a worker; nothing is sent yet."""
        return Worker(self._connection, name)

    def action(self, name: str) -> ServiceAction:
        """Return a stored call; nothing is sent yet."""
        return ServiceAction(self._connection, name)

    def study(self, name: str) -> Study:
        """Return a study; nothing is sent yet. ``pool(...).study(...)`` creates studies."""
        return Study(self._connection, name)

    def batch(self, batch_id: str) -> Batch:
        """Return the calls of a durable batch, which perhaps another process has made.

        Raises:
            NotFoundError: There are no ServiceActions of this batch, or no more.
        """
        return find_batch(self._connection, batch_id)

    def services(self) -> Table:
        """Return a table of the published services."""
        rows = [
            (
                item["metadata"]["name"],
                item["spec"].get("displayName") or "",
                item["spec"].get("version") or "",
                has_condition(item, "Available"),
                ", ".join(action["name"] for action in item["spec"]["interface"].get("actions") or ()),
                item["spec"].get("description") or "",
            )
            for item in self._list(SIMULATION_SERVICES)
        ]
        return Table(("service", "title", "version", "available", "actions", "description"), rows)

    def pools(self) -> Table:
        """Return a table of the pools."""
        rows = [
            (
                item["metadata"]["name"],
                item["spec"]["serviceRef"]["name"],
                item["spec"].get("replicas", 1),
                (item.get("status") or {}).get("readyReplicas") or 0,
                has_condition(item, "Available"),
                find_condition(item, "Available").get("message") or "",
            )
            for item in self._list(WORKER_POOLS)
        ]
        return Table(("pool", "service", "workers", "ready", "available", "message"), rows)

    def workers(self) -> Table:
        """Return a table of the workers of all pools."""
        return list_workers(self._connection)

    def actions(self) -> Table:
        """Return a table of the stored calls."""
        rows = [
            (
                item["metadata"]["name"],
                item["spec"]["target"]["name"],
                item["spec"]["action"],
                find_condition(item, "Complete").get("reason") or "",
                (item.get("status") or {}).get("worker") or "",
                (item.get("status") or {}).get("progress") or "",
            )
            for item in self._list(SERVICE_ACTIONS)
        ]
        return Table(("name", "target", "action", "state", "worker", "progress"), rows)

    def studies(self) -> Table:
        """Return a table of the studies."""
        rows = []
        for item in self._list(STUDIES):
            status = item.get("status") or {}
            numbers = (status.get("tasks"), status.get("succeeded") or 0, status.get("failed") or 0)
            rows.append((item["metadata"]["name"], item["spec"]["action"], *numbers, has_condition(item, "Complete")))
        return Table(("study", "action", "tasks", "succeeded", "failed", "complete"), rows)

    def sites(self) -> Table:
        """Return a table of the sites of the platform.

        Raises:
            ForbiddenError: You have no right to list CloudSites, which belong to the cluster.
        """
        items, _ = self._connection.run(lambda api: list_items(api, build_path(CLOUD_SITES)))
        rows = [
            (item["metadata"]["name"], has_condition(item, "Ready"), find_condition(item, "Ready").get("message") or "")
            for item in items
        ]
        return Table(("site", "ready", "message"), rows)

    def usage(self) -> Table:
        """Return a table of the account of the namespace: the use of its machines."""
        rows = [
            (
                row.get("pool"),
                row.get("service"),
                row.get("site"),
                row.get("workers") or 0,
                (row.get("workerMilliseconds") or 0) / HOUR_MILLISECONDS,
                (row.get("coreMilliseconds") or 0) / HOUR_MILLISECONDS,
                row.get("accountedUntil"),
            )
            for item in self._list(USAGES)
            for row in (item.get("status") or {}).get("rows") or ()
        ]
        columns = ("pool", "service", "site", "workers", "worker_hours", "core_hours", "accounted_until")
        return Table(columns, rows, {"worker_hours": "h", "core_hours": "h"})

    def upload(self, path: str | Path, *, progress: bool = True) -> File:
        """Upload a file unless the store has it, and return it; it can be a parameter of an action.

        Raises:
            FileError: The file cannot be read, or the store refused it.
        """
        return files.upload(self._connection, Path(path), progress=progress)

    def download(self, address: str, path: str | Path = ".", *, progress: bool = True) -> Path:
        """Download a file, verify it, and return its path. In a folder, the file gets the name of its upload.

        Raises:
            FileError: The file does not exist, cannot be written, or arrived damaged.
            FileExistsError: There is such a file already.
        """
        return files.download(self._connection, address, Path(path), progress=progress)

    def files(self) -> Table:
        """Return a table of the uploaded files."""
        return files.list_files(self._connection)

    def delete_file(self, address: str) -> None:
        """Delete an uploaded file."""
        files.delete_file(self._connection, address)

    def close(self) -> None:
        """Close all connections. Futures that are not done get a :class:`ClosedError`; stored calls continue."""
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client {self._connection.access.cluster.server}, namespace {self.namespace}>"

    def _repr_html_(self) -> str:
        return self.pools()._repr_html_()

    def _list(self, plural: str) -> Iterator[Json]:
        path = build_path(plural, self.namespace)
        items, _ = self._connection.run(lambda api: list_items(api, path))
        yield from items


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read the certificates: {error}") from None
