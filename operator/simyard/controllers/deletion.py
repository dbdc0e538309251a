# SPDX-License-Identifier: Apache-2.0
"""Common part of the handlers of deletion. When a handler returns, kopf removes the object's finalizer."""

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
    """Wait without a time limit until ``wait`` returns, because everything that belongs to the object is gone.

    A handler of kopf usually raises ``kopf.TemporaryError``, after which kopf calls it again. But kopf writes each
    attempt into an annotation of the object. So this function waits instead, and reports every 20 s that it still runs.
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
