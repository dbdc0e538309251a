"""A provider whose defects are errors of its site: whatever its code raises is judged, retried and shown like those."""

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


class Guarded:
    """See :class:`simyard_sites.base.Site`; raises SiteErrors only. ``name`` is the site's."""

    def __init__(self, name: str, site: Site) -> None:
        self.stop_ends = stop_ends(site)
        self._name = name
        self._site = site

    async def probe(self) -> SiteInfo:
        """See :class:`simyard_sites.base.Site`."""
        with _judged(self._name, "probe"):
            return await self._site.probe()

    def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        return self._each("create", lambda: self._site.create(requests))

    def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        return self._each("delete", lambda: self._site.delete(ids))

    def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        return self._each("get", lambda: self._site.get(ids))

    def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        return self._each("act", lambda: self._site.act(ids, action))

    async def list_owned(self) -> Sequence[Machine]:
        """See :class:`simyard_sites.base.Site`."""
        with _judged(self._name, "list_owned"):
            return await self._site.list_owned()

    def events(self) -> AsyncGenerator[SiteEvent, None]:
        """See :class:`simyard_sites.base.Site`."""
        return self._each("events", self._site.events)

    async def clear(self) -> None:
        """See :class:`simyard_sites.base.Site`."""
        with _judged(self._name, "clear"):
            await self._site.clear()

    async def aclose(self) -> None:
        """See :class:`simyard_sites.base.Site`; what goes wrong is logged."""
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


def defect(name: str, call: str, error: Exception) -> DefectError:
    """What is said of an exception that no site may raise; not its text, which may hold secrets."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("site %s: %s in %s: this is a defect of the provider\n%s", name, _kind(error), call, frames)
    return DefectError(f"the provider has a defect: {_kind(error)} in {call}; where, is in the operator's log")


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
    except Exception as error:  # noqa: BLE001 - whatever a provider raises
        raise defect(name, call, error) from None
