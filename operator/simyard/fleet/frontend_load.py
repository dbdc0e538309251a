"""What the OCCI frontends of services have to do: their queues' depths, and their own figures.

The figures are read from ``/metrics`` of each ready frontend of a service that scales by load: what everybody else's
monitoring reads. So nothing new goes over the wire, a restart of the operator loses nothing, and the cost grows with
the number of frontends alone: neither workers nor machines are asked, nor do they appear in what is read. Depths come
from the broker in one call for all services.
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
from simyard.build.frontend import COMPONENT, METRICS_PORT, owner_of
from simyard.build.metadata import PART_OF
from simyard.fleet.occi_broker import OcciBroker
from simyard.kube.cache import Key
from simyard.messaging.errors import MessagingError
from simyard.messaging.occi_topology import request_queue
from simyard.plan.frontends import Figures, Load, ReplicaLoad, replica_load
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
    """A ready frontend."""

    uid: str
    address: str
    service: Key


class FrontendLoads:
    """Looks at the load. Needs to be closed. ``port``: where a frontend shows its metrics."""

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
        """The load of each of these services since the last look; what cannot be learnt now is unknown in it."""
        async with asyncio.TaskGroup() as group:
            depths = group.create_task(self._depths(endpoints))
            figures = group.create_task(self._figures(endpoints))
        replicas: dict[Key, list[ReplicaLoad | None]] = {key: [] for key in endpoints}
        before, self._before = self._before, {}
        silent: Counter[Key] = Counter()
        for pod, (found, timed_out) in figures.result().items():
            last = before.get(pod.uid)
            replicas[pod.service].append(replica_load(last, found))
            if timed_out and last is not None:  # one that never answered is perhaps not to be reached from here
                silent[pod.service] += 1
            if (known := found or (last if timed_out else None)) is not None:
                self._before[pod.uid] = known
        return {key: Load(depths.result()[key], tuple(replicas[key]), silent[key]) for key in endpoints}

    async def _depths(self, endpoints: Mapping[Key, str]) -> dict[Key, int | None]:
        if not self._broker.vhost:  # they take no requests from queues
            return dict.fromkeys(endpoints, 0)
        try:
            queues = await self._broker.queues()
        except MessagingError as error:
            log.warning("depths of the OCCI queues: %s", error)
            return dict.fromkeys(endpoints, None)
        found = {key: queues.get(request_queue(endpoint)) for key, endpoint in endpoints.items()}
        return {key: info.ready if info is not None else None for key, info in found.items()}

    async def _figures(self, services: Iterable[Key]) -> dict[_Pod, tuple[Figures | None, bool]]:
        """The figures of each ready frontend, and whether it took too long to tell them."""
        wanted = frozenset(services)
        selector = ",".join(f"{name}={value}" for name, value in (PART_OF | COMPONENT).items())
        try:
            raw, _ = await self._client.list_all(PODS, self._namespace, labels=selector)
        except ApiError as error:
            log.warning("pods of the frontends: %s", error)
            return {}
        pods = [pod for item in raw if (pod := _ready_pod(item)) is not None and pod.service in wanted]
        async with asyncio.TaskGroup() as group:
            tasks = {pod: group.create_task(self._read(pod)) for pod in pods}
        return {pod: task.result() for pod, task in tasks.items()}

    async def _read(self, pod: _Pod) -> tuple[Figures | None, bool]:
        assert self._session is not None, "used outside of its context"
        url = URL.build(scheme="http", host=pod.address, port=self._port, path="/metrics")
        try:
            async with self._free, self._session.get(url, raise_for_status=True) as response:
                return read_figures(await response.text()), False
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, OverflowError) as error:
            log.info("figures of the frontend at %s: %s", pod.address, str(error) or type(error).__name__)
            return None, isinstance(error, TimeoutError)


def read_figures(text: str) -> Figures:
    """The figures in what a frontend shows at ``/metrics`` (Prometheus' text format).

    Raises:
        ValueError: it is not in that format.
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
    service, address = owner_of(metadata.get("labels") or {}), str(status.get("podIP") or "")
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions") or ())
    if service is None or not address or not ready or metadata.get("deletionTimestamp"):
        return None
    return _Pod(str(metadata["uid"]), address, service)
