# SPDX-License-Identifier: Apache-2.0
"""Moves large results of ServiceActions into the file store, so that the objects in etcd stay small.

A result has at most 1 MiB, and the operator has it in its hands when it writes the status of the action. It stores the
fields of a result above :data:`MAX_INLINE_BYTES` as one JSON file, and writes the file's address in their place. Fields
that name files stay in the object: there the sweep of the file store finds them. The operator stores only a checked
result. A reader that verifies the digest therefore trusts the file as it trusts the object.

A result never waits for the file store. While the store does not answer, or has no room, the whole result is written
into the object, as on a platform without a file store. Contents are named by their digests, so a repeated pass stores
nothing twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable

import orjson
from prometheus_client import Counter

from simyard.api.base import Json
from simyard.api.names import ANNOTATION_INLINE_RESULT, NAMESPACES
from simyard.api.service_action import ServiceAction, ServiceActionStatus, StoredFile
from simyard.files.catalog import FileCatalog
from simyard.files.namespaces import read_namespace
from simyard.files.quotas import QuotaError
from simyard.files.references import find_addresses
from simyard.files.store import StoreError
from simyard.files.uploads import Upload
from simyard.fleet.registry import Registry
from simyard_sites.kubernetes.errors import ApiError

log = logging.getLogger(__name__)

MAX_INLINE_BYTES = 64 * 1024
"""The largest result, as JSON, that stays in its object."""
MAX_STORE_SECONDS = 5.0
"""Time after which a result is written into the object instead."""
AWAY_SECONDS = 30.0
"""Time for which no result is moved after the store did not answer. Passes over other actions must not wait for it."""
LARGE_RESULT_REMEDY = (
    "parameters and result share one object: let the action return less, or the place where its result is stored"
)
LARGE = Counter(
    "simyard_large_results_total",
    "Results above 64 KiB, by place: stored (in the file store), or inline (the store is away or full).",
    ["place"],
)


class LargeResults:
    """The large results of ServiceActions of all namespaces."""

    def __init__(self, registry: Registry, find_catalog: Callable[[], FileCatalog | None], quota: int | None) -> None:
        """Set up; ``find_catalog`` returns None while there is no file store."""
        self._registry = registry
        self._find_catalog = find_catalog
        self._quota = quota
        self._clock = asyncio.get_running_loop().time
        self._away_until = 0.0

    async def move(self, action: ServiceAction, status: ServiceActionStatus) -> ServiceActionStatus:
        """Return the status with a large result moved into the file store, or unchanged."""
        catalog = self._find_catalog()
        if catalog is None or ANNOTATION_INLINE_RESULT in (action.metadata.annotations or {}):
            return status
        if not isinstance(status.result, dict) or len(orjson.dumps(status.result)) <= MAX_INLINE_BYTES:
            return status
        inline, content = split_result(status.result)
        try:
            if self._clock() < self._away_until:
                raise StoreError(f"the file store did not answer less than {AWAY_SECONDS:g} s ago")
            async with asyncio.timeout(MAX_STORE_SECONDS):
                stored = await self._store(catalog, action, content)
        except (StoreError, TimeoutError, QuotaError, ApiError, ValueError) as error:
            if isinstance(error, StoreError | TimeoutError) and self._clock() >= self._away_until:
                self._away_until = self._clock() + AWAY_SECONDS
            log.warning("the result of %s stays in its object: %s", action.metadata.name, error or "no answer in time")
            LARGE.labels("inline").inc()
            return status
        LARGE.labels("stored").inc()
        return status.model_copy(update={"result": inline, "result_file": stored})

    async def _store(self, catalog: FileCatalog, action: ServiceAction, content: bytes) -> StoredFile:
        raw = await self._registry.client.get(NAMESPACES, action.metadata.namespace, "")
        namespace = read_namespace(raw, self._quota)
        address = f"sha256:{hashlib.sha256(content).hexdigest()}"
        upload = Upload(
            address,
            len(content),
            media_type="application/json",
            name="result.json",
            owner=f"worker:{action.status.worker}",
        )
        await catalog.store_content(namespace.uid, upload, content, namespace.quota)
        return StoredFile(file=address, name=upload.name, bytes=upload.size, media_type=upload.media_type)


def split_result(result: Json) -> tuple[Json, bytes]:
    """Return the fields of a result that stay in the object, and the JSON document of the others."""
    inline = {name: value for name, value in result.items() if any(find_addresses(value))}
    return inline, orjson.dumps({name: value for name, value in result.items() if name not in inline})
