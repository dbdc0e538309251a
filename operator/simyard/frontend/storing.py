"""Changes of the objects behind, with every way in which they can fail turned into what an OCCI client is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from simyard.api.base import Json
from simyard.apiserver.status import StatusError
from simyard.kube.cache import Cache, HasMetadata
from simyard.occi.errors import OcciError
from simyard_sites.kubernetes.client import KubeClient, PatchType
from simyard_sites.kubernetes.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)

WRITE_SECONDS = 20.0
WRITERS = 32
T = TypeVar("T", bound=HasMetadata)
I = TypeVar("I")  # noqa: E741 - an item
JsonPatch = list[Json]


class Storing:
    """Writes to the Kubernetes API; what it answers is in the copies at once."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def create(self, cache: Cache[T], body: Json) -> T:
        """Create an object.

        Raises:
            AlreadyExistsError: there is one of that name.
            OcciError: it cannot be made.
        """
        namespace = body["metadata"]["namespace"]
        async with answered(body["kind"]):
            return _read(cache, await self._client.create(cache.resource, body, namespace))

    async def get(self, cache: Cache[T], name: str, namespace: str) -> T | None:
        """Read an object from the API server; None if there is none."""
        async with answered(cache.resource.kind):
            try:
                return cache.learn(await self._client.get(cache.resource, name, namespace))
            except NotFoundError:
                return None

    async def merge(self, cache: Cache[T], item: T, change: Json) -> T:
        """Merge a change into that very object.

        Raises:
            ConflictError: with ``metadata.resourceVersion`` in the change, somebody else was faster.
            OcciError: it cannot be changed so; 404, it is gone.
        """
        metadata = {**change.get("metadata", {}), "uid": item.metadata.uid}
        patch = {**change, "metadata": metadata}
        async with answered(f"{cache.resource.kind} {item.metadata.name}"):
            raw = await self._client.patch(cache.resource, item.metadata.name, patch, item.metadata.namespace)
            return _read(cache, raw)

    async def patch(self, cache: Cache[T], item: T, patch: JsonPatch) -> T | None:
        """Apply a JSON patch; None if it does not fit the object as it is now.

        Raises:
            OcciError: it cannot be changed so; 404, it is gone.
        """
        metadata = item.metadata
        guarded = [{"op": "test", "path": "/metadata/uid", "value": metadata.uid}, *patch]
        async with answered(f"{cache.resource.kind} {metadata.name}"):
            try:
                raw = await self._client.patch(
                    cache.resource, metadata.name, guarded, metadata.namespace, kind=PatchType.JSON
                )
            except InvalidError:
                return None
            return _read(cache, raw)

    async def delete(self, cache: Cache[T], item: T) -> None:
        """Delete that very object; one that is gone counts as deleted."""
        metadata = item.metadata
        async with answered(f"{cache.resource.kind} {metadata.name}"):
            try:
                left = await self._client.delete(cache.resource, metadata.name, metadata.namespace, uid=metadata.uid)
            except (NotFoundError, ConflictError):
                left = None
        if left is None:
            cache.forget(item)
        else:
            cache.learn(left)


@asynccontextmanager
async def answered(what: str, seconds: float = WRITE_SECONDS) -> AsyncIterator[None]:
    """Wait for the Kubernetes API, for so long.

    Raises:
        OcciError: what it answered about ``what``, or that it did not answer.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except (AlreadyExistsError, ConflictError):
        raise
    except ApiError as error:
        raise refused(error, what) from error
    except TimeoutError:
        message = f"{what}: the Kubernetes API has not answered within {seconds:.0f} s; it may have been done"
        raise OcciError(504, message) from None


def refused(error: ApiError, what: str) -> OcciError:
    """What the Kubernetes API answered."""
    match error:
        case InvalidError():
            return OcciError(400, f"{what}: {error.message}")
        case ForbiddenError():
            return OcciError(403, f"{what}: {error.message}")
        case NotFoundError():
            return OcciError(404, f"{what} is not there (any more)")
        case AlreadyExistsError() | ConflictError():
            return OcciError(409, f"{what}: somebody else changes it at the same time; try again")
    if error.status == 0:
        return OcciError(504, f"{what}: the Kubernetes API does not answer; it may have been done: {error.message}")
    return OcciError(503, f"{what}: the Kubernetes API cannot do it now: {error.message}")


async def each(items: Iterable[I], do: Callable[[I], Awaitable[None]], at_once: int = WRITERS) -> None:
    """Do something to every item, some at a time; the first failure is raised when all have been tried."""
    known = list(items)
    left = iter(known)
    failures: list[OcciError | StatusError] = []

    async def work() -> None:
        for item in left:
            try:
                await do(item)
            except (OcciError, StatusError) as error:
                failures.append(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(known))):
            group.create_task(work())
    if failures:
        raise failures[0]


def _read(cache: Cache[T], raw: Json) -> T:
    item = cache.learn(raw)
    if item is None:
        raise OcciError(500, f"{cache.resource.kind} {raw['metadata']['name']} cannot be read by this version")
    return item
