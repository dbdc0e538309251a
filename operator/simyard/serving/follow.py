# SPDX-License-Identifier: Apache-2.0
"""Watches one named object. The account needs the right to ``watch`` this object, but no right to ``list``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing

from simyard.api.base import Json
from simyard_sites.kubernetes.changes import follow_changes
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.resource import Resource

log = logging.getLogger(__name__)


async def follow(
    client: KubeClient, resource: Resource, namespace: str, name: str, use: Callable[[Json], None]
) -> None:
    """Call ``use`` with the present state of the object and with each new state, until cancelled; ignore deletions.

    If ``use`` raises ValueError for a state, the function logs the error and goes on with the next state.
    """
    version = ""
    async with aclosing(follow_changes(client, resource, namespace, fields=f"metadata.name={name}")) as events:
        async for event in events:
            newest = str(event.object["metadata"]["resourceVersion"])
            if event.type != "DELETED" and newest != version:
                version = newest
                _use(resource, event.object, use)


def _use(resource: Resource, item: Json, use: Callable[[Json], None]) -> None:
    try:
        use(item)
    except ValueError as error:
        metadata = item["metadata"]
        log.error("%s %s/%s cannot be used: %s", resource.kind, metadata["namespace"], metadata["name"], error)
