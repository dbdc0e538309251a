# SPDX-License-Identifier: Apache-2.0
"""Moves large results of ServiceActions into the file store, so that the objects in etcd stay small.

A result has at most 1 MiB. If it is larger than :data:`MAX_INLINE_BYTES`, the operator stores its fields as one JSON
file, and writes the file's address into the status of the action. Fields that name files stay in the object,
because the sweep of the file store reads them there. The operator checks a result before it stores the file. So a
reader that verifies the file's digest can trust the file as much as the object.

A result does not wait for the file store. While the store does not answer, or has no room, the operator writes the
whole result into the object, as on a platform without a file store. The name of a file is its digest, so a repeated
pass stores no second file.
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
"""Maximum size of a result, as JSON, that stays in the object."""
MAX_STORE_SECONDS = 5.0
"""Maximum time for the storage of a result; then the operator writes the result into the object."""
AWAY_SECONDS = 30.0
"""After the store did not answer, the operator does not ask it for this time, so that passes do not wait for it."""
LARGE_RESULT_REMEDY = (
    "parameters and result share one object: let the action return less, or the place where its result is stored"
)
LARGE = Counter(
    "simyard_large_results_total",
    "Results above 64 KiB, by place: stored (in the file store), or inline (the store is away or full).",
    ["place"],
)


class LargeResults:
    """Component that moves large results of ServiceActions into the file store."""

    def __init__(self, registry: Registry, find_catalog: Callable[[], FileCatalog | None], quota: int | None) -> None:
        """Create the component; ``find_catalog`` returns None while there is no file store."""
        self._registry = registry
        self._find_catalog = find_catalog
        self._quota = quota
        self._clock = asyncio.get_running_loop().time
        self._away_until = 0.0

    async def move(self, action: ServiceAction, status: ServiceActionStatus) -> ServiceActionStatus:
        """Move a large result into the file store, and return the status with its address.

        If the result is small or cannot be stored, return the unchanged status.
        """
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
    """Return the fields of a result that stay in the object, and a JSON document with the other fields."""
    inline = {name: value for name, value in result.items() if any(find_addresses(value))}
    return inline, orjson.dumps({name: value for name, value in result.items() if name not in inline})
