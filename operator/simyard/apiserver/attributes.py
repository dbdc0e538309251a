"""``.../attributes``: the newest known values, fresh ones on demand, and setting them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from simyard.api.base import Json
from simyard.apiserver.asking import ask
from simyard.apiserver.broker import BrokerLink
from simyard.apiserver.directory import Destination, Directory
from simyard.apiserver.inputs import flag, read_value
from simyard.apiserver.objects import CachedService, CachedWorker, Target
from simyard.apiserver.routes import Call
from simyard.apiserver.status import StatusError, StatusReason, invalid_values, undeclared
from simyard.apiserver.values import ValueStore, attribute_values, worker_values
from simyard.guest.messages import Reply
from simyard.messaging.errors import MessagingError
from simyard_adapter.declarations import Attribute, InvalidValuesError, check_values
from simyard_adapter.declarations import Json as Value
from simyard_adapter.wire import Request

FRESH_SECONDS = 1.0
FRESH_IN_FLIGHT = 1_000
ASK_SECONDS = 10.0
TURN_WORKERS = 200
"""Rendering so many takes some 5 ms."""


class Attributes:
    """Reads and sets attributes of workers, alone and by the pool or service."""

    def __init__(
        self, directory: Directory, store: ValueStore, broker: BrokerLink, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._directory = directory
        self._store = store
        self._broker = broker
        self._clock = clock

    async def read(self, call: Call, query: Mapping[str, str]) -> Json:
        """The AttributeValues of a target, all or one of them.

        With ``?fresh=true`` every ready worker is asked; one that has not answered after a second shows its last known
        values with their age.

        Raises:
            StatusError: there is no such target or attribute.
        """
        target, service, declared = await self._find(call)
        workers = self._directory.workers_of(target)
        fresh: frozenset[str] = frozenset()
        if flag(query, "fresh", False):
            names = [item.name for item in declared]
            fresh = await self.refresh([item for item in workers if item.state.good], service, names)
        return attribute_values(target, [item async for item in self._items(workers, declared, fresh)])

    async def set(self, call: Call, body: bytes, content_type: str) -> Json:
        """Set one attribute of a worker and return its value as the worker has it now.

        Raises:
            StatusError: it is not to be set, the value does not fit, or the worker cannot be asked.
        """
        target, service, declared = await self._find(call)
        if not isinstance(target, CachedWorker):
            raise StatusError(
                StatusReason.METHOD_NOT_ALLOWED,
                f"attributes are set on a worker; {target.subject} has many: spec.attributes of the WorkerPool gives "
                "the values with which new workers begin",
                subject=target.subject,
            )
        given = {declared[0].name: read_value(body, content_type, target.subject)}
        await self.assign(target, service, given, path="attributes")
        fresh = frozenset({target.metadata.uid})
        return attribute_values(target, [item async for item in self._items([target], declared, fresh)])

    async def assign(self, target: CachedWorker, service: CachedService, given: Mapping[str, Value], path: str) -> None:
        """Set attributes of a worker, all or none; ``path`` says in errors where the values stand.

        Raises:
            StatusError: one is not to be set, a value does not fit, or the worker cannot be asked.
        """
        declared = service.interface.attributes
        for attribute in declared:
            if attribute.name in given and not attribute.mutable:
                raise StatusError(
                    StatusReason.FORBIDDEN,
                    f'attribute "{attribute.name}" of {target.subject} cannot be set: the service does not declare it '
                    "mutable",
                    subject=target.subject,
                )
        try:
            checked = check_values(given, declared, path, partial=True)
        except InvalidValuesError as error:
            raise invalid_values(target.subject, error) from None
        reply = await ask(
            self._broker,
            target.subject,
            self._directory.destination(target),
            Request.SET_ATTRIBUTES,
            {"values": checked},
            timeout_seconds=ASK_SECONDS,
            timeout_message=f"{target.subject} has not answered within {ASK_SECONDS:.0f} s; it may set the value yet",
        )
        self._take(target, service, reply)

    async def _items(
        self, workers: Sequence[CachedWorker], declared: Sequence[Attribute], fresh: frozenset[str]
    ) -> AsyncIterator[Json]:
        """What is known of each worker; other requests get their turn in between."""
        now = self._clock()
        for number, worker in enumerate(workers, start=1):
            yield worker_values(worker, self._store.of(worker), declared, worker.metadata.uid in fresh, now)
            if number % TURN_WORKERS == 0:
                await asyncio.sleep(0)

    async def _find(self, call: Call) -> tuple[Target, CachedService, Sequence[Attribute]]:
        """The target, its service, and the attributes that are meant."""
        target = await self._directory.target(call)
        service = await self._directory.service_of(target)
        if len(call.path) == 1:
            return target, service, service.interface.attributes
        attribute = service.interface.attribute(call.path[1])
        if attribute is None:
            names = [item.name for item in service.interface.attributes]
            raise undeclared(target.subject, "attribute", call.path[1], names)
        return target, service, [attribute]

    async def refresh(
        self,
        workers: Sequence[CachedWorker],
        service: CachedService,
        names: Sequence[str],
        seconds: float = FRESH_SECONDS,
    ) -> frozenset[str]:
        """Ask the workers, all at once and for so long at most; the uids of those that answered."""
        answered: set[str] = set()
        places = asyncio.Semaphore(FRESH_IN_FLIGHT)

        async def refresh(worker: CachedWorker) -> None:
            async with places:
                with contextlib.suppress(MessagingError):
                    reply = await self._broker.request(
                        Destination.of_worker(worker),
                        Request.GET_ATTRIBUTES,
                        {"names": list(names)},
                        timeout_seconds=seconds,
                    )
                    self._take(worker, service, reply)
                    answered.add(worker.metadata.uid)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(refresh(worker))
        return frozenset(answered)

    def _take(self, worker: CachedWorker, service: CachedService, reply: Reply) -> None:
        if self._directory.worker_by_uid(worker.metadata.uid) is not None:
            self._store.record(worker, reply.attributes, service.interface, self._clock())
