# SPDX-License-Identifier: Apache-2.0
"""Handlers of CloudSites. The reconciler is :class:`simyard.fleet.sites.reconciler.Sites`."""

from __future__ import annotations

from functools import partial
from typing import Any

import kopf

from simyard.api.names import CLOUD_SITES
from simyard.controllers.deletion import wait_until_gone
from simyard.controllers.leadership import Leadership


@kopf.on.delete(CLOUD_SITES.group, CLOUD_SITES.version, CLOUD_SITES.plural, id="machines")
async def wait_until_empty(name: str, uid: str, memo: Leadership, **_: Any) -> None:
    """Wait until the site has no Workers and no machines any more; then kopf removes the finalizer."""
    await wait_until_gone(partial(memo.fleet.sites.wait_until_emptied, name), memo, uid)
