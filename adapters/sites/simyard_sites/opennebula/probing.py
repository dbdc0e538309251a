"""Whether a site can be used, and why not."""

from __future__ import annotations

import re

from simyard_sites.base import ErrorScope, InvalidSpecError, SiteInfo
from simyard_sites.opennebula.catalog import Catalog
from simyard_sites.opennebula.client import Oned
from simyard_sites.opennebula.settings import PATH
from simyard_sites.opennebula.transport import not_opennebula
from simyard_sites.opennebula.wire import Call

_OLDEST = (5, 12)


async def probe(oned: Oned, catalog: Catalog) -> SiteInfo:
    """Ask for the version, the account, and for all that machines are made from.

    Raises:
        SiteError: names the field of the CloudSite that is wrong.
    """
    version = str(await oned.read(Call("one.system.version"), "ask for the version"))
    _check(version)
    account = await catalog.account()
    await catalog.refresh()
    await catalog.check_networks(account)
    return SiteInfo(f"OpenNebula {version}", account.machines)


def _check(version: str) -> None:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        raise not_opennebula(f"its version is {version[:40]!r}")
    if (int(numbers[1]), int(numbers[2])) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise InvalidSpecError(
            f"{PATH}.endpoint: OpenNebula {version} answers there; {oldest} or later is needed", scope=ErrorScope.SITE
        )
