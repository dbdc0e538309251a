# SPDX-License-Identifier: Apache-2.0
"""Follows the changes of objects without end, for callers that keep no complete copy of the objects.

Two other loops have other needs. :class:`simyard.kube.cache.Cache` lists in pages first, to notice deleted objects and
to know when its copy is complete. :mod:`simyard_sites.kubernetes.watching` raises each failure, because the breaker of
the site decides about the next attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from simyard_adapter.backoff import draw_delay
from simyard_sites.kubernetes.client import KubeClient, WatchEvent
from simyard_sites.kubernetes.errors import ApiError, ExpiredError
from simyard_sites.kubernetes.resource import Resource

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 30.0


async def follow_changes(
    client: KubeClient, resource: Resource, namespace: str = "", *, fields: str = ""
) -> AsyncGenerator[WatchEvent, None]:
    """Yield the present objects as ``ADDED``, then all changes, without end.

    If a watch ends or breaks, a new watch continues after the last event. If the version of that event is too old, the
    function yields the present objects again. It logs failures and retries after growing pauses.
    """
    version = ""
    failures = 0
    while True:
        try:
            watch = client.watch(resource, namespace, resource_version=version, fields=fields)
            async with aclosing(watch) as events:
                async for event in events:
                    failures = 0
                    version = str(event.object["metadata"]["resourceVersion"])
                    if event.type != "BOOKMARK":
                        yield event
        except ExpiredError:
            version = ""
        except ApiError as error:
            log.warning("watch of %s %s %s: %s", resource.plural, namespace, fields, error)
            failures += 1
        await asyncio.sleep(draw_delay(failures, MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS))
