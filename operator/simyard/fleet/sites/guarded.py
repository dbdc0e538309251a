# SPDX-License-Identifier: Apache-2.0
"""Turns every exception of a provider into an error of its site.

Other people may have written a provider. If it raises an exception that is not a SiteError, this is a defect of the
provider. It must not end the operator or the site's runner. So this module turns it into an error of the site, which
the operator handles, retries and reports like all other errors of sites.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import TypeVar

from simyard.plan.breaker import DefectError
from simyard_sites.base import (
    Machine,
    MachineRequest,
    Outcome,
    PowerAction,
    Site,
    SiteError,
    SiteEvent,
    SiteInfo,
    stop_ends,
)

log = logging.getLogger(__name__)
_Item = TypeVar("_Item")


class GuardedSite:
    """Wrapper of a provider; its calls raise only SiteErrors."""

    def __init__(self, name: str, site: Site) -> None:
        self.stop_ends = stop_ends(site)
        self._name = name
        self._site = site

    async def probe(self) -> SiteInfo:
        """Probe the site, as :class:`simyard_sites.base.Site` says."""
        with _judged(self._name, "probe"):
            return await self._site.probe()

    def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """Create machines, as :class:`simyard_sites.base.Site` says."""
        return self._each("create", lambda: self._site.create(requests))

    def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """Delete machines, as :class:`simyard_sites.base.Site` says."""
        return self._each("delete", lambda: self._site.delete(ids))

    def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """Read machines, as :class:`simyard_sites.base.Site` says."""
        return self._each("get", lambda: self._site.get(ids))

    def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        """Start, stop, suspend or restart machines, as :class:`simyard_sites.base.Site` says."""
        return self._each("act", lambda: self._site.act(ids, action))

    async def list_owned(self) -> Sequence[Machine]:
        """List the machines of the CloudSite, as :class:`simyard_sites.base.Site` says."""
        with _judged(self._name, "list_owned"):
            return await self._site.list_owned()

    def events(self) -> AsyncGenerator[SiteEvent, None]:
        """Return the stream of events, as :class:`simyard_sites.base.Site` says."""
        return self._each("events", self._site.events)

    async def clear(self) -> None:
        """Remove all objects at the site except machines, as :class:`simyard_sites.base.Site` says."""
        with _judged(self._name, "clear"):
            await self._site.clear()

    async def aclose(self) -> None:
        """Close the provider, as :class:`simyard_sites.base.Site` says; log errors instead of raising them."""
        with suppress(SiteError), _judged(self._name, "aclose"):
            await self._site.aclose()

    async def _each(self, call: str, begin: Callable[[], AsyncIterator[_Item]]) -> AsyncGenerator[_Item, None]:
        with _judged(self._name, call):
            items = begin()
            if isinstance(items, AsyncGenerator):
                async with aclosing(items):
                    async for item in items:
                        yield item
            else:
                async for item in items:
                    yield item


def make_defect_error(name: str, call: str, error: Exception) -> DefectError:
    """Log the defect that an exception of a provider shows, and return the error for it.

    The log and the error do not contain the exception's text, because it may contain secrets.
    """
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("site %s: the provider has a defect: %s in %s\n%s", name, _kind(error), call, frames)
    return DefectError(f"the provider has a defect: {_kind(error)} in {call}; the operator's log shows where")


def _kind(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return f"{type(error).__name__} of {', '.join(_kind(each) for each in error.exceptions)}"
    return type(error).__name__


@contextmanager
def _judged(name: str, call: str) -> Iterator[None]:
    try:
        yield
    except SiteError:
        raise
    except Exception as error:  # noqa: BLE001 - a provider may raise anything
        raise make_defect_error(name, call, error) from None
