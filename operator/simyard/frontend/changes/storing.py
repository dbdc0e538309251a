# SPDX-License-Identifier: Apache-2.0
"""Writes objects to the Kubernetes API, and translates every failure into an OCCI error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from simyard.api.base import Json
from simyard.frontend.backend import Precondition
from simyard.frontend.changes.noted_requests import add_notes, find_unnoted_keys
from simyard.frontend.changes.written import Written, record_write
from simyard.kube.cache import Cache, HasMetadata
from simyard.occi.conflicts import ConflictCause, OcciConflictError
from simyard.occi.errors import OcciError
from simyard.serving.status import StatusError
from simyard_adapter.backoff import draw_delay
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
MAX_PARALLEL_WRITES = 32
MAX_ATTEMPTS = 10
PAUSE_SECONDS = 0.02
MAX_PAUSE_SECONDS = 10.0
"""Maximum pause before a further attempt; the pause doubles with each conflict."""
_MISFITS = ("the server rejected our request due to an error in our request", "Duplicate value")
"""Messages of kube-apiserver for a JSON patch with a failed test, and for a member that is already in a set."""
T = TypeVar("T", bound=HasMetadata)
I = TypeVar("I")  # noqa: E741 - an item
JsonPatch = list[Json]


class ObjectStore:
    """A writer of objects to the Kubernetes API. It puts the answer to each write into the local cache at once."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def create(self, cache: Cache[T], body: Json) -> T:
        """Create an object.

        Raises:
            AlreadyExistsError: an object of that name exists.
            OcciError: the object cannot be created.
        """
        namespace = body["metadata"]["namespace"]
        async with translate_api_errors(body["kind"]):
            return _written(cache, await self._client.create(cache.resource, body, namespace))

    async def get(self, cache: Cache[T], name: str, namespace: str) -> T | None:
        """Read an object from the API server; return None if it does not exist."""
        async with translate_api_errors(cache.resource.kind):
            try:
                return cache.learn(await self._client.get(cache.resource, name, namespace))
            except NotFoundError:
                return None

    async def refresh(self, cache: Cache[T], item: T) -> None:
        """Update the copy of an object, or remove the copy if the object was deleted."""
        found = await self.get(cache, item.metadata.name, item.metadata.namespace)
        if found is None or found.metadata.uid != item.metadata.uid:
            cache.forget(item)

    async def list(self, cache: Cache[T], namespace: str) -> list[T]:
        """Return all objects of a namespace as the API server has them now."""
        async with translate_api_errors(cache.resource.kind):
            raw, _ = await self._client.list_all(cache.resource, namespace)
        return [item for one in raw if (item := cache.learn(one)) is not None]

    async def merge(self, cache: Cache[T], item: T, change: Json) -> T:
        """Merge a change into the object with the uid of ``item``.

        Raises:
            ConflictError: the change has ``metadata.resourceVersion``, and another write came first.
            OcciError: the change is not possible; 404, the object was deleted.
        """
        metadata = {**change.get("metadata", {}), "uid": item.metadata.uid}
        patch = {**change, "metadata": metadata}
        async with translate_api_errors(f"{cache.resource.kind} {item.metadata.name}"):
            raw = await self._client.patch(cache.resource, item.metadata.name, patch, item.metadata.namespace)
            return _written(cache, raw)

    async def change(self, cache: Cache[T], item: T, change: Callable[[T], Json | None], key: str = "") -> T:
        """Change an object depending on its present state; compute and write the change again after a conflict.

        Args:
            cache: the cache of the resource.
            item: the object as the cache has it.
            change: returns the merge patch for the object, None for no change; called again after a conflict.
            key: the idempotency key: if any frontend has made a change under this key, the method makes none.

        Raises:
            OcciError: the change is not possible; 404, the object was deleted; 503, too many other clients change it.
        """
        metadata, what = item.metadata, f"{cache.resource.kind} {item.metadata.name}"
        for attempt in range(MAX_ATTEMPTS):
            if key and not find_unnoted_keys(item.metadata, [key]):
                return item
            if (wanted := change(item)) is None:
                return item
            if key:
                wanted = add_notes(wanted, item.metadata, [key])
            version = {"resourceVersion": item.metadata.resource_version}
            try:
                return await self.merge(cache, item, {**wanted, "metadata": {**wanted.get("metadata", {}), **version}})
            except ConflictError:
                await back_off(attempt)
            found = await self.get(cache, metadata.name, metadata.namespace)
            if found is None or found.metadata.uid != metadata.uid:
                raise OcciError(404, f"{what} does not exist (any more)")
            item = found
        raise OcciError(503, f"{what}: too many other clients change it at this moment; try again")

    async def patch(self, cache: Cache[T], item: T, patch: JsonPatch) -> T | None:
        """Apply a JSON patch; return None if the patch does not fit the present object.

        Raises:
            OcciError: the change is not possible; 404, the object was deleted.
        """
        metadata = item.metadata
        guarded = [{"op": "test", "path": "/metadata/uid", "value": metadata.uid}, *patch]
        async with translate_api_errors(f"{cache.resource.kind} {metadata.name}"):
            try:
                raw = await self._client.patch(
                    cache.resource, metadata.name, guarded, metadata.namespace, kind=PatchType.JSON
                )
            except InvalidError as error:
                if any(misfit in error.message for misfit in _MISFITS):
                    return None
                raise
            return _written(cache, raw)

    async def delete(self, cache: Cache[T], item: T, check: Precondition | None = None) -> None:
        """Delete the object with the uid of ``item``; a missing object counts as deleted.

        With a ``check``, the method deletes only the version of the object that passed the check. It also calls
        ``check`` if the object does not exist.

        Raises:
            OcciError: the deletion is not possible; ``check`` raised it; 503, too many other clients change the object.
        """
        what = f"{cache.resource.kind} {item.metadata.name}"
        for attempt in range(MAX_ATTEMPTS):
            if check is not None:
                check()
            metadata = item.metadata
            version = metadata.resource_version if check is not None else ""
            async with translate_api_errors(what):
                try:
                    left = await self._client.delete(
                        cache.resource, metadata.name, metadata.namespace, uid=metadata.uid, version=version
                    )
                    return _deleted(cache, item, left)
                except NotFoundError:
                    found = None
                except ConflictError:  # another uid, or another version
                    found = await self.get(cache, metadata.name, metadata.namespace) if check is not None else None
            if found is None or found.metadata.uid != metadata.uid:
                cache.forget(item)
                if check is not None:
                    check()
                return _deleted(cache, item, None)
            item = found
            await back_off(attempt)
        raise OcciError(503, f"{what}: too many other clients change it at this moment; try again")


def add_check(check: Precondition | None, change: Callable[[T], Json | None]) -> Callable[[T], Json | None]:
    """Return a function that calls ``check`` and then ``change``; it returns None instead of an empty change."""

    def checked(item: T) -> Json | None:
        if check is not None:
            check()
        return change(item)

    return checked


async def back_off(attempt: int) -> None:
    """Wait for a random time that grows with each attempt, so that writers of one object try at different times."""
    await asyncio.sleep(draw_delay(attempt, MAX_PAUSE_SECONDS, PAUSE_SECONDS))


@asynccontextmanager
async def translate_api_errors(what: str, seconds: float = WRITE_SECONDS) -> AsyncIterator[None]:
    """Run a block that waits for the Kubernetes API, for at most ``seconds``.

    Raises:
        OcciError: the API refused the request, or did not answer; the message begins with ``what``.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except (AlreadyExistsError, ConflictError):
        raise
    except ApiError as error:
        raise translate_api_error(error, what) from error
    except TimeoutError:
        message = f"{what}: the Kubernetes API has not answered within {seconds:.0f} s; the change may have been made"
        raise OcciError(504, message) from None


def translate_api_error(error: ApiError, what: str) -> OcciError:
    """Return the OCCI error for an error of the Kubernetes API."""
    match error:
        case InvalidError():
            return OcciError(400, f"{what}: {error.message}")
        case ForbiddenError():
            return OcciError(403, f"{what}: {error.message}")
        case NotFoundError():
            return OcciError(404, f"{what} does not exist (any more)")
        case AlreadyExistsError() | ConflictError():
            return OcciConflictError(
                ConflictCause.CONCURRENT_CHANGE, f"{what}: another client changes it at the same time; try again"
            )
    if error.status == 0:
        return OcciError(
            504, f"{what}: the Kubernetes API does not answer; the change may have been made: {error.message}"
        )
    return OcciError(503, f"{what}: the Kubernetes API refuses it now; try again: {error.message}")


async def for_each(items: Iterable[I], do: Callable[[I], Awaitable[None]], at_once: int = MAX_PARALLEL_WRITES) -> None:
    """Call a function for every item, with limited concurrency; after all items, raise the first failure."""
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
    """Put the answer to a write into the cache, and record the write for the other replicas."""
    item = cache.learn(raw)
    metadata = raw["metadata"]
    version = int(metadata["resourceVersion"])
    record_write(
        Written(cache.resource.plural, metadata.get("namespace", ""), metadata["name"], metadata["uid"], version)
    )
    if item is None:
        raise OcciError(500, f"{cache.resource.kind} {raw['metadata']['name']} cannot be read by this version")
    return item


def _deleted(cache: Cache[T], item: T, left: Json | None) -> None:
    """Put the answer to a deletion into the cache, and record it; ``left`` is the object that finalizers still keep."""
    if left is not None:
        _written(cache, left)
        return
    metadata = item.metadata
    cache.forget(item)
    record_write(Written(cache.resource.plural, metadata.namespace, metadata.name, metadata.uid, 0))
