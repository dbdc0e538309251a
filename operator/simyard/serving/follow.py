# SPDX-License-Identifier: Apache-2.0
"""Watch of one named object. RBAC needs ``watch`` for that name, and no ``list``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

from simyard.api.base import Json
from simyard_adapter.backoff import draw_delay
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.resource import Resource

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 30.0


async def follow(
    client: KubeClient, resource: Resource, namespace: str, name: str, use: Callable[[Json], None]
) -> NoReturn:
    """Call ``use`` with the current state of the object and with each new one; a deletion is ignored.

    A state for which ``use`` raises ValueError is logged and skipped.
    """
    version = ""
    failures = 0
    while True:
        try:
            async for event in client.watch(resource, namespace, resource_version="", fields=f"metadata.name={name}"):
                failures = 0
                newest = str(event.object["metadata"]["resourceVersion"])
                if event.type in ("ADDED", "MODIFIED") and newest != version:
                    version = newest
                    _use(resource, event.object, use)
        except ApiError as error:
            log.warning("watch of %s %s/%s: %s", resource.kind, namespace, name, error)
            failures += 1
        await asyncio.sleep(draw_delay(failures, MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS))


def _use(resource: Resource, item: Json, use: Callable[[Json], None]) -> None:
    try:
        use(item)
    except ValueError as error:
        metadata = item["metadata"]
        log.error("%s %s/%s cannot be used: %s", resource.kind, metadata["namespace"], metadata["name"], error)
