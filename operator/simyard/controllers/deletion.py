# SPDX-License-Identifier: Apache-2.0
"""Handlers of deletion: kopf removes the finalizer of a pool or site when its handler returns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from simyard.controllers.leadership import Leadership
from simyard_sites.base import SiteError

log = logging.getLogger(__name__)

REPORT_SECONDS = 20.0
RETRY_SECONDS = 1.0


async def wait_until_gone(wait: Callable[[], Awaitable[None]], memo: Leadership, uid: str) -> None:
    """Wait, without a time limit, until everything that belongs to an object is gone.

    Handlers of kopf usually raise ``kopf.TemporaryError`` to be called again. kopf would write each attempt into an
    annotation of the object. So this handler keeps waiting instead, and reports every 20 s that it still runs.
    """
    while True:
        memo.progress.report_handler(uid)
        try:
            async with asyncio.timeout(REPORT_SECONDS):
                await wait()
            return
        except TimeoutError:
            continue
        except SiteError as error:
            log.warning("deletion of %s is tried again: %s", uid, error)
            await asyncio.sleep(RETRY_SECONDS)
