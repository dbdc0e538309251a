# SPDX-License-Identifier: Apache-2.0
"""Measures the load of the OCCI frontends, from the depths of their queues and the metrics that they export.

For each service that scales by load, the operator reads ``/metrics`` of all ready frontends, as a monitoring system
does. So frontends need no special protocol, and a restart of the operator loses no data. The cost depends only on the
number of frontends, not on the number of workers or machines. One call to the broker returns the queue depths of all
services.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from simyard.api.base import Json
from simyard.api.names import (
    METRIC_LOOP_LATE_SECONDS,
    METRIC_OCCI_REFRESH_SECONDS,
    METRIC_OCCI_REQUEST_SECONDS,
)
from simyard.fleet.frontends.occi_broker import OcciBroker
from simyard.kube.cache import Key
from simyard.manifests.frontend import COMPONENT, METRICS_PORT, find_owner
from simyard.manifests.metadata import PART_OF
from simyard.messaging.errors import MessagingError
from simyard.messaging.occi_topology import name_request_queue
from simyard.plan.frontends import Figures, Load, ReplicaLoad, measure_replica_load
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.resource import Resource

log = logging.getLogger(__name__)

PODS = Resource("", "v1", "pods", "Pod")
ANSWER_SECONDS = 3.0
CONCURRENCY = 16
READING_METHODS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class _Pod:
    """The pod of a ready frontend."""

    uid: str
    address: str
    service: Key


class FrontendLoads:
    """Reader of the loads of all frontends; it is an async context manager. ``port`` is the port of their metrics."""

    def __init__(self, client: KubeClient, namespace: str, broker: OcciBroker, *, port: int = METRICS_PORT) -> None:
        self._client = client
        self._namespace = namespace
        self._broker = broker
        self._port = port
        self._before: dict[str, Figures] = {}
        self._free = asyncio.Semaphore(CONCURRENCY)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(force_close=True))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def look(self, endpoints: Mapping[Key, str]) -> dict[Key, Load]:
        """Return the load of each of these services since the last call.

        ``endpoints`` has the URL of each service's frontends. In the result, None stands for a figure that could not be
        read.
        """
        async with asyncio.TaskGroup() as group:
            depths = group.create_task(self._depths(endpoints))
            figures = group.create_task(self._figures(endpoints))
        replicas: dict[Key, list[ReplicaLoad | None]] = {key: [] for key in endpoints}
        before, self._before = self._before, {}
        silent: Counter[Key] = Counter()
        for pod, (found, timed_out) in figures.result().items():
            last = before.get(pod.uid)
            replicas[pod.service].append(measure_replica_load(last, found))
            if timed_out and last is not None:  # a frontend that never answered may be unreachable, not busy
                silent[pod.service] += 1
            if (known := found or (last if timed_out else None)) is not None:
                self._before[pod.uid] = known
        return {key: Load(depths.result()[key], tuple(replicas[key]), silent[key]) for key in endpoints}

    async def _depths(self, endpoints: Mapping[Key, str]) -> dict[Key, int | None]:
        if not self._broker.vhost:  # without a virtual host, there are no queues of requests
            return dict.fromkeys(endpoints, 0)
        try:
            queues = await self._broker.list_queues()
        except MessagingError as error:
            log.warning("the depths of the OCCI queues cannot be read: %s", error)
            return dict.fromkeys(endpoints, None)
        found = {key: queues.get(name_request_queue(endpoint)) for key, endpoint in endpoints.items()}
        return {key: info.ready if info is not None else None for key, info in found.items()}

    async def _figures(self, services: Iterable[Key]) -> dict[_Pod, tuple[Figures | None, bool]]:
        """Return the figures of each ready frontend (None: unreadable), and whether the request for them timed out."""
        wanted = frozenset(services)
        selector = ",".join(f"{name}={value}" for name, value in (PART_OF | COMPONENT).items())
        try:
            raw, _ = await self._client.list_all(PODS, self._namespace, labels=selector)
        except ApiError as error:
            log.warning("the pods of the frontends cannot be listed: %s", error)
            return {}
        pods = [pod for item in raw if (pod := _ready_pod(item)) is not None and pod.service in wanted]
        async with asyncio.TaskGroup() as group:
            tasks = {pod: group.create_task(self._read(pod)) for pod in pods}
        return {pod: task.result() for pod, task in tasks.items()}

    async def _read(self, pod: _Pod) -> tuple[Figures | None, bool]:
        assert self._session is not None, "FrontendLoads must be entered as a context before it is used"
        url = URL.build(scheme="http", host=pod.address, port=self._port, path="/metrics")
        try:
            async with self._free, self._session.get(url, raise_for_status=True) as response:
                return read_figures(await response.text()), False
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, OverflowError) as error:
            cause = str(error) or type(error).__name__
            log.info("the figures of the frontend at %s cannot be read: %s", pod.address, cause)
            return None, isinstance(error, TimeoutError)


def read_figures(text: str) -> Figures:
    """Parse the metrics of a frontend in Prometheus' text format, and return its figures.

    Raises:
        ValueError: the text is not in that format.
    """
    lines = [line for line in text.splitlines() if line.startswith(_READ)]
    sums = dict.fromkeys(_FIELDS.values(), 0.0)
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            of_requests = sample.name.startswith(METRIC_OCCI_REQUEST_SECONDS)
            if not of_requests or sample.labels.get("method") in READING_METHODS:
                sums[_FIELDS[sample.name]] += sample.value
    own_seconds = max(0.0, sums["read_seconds"] - sums["refresh_seconds"])
    return Figures(int(sums["reads"]), own_seconds, int(sums["ticks"]), sums["late_seconds"])


_FIELDS = {
    f"{METRIC_OCCI_REQUEST_SECONDS}_count": "reads",
    f"{METRIC_OCCI_REQUEST_SECONDS}_sum": "read_seconds",
    f"{METRIC_OCCI_REFRESH_SECONDS}_sum": "refresh_seconds",
    f"{METRIC_LOOP_LATE_SECONDS}_count": "ticks",
    f"{METRIC_LOOP_LATE_SECONDS}_sum": "late_seconds",
}
_READ = tuple(f"{name}{end}" for name in _FIELDS for end in ("{", " "))


def _ready_pod(raw: Json) -> _Pod | None:
    metadata, status = raw["metadata"], raw.get("status") or {}
    service, address = find_owner(metadata.get("labels") or {}), str(status.get("podIP") or "")
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions") or ())
    if service is None or not address or not ready or metadata.get("deletionTimestamp"):
        return None
    return _Pod(str(metadata["uid"]), address, service)
