# SPDX-License-Identifier: Apache-2.0
"""The files that objects of Kubernetes name.

A value of a parameter or result that is a file is a JSON object whose key ``file`` has the file's address. Such a value
may be at any depth, in a list of files for example.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simyard.api.base import Json
from simyard.api.names import SERVICE_ACTIONS, SIMULATION_SERVICES, STUDIES, WORKER_POOLS, WORKERS
from simyard.files.study_files import StudyRows
from simyard_adapter.digests import is_address
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import NotFoundError
from simyard_sites.kubernetes.resource import Resource

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NAMING = (SERVICE_ACTIONS, STUDIES, WORKER_POOLS, SIMULATION_SERVICES, WORKERS)
"""The kinds whose objects may name files."""
_CLUSTER = "kube-system"


def find_addresses(value: object) -> Iterator[str]:
    """Yield the address of each file that a JSON value names."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as item:
                if isinstance(address := item.get("file"), str) and is_address(address):
                    yield address
                waiting.extend(item.values())
            case list() as items:
                waiting.extend(items)


class References:
    """The namespaces of a cluster and the files that their objects name, read from the API server without a cache.

    Every method raises an ApiError if the API server does not answer or refuses.
    """

    def __init__(self, client: KubeClient, namespaces: Sequence[str]) -> None:
        self._client = client
        self._namespaces = namespaces

    def is_watched(self, namespace: str) -> bool:
        """Return whether this installation serves a namespace."""
        return not any(self._namespaces) or namespace in self._namespaces

    async def identify_cluster(self) -> str:
        """Return the uid of the cluster: that of its namespace kube-system."""
        return str((await self._client.get(NAMESPACES, _CLUSTER))["metadata"]["uid"])

    async def list_namespaces(self) -> dict[str, str]:
        """Return the names of all namespaces of the cluster by their uids."""
        found: dict[str, str] = {}

        def read(page: list[Json]) -> None:
            found.update((item["metadata"]["uid"], item["metadata"]["name"]) for item in page)

        await self._client.list_all(NAMESPACES, on_page=read)
        return found

    async def find_uid(self, namespace: str) -> str:
        """Return the uid of a namespace as it is now; empty if there is none with the name."""
        try:
            return str((await self._client.get(NAMESPACES, namespace))["metadata"]["uid"])
        except NotFoundError:
            return ""

    async def list_studies(self, namespace: str) -> dict[str, StudyRows]:
        """Return the rows of all studies of a namespace, by the uid of the study."""
        found: dict[str, StudyRows] = {}

        def read(page: list[Json]) -> None:
            for item in page:
                status = item.get("status") or {}
                rows = StudyRows(status.get("resultBytes") or 0, bool(status.get("rowsNameFiles")))
                found[item["metadata"]["uid"]] = rows

        await self._client.list_all(STUDIES, namespace, on_page=read)
        return found

    async def find_named_files(self, namespace: str) -> set[str]:
        """Return the addresses of all files that objects of a namespace name."""
        found: set[str] = set()

        def read(page: list[Json]) -> None:
            for item in page:
                found.update(find_addresses(item))

        for resource in NAMING:
            await self._client.list_all(resource, namespace, on_page=read)
        return found
