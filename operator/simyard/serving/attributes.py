# SPDX-License-Identifier: Apache-2.0
"""Serves the subresource ``attributes``: returns the newest known values, asks for fresh ones, and sets values."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from simyard.api.base import Json
from simyard.guest.messages import Reply
from simyard.messaging.errors import MessagingError
from simyard.serving.broker import BrokerClient
from simyard.serving.calls import ResourceCall
from simyard.serving.directory import Destination, Directory
from simyard.serving.inputs import read_flag, read_value
from simyard.serving.objects import CachedService, CachedWorker, Target
from simyard.serving.status import StatusError, StatusReason, make_invalid_values_error, make_undeclared_error
from simyard.serving.values import ValueStore, render_attribute_values, render_worker_values
from simyard.serving.worker_requests import ask
from simyard_adapter.declarations import Attribute, InvalidValuesError, check_values
from simyard_adapter.declarations import Json as Value
from simyard_adapter.wire import Request

FRESH_SECONDS = 1.0
FRESH_IN_FLIGHT = 1_000
ASK_SECONDS = 10.0
TURN_WORKERS = 200
"""Number of workers that are rendered (in about 5 ms) before the code yields to the event loop."""


class Attributes:
    """Access to the attributes of one worker, or of all workers of a pool or service."""

    def __init__(
        self, directory: Directory, store: ValueStore, broker: BrokerClient, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._directory = directory
        self._store = store
        self._broker = broker
        self._clock = clock

    async def read(self, call: ResourceCall, query: Mapping[str, str]) -> Json:
        """Return the AttributeValues of a target, with all of its attributes or one.

        With ``?fresh=true``, first ask every ready worker. If a worker does not answer within a second, its item has
        the last known values and their age.

        Raises:
            StatusError: the target or the attribute does not exist.
        """
        target, service, declared = await self._find(call)
        workers = self._directory.list_workers(target)
        fresh: frozenset[str] = frozenset()
        if read_flag(query, "fresh", False):
            names = [item.name for item in declared]
            fresh = await self.refresh([item for item in workers if item.state.good], service, names)
        return render_attribute_values(target, [item async for item in self._items(workers, declared, fresh)])

    async def set(self, call: ResourceCall, body: bytes, content_type: str) -> Json:
        """Set one attribute of a worker, and return the value that the worker reports after the change.

        Raises:
            StatusError: the attribute is not mutable, the value does not fit, or the worker cannot be reached.
        """
        target, service, declared = await self._find(call)
        if not isinstance(target, CachedWorker):
            raise StatusError(
                StatusReason.METHOD_NOT_ALLOWED,
                f"attributes are set on one worker, and {target.subject} has several: spec.attributes of the "
                "WorkerPool gives the values with which new workers begin",
                subject=target.subject,
            )
        given = {declared[0].name: read_value(body, content_type, target.subject)}
        await self.assign(target, service, given, path="attributes")
        fresh = frozenset({target.metadata.uid})
        return render_attribute_values(target, [item async for item in self._items([target], declared, fresh)])

    async def assign(self, target: CachedWorker, service: CachedService, given: Mapping[str, Value], path: str) -> None:
        """Set attributes of a worker, all or none.

        An error has the path of the wrong field, which begins with ``path``.

        Raises:
            StatusError: an attribute is not mutable, a value does not fit, or the worker cannot be reached.
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
            raise make_invalid_values_error(target.subject, error) from None
        reply = await ask(
            self._broker,
            target.subject,
            self._directory.choose_destination(target),
            Request.SET_ATTRIBUTES,
            {"values": checked},
            timeout_seconds=ASK_SECONDS,
            timeout_message=f"{target.subject} did not answer within {ASK_SECONDS:.0f} s; it may set the value later: "
            "read the attribute before you set it again",
        )
        self._record(target, service, reply)

    async def _items(
        self, workers: Sequence[CachedWorker], declared: Sequence[Attribute], fresh: frozenset[str]
    ) -> AsyncIterator[Json]:
        """Yield the rendered values of each worker; yield to the event loop after every ``TURN_WORKERS`` workers."""
        now = self._clock()
        for number, worker in enumerate(workers, start=1):
            yield render_worker_values(
                worker, self._store.get_values(worker), declared, worker.metadata.uid in fresh, now
            )
            if number % TURN_WORKERS == 0:
                await asyncio.sleep(0)

    async def _find(self, call: ResourceCall) -> tuple[Target, CachedService, Sequence[Attribute]]:
        """Return the target of a call, its service, and the attributes that the call names (by default, all)."""
        target = await self._directory.find_target(call)
        service = await self._directory.find_service(target)
        if len(call.path) == 1:
            return target, service, service.interface.attributes
        attribute = service.interface.find_attribute(call.path[1])
        if attribute is None:
            names = [item.name for item in service.interface.attributes]
            raise make_undeclared_error(target.subject, "attribute", call.path[1], names)
        return target, service, [attribute]

    async def refresh(
        self,
        workers: Sequence[CachedWorker],
        service: CachedService,
        names: Sequence[str],
        seconds: float = FRESH_SECONDS,
    ) -> frozenset[str]:
        """Ask all workers at once for their values, and return the uids of the workers that answer in time."""
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
                    self._record(worker, service, reply)
                    answered.add(worker.metadata.uid)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(refresh(worker))
        return frozenset(answered)

    def _record(self, worker: CachedWorker, service: CachedService, reply: Reply) -> None:
        if self._directory.find_worker_by_uid(worker.metadata.uid) is not None:
            self._store.record(worker, reply.attributes, service.interface, self._clock())
