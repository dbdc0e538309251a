# SPDX-License-Identifier: Apache-2.0
"""Checks that a site can be used."""

from __future__ import annotations

import re

from simyard_sites.base import ErrorScope, InvalidSpecError, SiteInfo
from simyard_sites.opennebula.catalog import Catalog
from simyard_sites.opennebula.client import Oned
from simyard_sites.opennebula.settings import PATH
from simyard_sites.opennebula.transport import make_endpoint_error
from simyard_sites.opennebula.wire import RpcCall

_OLDEST = (5, 12)


async def probe(oned: Oned, catalog: Catalog) -> SiteInfo:
    """Read the version, the account, and all objects from which machines are created.

    Raises:
        SiteError: The error names the wrong field of the CloudSite.
    """
    version = str(await oned.read(RpcCall("one.system.version"), "ask for the version"))
    _check(version)
    account = await catalog.account()
    await catalog.refresh()
    await catalog.check_networks(account)
    return SiteInfo(f"OpenNebula {version}", account.machines)


def _check(version: str) -> None:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        raise make_endpoint_error(f"its version {version[:40]!r} is not a version number")
    if (int(numbers[1]), int(numbers[2])) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise InvalidSpecError(
            f"{PATH}.endpoint: OpenNebula {version} is too old; {oldest} or later is required", scope=ErrorScope.SITE
        )
