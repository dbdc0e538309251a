"""Follows what a site tells of its machines, as long as its breaker permits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import NoReturn

from simyard.fleet.site_health import SiteHealth, pause_after
from simyard_sites.base import Site, SiteError, SiteEvent, UnavailableError

log = logging.getLogger(__name__)


async def follow(
    name: str, provider: Site, health: SiteHealth, take: Callable[[SiteEvent], None], broken: Callable[[], None]
) -> NoReturn:
    """Give every event to ``take`` until cancelled; ``broken`` is called when some may have been missed.

    Opening the stream is a request, and a login: an open breaker forbids it like any other.
    """
    failures = 0
    while True:
        await health.until_permitted()
        events = provider.events()
        try:
            async for event in events:
                failures = 0
                take(event)
            raise UnavailableError("the site ended its stream of events")
        except SiteError as error:
            log.warning("site %s: %s", name, error)
            broken()
            health.stream(error)
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()
        failures += 1
        await asyncio.sleep(pause_after(failures))
