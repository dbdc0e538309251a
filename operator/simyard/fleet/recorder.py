# SPDX-License-Identifier: Apache-2.0
"""Emits Kubernetes Events (events.k8s.io/v1) about pools, sites and services; an Event covers many workers."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import NoReturn

from simyard.api import names
from simyard.api.base import Json, Metadata
from simyard.fleet.registry import get_time
from simyard.fleet.work_queue import KeyQueue
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError, NotFoundError
from simyard_sites.kubernetes.resource import Resource

log = logging.getLogger(__name__)

EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
CLUSTER_NAMESPACE = "default"
"""Namespace of Events about cluster-scoped objects, in which ``kubectl describe`` looks for such Events."""
SERIES_SECONDS = 300.0
SPACING_SECONDS = 5.0
_MAX_SERIES = 2_000
_MAX_NOTE_CHARACTERS = 1024
Key = tuple[str, str]
"""Key of an Event: the uid of its object, and its reason."""


@dataclass(slots=True)
class _Series:
    """An Event, and the number of its repetitions.

    ``written`` is the name of the stored Event. The note of an Event is immutable, so a new note needs a new Event.
    """

    resource: Resource
    regarding: Metadata
    note: str
    warning: bool
    count: int = 0
    began: float = 0.0
    written: str = ""
    written_note: str = ""


class Recorder:
    """Writer of Events. Repetitions within 5 minutes, with the same object and reason, share one Event."""

    def __init__(self, client: KubeClient, instance: str) -> None:
        self._client = client
        self._instance = instance
        self._series: OrderedDict[Key, _Series] = OrderedDict()
        self._queue = KeyQueue("events", self._write, concurrency=2, spacing_seconds=SPACING_SECONDS)

    async def run(self) -> NoReturn:
        """Write Events until cancelled."""
        await self._queue.run()

    def emit(self, resource: Resource, regarding: Metadata, reason: str, note: str, *, warning: bool = False) -> None:
        """Record an Event; a background task writes it."""
        key = (regarding.uid, str(reason))
        time = asyncio.get_running_loop().time()
        series = self._series.pop(key, None)
        if series is None or time - series.began > SERIES_SECONDS:
            series = _Series(resource, regarding, note, warning, began=time)
        series.note, series.count = note[:_MAX_NOTE_CHARACTERS], series.count + 1
        self._series[key] = series
        while len(self._series) > _MAX_SERIES:
            dropped, _ = self._series.popitem(last=False)
            self._queue.forget(dropped)
        self._queue.add(key)

    async def _write(self, key: Key) -> None:
        series = self._series.get(key)
        if series is None:
            return
        try:
            await self._put(series, key[1])
        except ApiError as error:
            if error.retryable:
                raise
            log.warning("event %s about %s: %s", key[1], series.regarding.name, error)

    async def _put(self, series: _Series, reason: str) -> None:
        namespace = series.regarding.namespace or CLUSTER_NAMESPACE
        if series.written and series.note == series.written_note:
            change: Json = {
                "series": {"count": series.count, "lastObservedTime": get_time().strftime("%Y-%m-%dT%H:%M:%S.%fZ")},
            }
            try:
                await self._client.patch(EVENTS, series.written, change, namespace)
                return
            except NotFoundError:
                series.written = ""
        note = series.note
        raw = await self._client.create(EVENTS, self._event(series, reason, namespace), namespace)
        series.written, series.written_note = str(raw["metadata"]["name"]), note

    def _event(self, series: _Series, reason: str, namespace: str) -> Json:
        name, uid = series.regarding.name, series.regarding.uid
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"generateName": f"{name}-", "namespace": namespace},
            "eventTime": get_time().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": f"{names.GROUP}/operator",
            "reportingInstance": self._instance[:128],
            "action": reason,
            "reason": reason,
            "type": "Warning" if series.warning else "Normal",
            "note": series.note,
            "regarding": {
                "apiVersion": series.resource.api_version,
                "kind": series.resource.kind,
                "name": name,
                "namespace": series.regarding.namespace,
                "uid": uid,
            },
        }
