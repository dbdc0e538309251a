# SPDX-License-Identifier: Apache-2.0
"""The life of one operator: its side effects one after the other, and its end at any of them.

A side effect is a write to the API server, a change at the broker (each queue that is made or deleted, each call of the
management API, each message) and each item of a call to a site.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from simyard.api.base import Json
from simyard.fleet.fleet import Fleet
from simyard.messaging.errors import BrokerUnavailableError
from simyard_sites.base import Outcome, UnknownOutcomeError
from simyard_sites.kubernetes.client import KubeClient, WatchEvent
from simyard_sites.kubernetes.errors import UnavailableError
from simyard_sites.kubernetes.resource import Resource

T = TypeVar("T")


class Fate(enum.Enum):
    """The event right after the chosen side effect.

    The operator dies, or it receives no answer, or another client makes a change before the answer arrives
    (:attr:`Life.meanwhile`). A death before a side effect equals a death after the previous one.
    """

    DIES = enum.auto()
    ANSWER_LOST = enum.auto()
    MEANWHILE = enum.auto()


class Life:
    """Counts side effects from when it is armed.

    Attributes:
        dead: set when the operator has died.
        count: how many side effects there were.
        done: the side effects.
        met: the side effect at which fate was met.
        meanwhile: what somebody else does then.
        loses_first_answers: the site's first answer about each item is lost.
    """

    def __init__(self) -> None:
        self.dead = asyncio.Event()
        self.count = 0
        self.done: list[str] = []
        self.met = ""
        self._fate: Fate | None = None
        self._at = 0
        self.meanwhile: Callable[[], Awaitable[None]] = _nothing
        self.loses_first_answers = False
        self._lost_once: set[str] = set()

    def arm(self, fate: Fate | None, at: int = 0) -> None:
        """The next side effect is the first; nothing happens without a fate."""
        self.count, self.met, self._fate, self._at = 0, "", fate, at
        self.done.clear()

    async def effect(self, what: str, perform: Callable[[], Awaitable[T]], lost: Exception) -> T:
        """Carry out one side effect, as fate has it."""
        await self._go_on()
        self.count += 1
        number = self.count
        self.done.append(what)
        answer = await perform()
        await self._meet(number, what, lost)
        return answer

    async def effects(self, what: str, items: Sequence[T], perform: Callable[[Sequence[T]], Awaitable[None]]) -> None:
        """Carry out side effects that are sent together, those up to the chosen one if it is among them."""
        await self._go_on()
        if not items:
            return
        first = self.count + 1
        self.count += len(items)
        if self._fate is not None and first <= self._at <= self.count:
            items = items[: self._at - first + 1]
        self.done += [f"{what} {item}" for item in items]
        await perform(items)
        last = first + len(items) - 1
        await self._meet(last, f"{what} {items[-1]}", BrokerUnavailableError("the answer was lost"))

    async def site(self, what: str, perform: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """See :class:`memory_cloud.Effects`."""
        if self.loses_first_answers and what not in self._lost_once:
            self._lost_once.add(what)
            await self.effect(what, perform, AssertionError())
            raise UnknownOutcomeError("the answer was lost")
        return await self.effect(what, perform, UnknownOutcomeError("the answer was lost"))

    async def _meet(self, number: int, what: str, lost: Exception) -> None:
        """Go on after a side effect, unless it is the chosen one."""
        if self._fate is not None and number == self._at:
            self.met = what
            if self._fate is Fate.ANSWER_LOST:
                raise lost
            if self._fate is Fate.MEANWHILE:
                await self.meanwhile()
            else:
                self.dead.set()
        await self._go_on()

    async def _go_on(self) -> None:
        """The dead do nothing more: they wait until they are cancelled."""
        if self.dead.is_set():
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError
            await asyncio.get_running_loop().create_future()

    def attach(self, fleet: Fleet) -> None:
        """Stand between a fleet and the broker."""
        admin, requester = fleet._admin, fleet.requester
        pipeline = admin._pipeline
        call, pipelined, publish = admin._call, pipeline.send, requester._publish

        async def counted_call(method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
            if method == "GET":
                return await call(method, path, body)
            lost = BrokerUnavailableError("the answer was lost")
            return await self.effect(f"{method} {path}", lambda: call(method, path, body), lost)

        async def counted_pipelined(items: Sequence[Any], send: Callable[..., Awaitable[None]]) -> None:
            await self.effects(send.__name__, items, lambda some: pipelined(some, send))

        async def counted_publish(queue: str, kind: Any, body: Any, properties: Any) -> None:
            lost = BrokerUnavailableError("the answer was lost")
            await self.effect(f"publish {kind} to {queue}", lambda: publish(queue, kind, body, properties), lost)

        admin._call = counted_call  # type: ignore[method-assign]
        pipeline.send = counted_pipelined  # type: ignore[method-assign]
        requester._publish = counted_publish  # type: ignore[method-assign]


async def _nothing() -> None:
    """Nobody does anything."""


class WorldClient(KubeClient):
    """Sees one namespace and one CloudSite, so that many operators can work at one API server; its writes are counted.

    Attributes:
        life: whose side effects they are; nobody's when it is None.
    """

    namespace = ""
    site = ""
    life: Life | None = None

    async def request(self, method: str, path: str, **arguments: Any) -> Json:  # type: ignore[override]
        if method == "GET" or self.life is None:
            return await super().request(method, path, **arguments)
        parent = super().request
        lost = UnavailableError(0, "", "the answer was lost")
        return await self.life.effect(f"{method} {path}", lambda: parent(method, path, **arguments), lost)

    async def list_all(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = "", **more: Any
    ) -> tuple[list[Json], str]:
        return await super().list_all(
            resource, self._namespace_of(resource), labels=labels, fields=fields or self._fields_of(resource), **more
        )

    def watch(self, resource: Resource, namespace: str = "", **arguments: Any) -> AsyncIterator[WatchEvent]:
        return super().watch(
            resource,
            self._namespace_of(resource),
            **{**arguments, "fields": arguments.get("fields") or self._fields_of(resource)},
        )

    def _namespace_of(self, resource: Resource) -> str:
        return self.namespace if resource.namespaced else ""

    def _fields_of(self, resource: Resource) -> str:
        return "" if resource.namespaced else f"metadata.name={self.site}"
