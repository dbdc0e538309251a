"""Changes of the objects behind, with every way in which they can fail turned into what an OCCI client is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from simyard.api.base import Json
from simyard.apiserver.status import StatusError
from simyard.frontend.noted import noting, without
from simyard.frontend.written import Written, note
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
ATTEMPTS = 10
PAUSE_SECONDS = 0.02
"""After the first attempt at which somebody else was faster; after each more it is twice as long."""
_MISFITS = ("the server rejected our request due to an error in our request", "Duplicate value")
"""What kube-apiserver says of a JSON patch of which a test fails, and of a member that a set has already."""
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
            return _written(cache, await self._client.create(cache.resource, body, namespace))

    async def get(self, cache: Cache[T], name: str, namespace: str) -> T | None:
        """Read an object from the API server; None if there is none."""
        async with answered(cache.resource.kind):
            try:
                return cache.learn(await self._client.get(cache.resource, name, namespace))
            except NotFoundError:
                return None

    async def all(self, cache: Cache[T], namespace: str) -> list[T]:
        """All objects of a namespace as the API server has them now."""
        async with answered(cache.resource.kind):
            raw, _ = await self._client.list_all(cache.resource, namespace)
        return [item for one in raw if (item := cache.learn(one)) is not None]

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
            return _written(cache, raw)

    async def change(self, cache: Cache[T], item: T, change: Callable[[T], Json | None], key: str = "") -> T:
        """Change an object by what it is, however many others do so at the same time.

        Args:
            cache: of the resource.
            item: the object as it is known here.
            change: the merge patch for it, None if there is nothing to change; asked again when somebody was faster.
            key: what was changed under it once, here or by another frontend, is not changed again.

        Raises:
            OcciError: it cannot be changed so; 404, it is gone; 503, too many others change it.
        """
        metadata, what = item.metadata, f"{cache.resource.kind} {item.metadata.name}"
        for attempt in range(ATTEMPTS):
            if key and not without(item.metadata, [key]):
                return item
            if (wanted := change(item)) is None:
                return item
            if key:
                wanted = noting(wanted, item.metadata, [key])
            version = {"resourceVersion": item.metadata.resource_version}
            try:
                return await self.merge(cache, item, {**wanted, "metadata": {**wanted.get("metadata", {}), **version}})
            except ConflictError:
                await pause(attempt)
            found = await self.get(cache, metadata.name, metadata.namespace)
            if found is None or found.metadata.uid != metadata.uid:
                raise OcciError(404, f"{what} is not there (any more)")
            item = found
        raise OcciError(503, f"{what}: too many others change it at this moment; try again")

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
            except InvalidError as error:
                if any(misfit in error.message for misfit in _MISFITS):
                    return None
                raise
            return _written(cache, raw)

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
            note(Written(cache.resource.plural, metadata.namespace, metadata.name, metadata.uid, 0))
        else:
            _written(cache, left)


async def pause(attempt: int) -> None:
    """Let others go first: those who write the same object spread themselves over time."""
    await asyncio.sleep(PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1))  # noqa: S311 - nothing secret


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


def _written(cache: Cache[T], raw: Json) -> T:
    """Take over what the API server answered to a write, and note that it was written."""
    item = cache.learn(raw)
    metadata = raw["metadata"]
    version = int(metadata["resourceVersion"])
    note(Written(cache.resource.plural, metadata.get("namespace", ""), metadata["name"], metadata["uid"], version))
    if item is None:
        raise OcciError(500, f"{cache.resource.kind} {raw['metadata']['name']} cannot be read by this version")
    return item
