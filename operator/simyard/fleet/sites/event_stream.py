# SPDX-License-Identifier: Apache-2.0
"""Follows the stream of events of a site while its breaker permits it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import NoReturn

from simyard.fleet.sites.health import SiteHealth
from simyard_sites.base import Site, SiteError, SiteEvent, UnavailableError

log = logging.getLogger(__name__)


async def follow(
    name: str, provider: Site, health: SiteHealth, apply: Callable[[SiteEvent], None], on_broken: Callable[[], None]
) -> NoReturn:
    """Pass every event of a site to ``apply`` until cancelled; call ``on_broken`` when events may have been lost.

    Each new stream costs the site a request and a login, so no stream begins while the breaker is open.
    """
    failures = 0
    while True:
        await health.wait_until_permitted()
        events = provider.events()
        try:
            async for event in events:
                failures = 0
                apply(event)
            raise UnavailableError("the site ended its stream of events")
        except SiteError as error:
            log.warning("site %s: the stream of events broke: %s", name, error)
            on_broken()
            health.record_stream(error)
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()
        failures += 1
        await asyncio.sleep(health.compute_pause(failures))
