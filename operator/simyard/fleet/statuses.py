"""The one way in which a status is written: only what differs, only to the very object, and learnt at once."""

from __future__ import annotations

from typing import TypeVar

from simyard.api.base import ApiModel, Metadata
from simyard.kube.cache import Cache, HasMetadata
from simyard.plan.patch import merge_patch
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ConflictError, NotFoundError

T = TypeVar("T", bound=HasMetadata)


async def write_status(
    client: KubeClient, cache: Cache[T], metadata: Metadata, old: ApiModel, new: ApiModel, *, guarded: bool = False
) -> bool:
    """Write what differs; False when the object is not there any more, or (guarded) was changed by somebody else.

    Raises:
        ApiError: the API server did not take it.
    """
    if old == new:
        return True
    patch = merge_patch(old.to_json(), new.to_json())
    precondition = {"uid": metadata.uid, **({"resourceVersion": metadata.resource_version} if guarded else {})}
    try:
        raw = await client.patch(
            cache.resource,
            metadata.name,
            {"metadata": precondition, "status": patch},
            metadata.namespace,
            subresource="status",
        )
    except (NotFoundError, ConflictError):
        return False
    cache.learn(raw)
    return True
