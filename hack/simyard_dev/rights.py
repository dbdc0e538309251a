# SPDX-License-Identifier: Apache-2.0
"""Wait until the authorizer of an API server has received a change of a role binding, which takes some time."""

from __future__ import annotations

import asyncio

from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.resource import Resource

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
DEADLINE_SECONDS = 240.0
POLL_SECONDS = 0.05


async def wait_until_rights(
    client: KubeClient, namespace: str, account: str, resource: Resource, *, allowed: bool = True
) -> None:
    """Wait until a ServiceAccount may create objects of a kind in its namespace, or until it may not.

    Raises:
        TimeoutError: the authorizer did not learn of the change.
    """
    attributes = {"verb": "create", "group": resource.group, "resource": resource.plural, "namespace": namespace}
    user = f"system:serviceaccount:{namespace}:{account}"
    body = {"spec": {"user": user, "resourceAttributes": attributes}}
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (await client.request("POST", REVIEWS, body=body))["status"]["allowed"] != allowed:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
