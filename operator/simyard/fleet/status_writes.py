# SPDX-License-Identifier: Apache-2.0
"""Writes the status of an object: only the fields that differ, and only if no new object has taken its name."""

from __future__ import annotations

from typing import TypeVar

from simyard.api.base import ApiModel, Metadata
from simyard.kube.cache import Cache, HasMetadata
from simyard.plan.patch import make_merge_patch
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ConflictError, NotFoundError

T = TypeVar("T", bound=HasMetadata)


async def write_status(
    client: KubeClient, cache: Cache[T], metadata: Metadata, old: ApiModel, new: ApiModel, *, guarded: bool = False
) -> bool:
    """Write the fields of a status that differ.

    Returns False if the object does not exist any more, or, with ``guarded``, if another client has changed it.

    Raises:
        ApiError: the API server refused the write or did not answer.
    """
    if old == new:
        return True
    patch = make_merge_patch(old.to_json(), new.to_json())
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
